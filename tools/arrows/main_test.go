package main

import (
	"slices"
	"testing"
)

// Each rule refuses a planted import.
func TestCheck(t *testing.T) {
	layers := Layers("fn\nbooking\ncatalog # the base\nstore queue\nproblem\n")
	for name, c := range map[string]struct {
		from, to string
		ok       bool
	}{
		"down":               {"shared/booking", "shared/catalog", true},
		"up":                 {"shared/catalog", "shared/booking", false},
		"beside":             {"shared/store", "shared/queue", false},
		"leaf to fn":         {"shared/problem", "shared/fn", false},
		"inside itself":      {"shared/catalog/gen", "shared/catalog", true},
		"shared to cmd":      {"shared/booking", "cmd/holdfast/services", false},
		"function to shared": {"functions/hold", "shared/fn", true},
		"function to other":  {"functions/hold", "functions/pay", false},
		"function to schema": {"functions/hold", "migrations", false},
		"cmd to function":    {"cmd/holdfast", "functions/hold", true},
		"cmd to tests":       {"cmd/holdfast", "tests/harness", false},
		"schema to shared":   {"migrations", "shared/store", false},
		"tests to all":       {"tests/x", "cmd/holdfast/services", true},
	} {
		for _, p := range []Package{
			{ImportPath: module + c.from, Imports: []string{module + c.to}},
			{ImportPath: module + c.from, XTestImports: []string{module + c.to}},
		} {
			if bad := Check([]Package{p}, layers); (len(bad) == 0) != c.ok {
				t.Errorf("%s: %v", name, bad)
			}
		}
	}
	bad := Check([]Package{{ImportPath: module + "shared/new"}}, layers)
	if !slices.Equal(bad, []string{"shared/new has no layer in tools/arrows/layers.txt"}) {
		t.Errorf("a package without a layer: %v", bad)
	}
}
