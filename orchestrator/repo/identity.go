package repo

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Identity returns the settings user.name and user.email that the user's own
// files give (the later one wins) and that none of the repository's
// configuration files sets. It answers nothing when the user's files include
// others, which may depend on the repository: guessing puts a wrong name on
// somebody's work. Files that are missing or broken say nothing.
func Identity(user, repository []string) []Setting {
	var own, theirs []Setting
	for _, f := range user {
		own = append(own, Settings(f)...)
	}
	for _, f := range repository {
		theirs = append(theirs, Settings(f)...)
	}
	if slices.ContainsFunc(own, func(s Setting) bool { return strings.HasPrefix(s.Section, "include") }) {
		return nil
	}
	var out []Setting
	for _, name := range []string{"name", "email"} {
		v, ok := Last(own, "user", name)
		if _, set := Last(theirs, "user", name); ok && !set && v != "" && !strings.ContainsAny(v, "\n\x00") {
			out = append(out, Setting{Section: "user", Name: name, Value: v})
		}
	}
	return out
}

// UserFiles are the user's own configuration files in the order in which git
// reads them (git-config(1), FILES).
func UserFiles(home, xdg string) []string {
	if xdg == "" {
		xdg = filepath.Join(home, ".config")
	}
	return []string{filepath.Join(xdg, "git", "config"), filepath.Join(home, ".gitconfig")}
}

// Settings returns what a configuration file of at most 1 MiB sets: nothing when
// it is missing, no regular file, or broken.
func Settings(file string) []Setting {
	text, err := readFile(file)
	if err != nil {
		return nil
	}
	all, err := ParseConfig(text)
	if err != nil {
		return nil
	}
	return all
}

// readFile reads a small regular file; a FIFO that somebody put there does not
// block it.
func readFile(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() || st.Size() > maxConfig {
		return "", errors.New("not a small file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConfig))
	return string(text), err
}
