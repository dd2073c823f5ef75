package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Install is where a program lies and what must be visible to start it.
type Install struct {
	Argv0 string   // absolute path to start, in a tree or below a system directory
	Tree  []string // files and directories to show read-only and executable, sorted, none inside another
	Path  []string // directories to put first into the jail's PATH, so that the program and its interpreter are found by name
}

// Sentinels of [Error].
var (
	ErrNotFound      = errors.New("command not found")         // exit status 127
	ErrNotExecutable = errors.New("not an executable program") // 126
	ErrShim          = errors.New("is a shim that chooses the program only when it runs")
	ErrBroad         = errors.New("lies where too much would be shown with it")
)

// Error is a program that cannot be located.
type Error struct {
	Op   string // "locate"
	Path string // the command or file
	Err  error  // answers the sentinels above
	Hint string
}

// Error is "locate NAME: reason".
func (e *Error) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Err }

func fail(path string, err error, hint string) error {
	return &Error{Op: "locate", Path: path, Err: err, Hint: hint}
}

// Locate finds the program of an agent by pathEnv (in the form of $PATH), then
// by the plugin's Detect paths. home is the user's, absolute and clean. The
// error is an [*Error].
func Locate(p Plugin, pathEnv, home string) (Install, error) {
	l := &locator{path: pathEnv, home: home}
	found, err := l.lookUp(p.Command[0])
	for _, d := range expand(p.Detect, home) {
		if err == nil {
			break
		}
		if program(d) {
			found, err = d, nil
		}
	}
	if errors.Is(err, ErrNotFound) && p.Install != "" {
		err = fail(p.Command[0], ErrNotFound, "install it: "+p.Install)
	}
	if err != nil {
		return Install{}, err
	}
	return l.locate(found)
}

// LocateCommand finds any command: a name by pathEnv, or a path, relative ones
// from dir (the working directory). Programs inside workspace need no tree,
// but their interpreter may. The error is an [*Error].
func LocateCommand(argv0, pathEnv, home, workspace, dir string) (Install, error) {
	l := &locator{path: pathEnv, home: home, workspace: workspace}
	if !strings.Contains(argv0, "/") {
		found, err := l.lookUp(argv0)
		if err != nil {
			return Install{}, err
		}
		return l.locate(found)
	}
	if !filepath.IsAbs(argv0) {
		argv0 = filepath.Join(dir, argv0)
	}
	if _, err := os.Stat(argv0); errors.Is(err, fs.ErrNotExist) {
		return Install{}, fail(argv0, ErrNotFound, "")
	}
	if !program(argv0) {
		return Install{}, fail(argv0, ErrNotExecutable, "chmod +x, or name an interpreter")
	}
	return l.locate(filepath.Clean(argv0))
}

// locator collects the trees of one program.
type locator struct {
	path, home, workspace string
	in                    Install
}

// lookUp finds a name in PATH. Relative and empty entries are skipped: they
// mean another program in each directory. A shim gives way to the program that
// it stands for if that is known, else to the next directory.
func (l *locator) lookUp(name string) (string, error) {
	if filepath.IsAbs(name) && program(name) {
		return filepath.Clean(name), nil
	}
	err := fail(name, ErrNotFound, "")
	for _, dir := range filepath.SplitList(l.path) {
		p := filepath.Join(dir, name)
		if !filepath.IsAbs(dir) || strings.Contains(name, "/") || !program(p) {
			continue
		}
		hint, is := shim(p)
		if !is {
			return p, nil
		}
		if p := behindShim(p); p != "" {
			return p, nil
		}
		err = fail(p, ErrShim, hint)
	}
	return "", err
}

// program says whether path is, after links, a regular file with an x bit.
func program(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

func (l *locator) locate(found string) (Install, error) {
	argv0, err := l.add(found, 0)
	if err != nil {
		return Install{}, err
	}
	l.in.Argv0 = argv0
	slices.Sort(l.in.Tree)
	var tree []string
	for _, t := range slices.Compact(l.in.Tree) {
		if !slices.ContainsFunc(tree, func(o string) bool { return below(t, o) }) {
			tree = append(tree, t)
		}
	}
	l.in.Tree = tree
	return l.in, nil
}

// add records what found needs and returns the path to start it by: the first
// name on the way through its links that will be visible.
func (l *locator) add(found string, depth int) (string, error) {
	if depth > 4 {
		return "", fail(found, errors.New("interpreters nest deeper than 4"), "")
	}
	names, err := links(found)
	if err != nil {
		return "", fail(found, err, "")
	}
	real := names[len(names)-1]
	if hint, is := shim(found); is {
		return "", fail(found, ErrShim, hint)
	}
	tree, err := l.tree(real)
	if err != nil {
		return "", err
	}
	if tree != "" {
		l.in.Tree = append(l.in.Tree, tree)
	}
	argv0 := real
	for _, n := range names {
		if l.visible(n) {
			argv0 = n
			break
		}
	}
	if dir := filepath.Dir(argv0); !l.system(dir) && !slices.Contains(l.in.Path, dir) && filepath.Base(argv0) == filepath.Base(found) {
		l.in.Path = append(l.in.Path, dir)
	}
	interpreter, err := shebang(real)
	if err != nil || interpreter == "" {
		return argv0, err
	}
	byName := !filepath.IsAbs(interpreter) // through env: PATH of the jail finds it where l.in.Path says
	if byName {
		if interpreter, err = l.lookUp(interpreter); err != nil {
			return "", fail(found, fmt.Errorf("its interpreter: %w", err), "")
		}
	}
	if !program(interpreter) {
		return "", fail(found, fmt.Errorf("its interpreter %s: %w", interpreter, ErrNotFound), "")
	}
	visible, err := l.add(interpreter, depth+1)
	if err != nil {
		return "", err
	}
	if !byName && visible != interpreter && !l.visible(interpreter) {
		return "", fail(found, fmt.Errorf("its interpreter %s is a link out of every tree: %w", interpreter, ErrBroad), "start it through "+visible)
	}
	return argv0, nil
}

// visible says whether a name will exist in the jail.
func (l *locator) visible(name string) bool {
	return l.system(name) || slices.ContainsFunc(l.in.Tree, func(t string) bool { return below(name, t) })
}

// links lists path and every name that it leads to through symbolic links, the
// real one last. Links of parent directories are resolved in one go.
func links(path string) ([]string, error) {
	names := []string{path}
	for range 40 {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		if p := filepath.Join(dir, filepath.Base(path)); p != path {
			path = p
			names = append(names, path)
		}
		st, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			if !st.Mode().IsRegular() {
				return nil, ErrNotExecutable
			}
			return names, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return nil, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		path = filepath.Clean(to)
		names = append(names, path)
	}
	return nil, errors.New("too many symbolic links")
}

// shebang is the interpreter that a script's first line names: an absolute
// path, or a name to look up when it goes through env. "" for other files.
func shebang(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return "", nil // executable but not readable: the kernel can start it only if it is no script
	}
	if err != nil {
		return "", fail(path, err, "")
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fail(path, err, "")
	}
	rest, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return "", nil
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return "", nil
	}
	if filepath.Base(words[0]) != "env" {
		return words[0], nil
	}
	for _, w := range words[1:] {
		w = strings.TrimPrefix(w, "-S")
		if w != "" && !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			return w, nil
		}
	}
	return "", nil
}
