package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/agentos/agentos"

// listed is what `go list -json` says of one package, as far as the checks here ask.
type listed struct {
	ImportPath   string
	Name         string
	Dir          string
	Standard     bool
	GoFiles      []string
	CgoFiles     []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	Error        *struct{ Err string }
	DepsErrors   []struct{ Err string }
}

// list runs `go list -json` at the top of the tree and decodes its stream. env is added to the environment (CGO_ENABLED=0, ...).
// A package that does not build for another reason than its own files (a dependency that somebody is writing just now) is still
// listed: floors and bans are about imports, and the compiler reports the rest.
func list(t *testing.T, env []string, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json"}, args...)...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("decode go list output: %v", err)
		}
		all = append(all, p)
	}
}

// own lists the packages of this module that have Go files outside tests, for Linux, where all of them are.
func own(t *testing.T) []listed {
	t.Helper()
	var all []listed
	for _, p := range list(t, []string{"GOOS=linux", "CGO_ENABLED=1"}, "-tags=root", "./...") {
		if len(p.GoFiles)+len(p.CgoFiles) > 0 {
			all = append(all, p)
		}
	}
	return all
}

func short(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }
