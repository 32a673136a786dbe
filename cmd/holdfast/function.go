package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"handler/function/cmd/holdfast/platform"
)

// functionCmd is the process of one function, started by `up --processes`.
type functionCmd struct {
	Name string `arg:""`
}

func (c *functionCmd) Run(ctx context.Context) error {
	handle, ok := platform.Functions[c.Name]
	if !ok {
		return fmt.Errorf("no function %s", c.Name)
	}
	env := map[string]string{}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	limits, err := platform.LimitsOf(env)
	if err != nil {
		return err
	}
	return platform.RunFunction(ctx, handle, limits)
}

// natsCmd is the process of the NATS server, started by `up --processes`.
type natsCmd struct {
	Dir  string `required:""`
	Port int
}

func (c *natsCmd) Run(ctx context.Context) error { return platform.RunNATS(ctx, c.Dir, c.Port) }
