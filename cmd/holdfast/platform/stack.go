package platform

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/openfaas/go-sdk/stack"
	"gopkg.in/yaml.v3"
)

// ReadStack reads a stack.yml with the parser OpenFaaS uses, and refuses keys
// which that parser would pass over in silence: a misspelt limit must not
// deploy without one.
func ReadStack(file string) (*stack.Services, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ParseStack(data)
}

// ParseStack is ReadStack for the text of a stack.yml.
func ParseStack(data []byte) (*stack.Services, error) {
	services, err := stack.ParseYAMLData(data, "", "", true)
	if err != nil {
		return nil, fmt.Errorf("stack.yml: %w", err)
	}
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	if err := strict.Decode(new(stack.Services)); err != nil {
		return nil, fmt.Errorf("stack.yml: %w", err)
	}
	for name, f := range services.Functions {
		if _, err := LimitsOf(f.Environment); err != nil {
			return nil, fmt.Errorf("stack.yml: %s: %w", name, err)
		}
	}
	return services, nil
}

// Root is the folder that has stack.yml: the one we are in or above it, else
// above the program, else where the program was built from.
func Root() (string, error) {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	if _, file, _, ok := runtime.Caller(0); ok {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "stack.yml")); err == nil {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", errors.New("no stack.yml here, above, or beside the program: run holdfast in the checkout")
}

// Limits are what the watchdog and the template's server read from the
// environment of a function.
type Limits struct {
	ReadTimeout  time.Duration // of a request's head and body
	WriteTimeout time.Duration // from there to the end of the answer
	ExecTimeout  time.Duration // of the handler; 0: none
	MaxInflight  int           // requests at a time a replica; 0: no limit
}

// LimitsOf reads them as of-watchdog does: a duration ("10s") or whole seconds;
// missing timeouts are 10 s.
func LimitsOf(env map[string]string) (Limits, error) {
	l := Limits{ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, ExecTimeout: 10 * time.Second}
	for name, to := range map[string]*time.Duration{
		"read_timeout": &l.ReadTimeout, "write_timeout": &l.WriteTimeout, "exec_timeout": &l.ExecTimeout,
	} {
		v := env[name]
		if v == "" {
			continue
		}
		if n, err := strconv.Atoi(v); err == nil {
			*to = time.Duration(n) * time.Second
			continue
		}
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return l, fmt.Errorf("%s is no duration: %q", name, v)
		}
		*to = d
	}
	if v := env["max_inflight"]; v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return l, fmt.Errorf("max_inflight is no number: %q", v)
		}
		l.MaxInflight = n
	}
	return l, nil
}

// topics are the subjects or the cron mark in the annotation `topic`.
func topics(f stack.Function) []string {
	if f.Annotations == nil {
		return nil
	}
	var list []string
	for _, t := range strings.Split((*f.Annotations)["topic"], ",") {
		if t = strings.TrimSpace(t); t != "" {
			list = append(list, t)
		}
	}
	return list
}
