// Command arrows checks which package of Holdfast imports which: run in the
// repository's root, it prints every import that points the wrong way and ends
// with status 1 if there is one. The rules are in layers.txt.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strings"
)

const module = "handler/function/"

//go:embed layers.txt
var layersText string

// Package is what `go list -json` says of one.
type Package struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func main() {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "-e", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "arrows: go list:", err)
		os.Exit(1)
	}
	var list []Package
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "arrows:", err)
			os.Exit(1)
		}
		list = append(list, p)
	}
	bad := Check(list, Layers(layersText))
	for _, b := range bad {
		fmt.Println(b)
	}
	if len(bad) > 0 {
		os.Exit(1)
	}
}

// Layers reads layers.txt: the layer of each package, 0 the highest.
func Layers(text string) map[string]int {
	layers := map[string]int{}
	n := 0
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		names := strings.Fields(line)
		for _, name := range names {
			layers[name] = n
		}
		if len(names) > 0 {
			n++
		}
	}
	return layers
}

// Check returns a line for each import that points the wrong way. A package's
// own tests may use what its package may; tests that need more stand in tests/.
func Check(list []Package, layers map[string]int) []string {
	var bad []string
	for _, p := range list {
		from, ours := strings.CutPrefix(p.ImportPath, module)
		if !ours || strings.HasPrefix(from, "tests/") {
			continue
		}
		seen := map[string]bool{p.ImportPath: true}
		for _, imported := range append(append(append([]string{}, p.Imports...), p.TestImports...), p.XTestImports...) {
			if to, ok := strings.CutPrefix(imported, module); ok && !seen[imported] {
				seen[imported] = true
				if why := wrong(from, to, layers); why != "" {
					bad = append(bad, fmt.Sprintf("%s imports %s: %s", from, to, why))
				}
			}
		}
		if name, ok := strings.CutPrefix(from, "shared/"); ok {
			if _, ok := layers[first(name)]; !ok {
				bad = append(bad, from+" has no layer in tools/arrows/layers.txt")
			}
		}
	}
	sort.Strings(bad)
	return bad
}

func wrong(from, to string, layers map[string]int) string {
	toShared, isShared := strings.CutPrefix(to, "shared/")
	switch {
	case strings.HasPrefix(from, "functions/"):
		if !isShared {
			return "a function's build has only its own folder and shared/"
		}
	case strings.HasPrefix(from, "shared/"):
		if !isShared {
			return "shared/ is built into every function, without the rest"
		}
		a, b := first(strings.TrimPrefix(from, "shared/")), first(toShared)
		if a != b && layers[b] <= layers[a] {
			return fmt.Sprintf("%s is not below %s", b, a)
		}
	case strings.HasPrefix(from, "cmd/"):
		if strings.HasPrefix(to, "tests/") {
			return "the workbench does not need the tests"
		}
	case from == "migrations":
		return "the schema stands alone"
	}
	return ""
}

// first is the package's folder below shared/: those inside it share its layer.
func first(name string) string {
	f, _, _ := strings.Cut(name, "/")
	return f
}
