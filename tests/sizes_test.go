package tests

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Lines: above soft is printed, above hard fails. C under bpf/ is held to the soft limit, because the verifier's reader is a person too.
const (
	fileSoft, fileHard = 400, 600
	funcSoft, funcHard = 60, 100
	packageFiles       = 15
)

// sizeExceptions: what may be larger, and why. Keys as in the messages: "path", "path:function" or "directory/".
var sizeExceptions = map[string]string{
	"jail/broker/": "two of its files are one architecture's call numbers each, and hiding needs the same walk, caller and descriptors as deciding",
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestSizes(t *testing.T) {
	perDir := map[string]int{}
	walk(t, func(path string, src []byte) {
		if generated.Match(src) {
			return
		}
		for _, m := range checkSize(path, src) {
			if m.hard && sizeExceptions[m.key] == "" {
				t.Error(m.text)
			} else {
				t.Log(m.text)
			}
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, "_other.go") { // stubs hold nothing
			perDir[filepath.Dir(path)+"/"]++
		}
	})
	for dir, n := range perDir {
		if n > packageFiles && sizeExceptions[dir] == "" {
			t.Errorf("%s has %d files, at most %d: it is two packages", dir, n, packageFiles)
		}
	}
}

type sizeMessage struct {
	key, text string
	hard      bool
}

func checkSize(path string, src []byte) []sizeMessage {
	var out []sizeMessage
	say := func(key string, n, soft, hard int) {
		if n > soft {
			out = append(out, sizeMessage{key, fmt.Sprintf("%s has %d lines (soft %d, hard %d)", key, n, soft, hard), n > hard})
		}
	}
	lines := bytes.Count(src, []byte{'\n'})
	if !strings.HasSuffix(path, ".go") {
		say(path, lines, fileSoft, fileSoft)
		return out
	}
	say(path, lines, fileSoft, fileHard)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return append(out, sizeMessage{path, err.Error(), true})
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			say(path+":"+f.Name.Name, fset.Position(f.End()).Line-fset.Position(f.Pos()).Line+1, funcSoft, funcHard)
		}
	}
	return out
}

// walk calls f for each Go file of the tree and each C file of bpf/.
func walk(t *testing.T, f func(path string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		rel := strings.TrimPrefix(path, "../")
		inBPF := strings.HasPrefix(rel, "bpf/") && (strings.HasSuffix(name, ".c") || strings.HasSuffix(name, ".h"))
		if !strings.HasSuffix(name, ".go") && !inBPF {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f(rel, src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSizeCheckFails(t *testing.T) {
	long := func(n int) []byte {
		return []byte("package p\n\nfunc f() {\n" + strings.Repeat("\tg()\n", n) + "}\n")
	}
	rows := []struct {
		name, path string
		src        []byte
		hard       int
	}{
		{"small", "p.go", long(10), 0},
		{"long function", "p.go", long(funcHard), 1},
		{"long function and file", "p.go", long(fileHard), 2},
		{"soft only", "p.go", long(funcSoft + 5), 0},
		{"C over the soft limit", "bpf/x.bpf.c", long(fileSoft), 1},
		{"does not parse", "p.go", []byte("package"), 1},
	}
	for _, r := range rows {
		hard := 0
		for _, m := range checkSize(r.path, r.src) {
			if m.hard {
				hard++
			}
		}
		if hard != r.hard {
			t.Errorf("%s: %d hard messages, want %d", r.name, hard, r.hard)
		}
	}
}
