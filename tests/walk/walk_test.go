// Package walk_test runs the README's walk with curl exactly as it is written,
// against a platform started as the README says.
package walk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"handler/function/tests/harness"
)

// blocks are the shell blocks of the README marked as parts of the walk.
func blocks(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(harness.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	inside := false
	for _, line := range strings.Split(string(readme), "\n") {
		switch {
		case line == "```sh walk":
			inside = true
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside:
			script.WriteString(line + "\n")
		}
	}
	return script.String()
}

func TestTheReadmesWalk(t *testing.T) {
	t.Parallel()
	script := blocks(t)
	if strings.Count(script, "\n") < 10 {
		t.Fatal("the README has no walk")
	}
	p := harness.StartPlatform(t, harness.PlatformOptions{Own: true})
	// The walk runs in the repository: here a folder that holds what it names.
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"demo": filepath.Join(harness.Root(), "demo"), "bin/holdfast": harness.Binary(t)} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-x", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "URL="+p.URL, "DATA="+p.Data)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the walk failed: %v\n%s", err, out)
	}
	pdf, err := os.ReadFile(filepath.Join(dir, "ticket.pdf"))
	if err != nil || !strings.HasPrefix(string(pdf), "%PDF-") {
		t.Fatalf("the walk left no ticket.pdf: %v\n%s", err, out)
	}
	t.Logf("the ticket has %d bytes", len(pdf))
	if audit, err := exec.Command(harness.Binary(t), "audit", "--postgres-url", p.PostgresAppURL, "--nats-url", p.NATSURL).CombinedOutput(); err != nil {
		t.Errorf("audit: %v\n%s", err, audit)
	}
}
