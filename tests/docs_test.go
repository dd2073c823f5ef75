package tests

import (
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

const docMin, docMax = 5, 60

// TestPackageDocs: each package says what it promises and what it does not, in one place, at a length that gets read.
func TestPackageDocs(t *testing.T) {
	for _, p := range own(t) {
		var files []string
		for _, f := range append(p.GoFiles, p.CgoFiles...) {
			files = append(files, filepath.Join(p.Dir, f))
		}
		if bad := checkDoc(short(p.ImportPath), files, nil); bad != "" {
			t.Error(bad)
		}
	}
}

// checkDoc answers "" or what is wrong with the package comment of a package made of files (or of src, by name, in tests).
func checkDoc(pkg string, files []string, src map[string]string) string {
	var where []string
	lines := 0
	for _, path := range files {
		fset := token.NewFileSet()
		var content any
		if src != nil {
			content = src[path]
		}
		f, err := parser.ParseFile(fset, path, content, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return fmt.Sprintf("%s: %v", pkg, err)
		}
		if f.Doc == nil || strings.Contains(f.Doc.Text(), "Code generated") {
			continue
		}
		where = append(where, filepath.Base(path))
		lines = fset.Position(f.Doc.End()).Line - fset.Position(f.Doc.Pos()).Line + 1
	}
	switch {
	case len(where) == 0:
		return pkg + ": no package comment; write doc.go: what it promises, what it does not, limits"
	case len(where) > 1:
		return fmt.Sprintf("%s: package comments in %s; one is enough", pkg, strings.Join(where, " and "))
	case lines < docMin || lines > docMax:
		return fmt.Sprintf("%s: package comment of %d lines in %s, want %d to %d", pkg, lines, where[0], docMin, docMax)
	}
	return ""
}

func TestDocCheckFails(t *testing.T) {
	doc := func(n int) string { return strings.Repeat("// Package p is here.\n", n) + "package p\n" }
	rows := []struct {
		name string
		src  map[string]string
		want string
	}{
		{"good", map[string]string{"doc.go": doc(docMin), "a.go": "package p\n"}, ""},
		{"none", map[string]string{"a.go": "package p\n"}, "no package comment"},
		{"detached", map[string]string{"a.go": "// Package p\n\npackage p\n"}, "no package comment"},
		{"two", map[string]string{"a.go": doc(docMin), "b.go": doc(docMin)}, "one is enough"},
		{"short", map[string]string{"a.go": doc(docMin - 1)}, "want"},
		{"long", map[string]string{"a.go": doc(docMax + 1)}, "want"},
	}
	for _, r := range rows {
		var files []string
		for f := range r.src {
			files = append(files, f)
		}
		got := checkDoc("p", files, r.src)
		if (r.want == "") != (got == "") || !strings.Contains(got, r.want) {
			t.Errorf("%s: got %q, want %q", r.name, got, r.want)
		}
	}
}
