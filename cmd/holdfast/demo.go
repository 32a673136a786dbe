package main

import (
	"context"
	"errors"

	"handler/function/cmd/holdfast/platform"
)

// loadDemo puts the demo sales on sale.
func loadDemo(context.Context, *platform.Running, *output) error {
	return errors.New("there are no demo sales yet")
}
