package repo

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// ErrNone says that something is not in the repository, or not in a form that
// this package reads.
var ErrNone = errors.New("not in the repository")

// maxPackedRefs bounds the file of packed references.
const maxPackedRefs = 256 << 20

// Head returns the id of the commit, in hex, that HEAD of a work tree stands
// for. own is the git directory with HEAD, common the one with the branches;
// they are the same unless the work tree is a linked one. A branch without a
// commit is [ErrNone], and so is a repository that keeps its references in
// another way (reftable).
func Head(own, common string) (string, error) {
	text, err := readFile(filepath.Join(own, "HEAD"))
	if err != nil {
		return "", fmt.Errorf("read HEAD: %w", err)
	}
	for range 5 { // as many as git follows (refs.h, SYMREF_MAXDEPTH)
		text = strings.TrimSpace(text)
		name, symbolic := strings.CutPrefix(text, "ref:")
		if !symbolic {
			if _, err := parseID(text); err != nil {
				return "", ErrNone
			}
			return text, nil
		}
		name = strings.TrimSpace(name)
		if !strings.HasPrefix(name, "refs/") || path.Clean(name) != name {
			return "", ErrNone
		}
		dir := common
		if strings.HasPrefix(name, "refs/bisect/") || strings.HasPrefix(name, "refs/worktree/") || strings.HasPrefix(name, "refs/rewritten/") {
			dir = own
		}
		if text, err = readFile(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			continue
		}
		if text, err = packedRef(filepath.Join(common, "packed-refs"), name); err != nil {
			return "", err
		}
	}
	return "", ErrNone
}

// packedRef finds a reference in the file of packed ones (git-pack-refs(1)).
func packedRef(file, name string) (string, error) {
	f, err := os.OpenFile(file, openRead, 0)
	if err != nil {
		return "", ErrNone
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > maxPackedRefs {
		return "", ErrNone
	}
	s := bufio.NewScanner(f)
	for s.Scan() {
		if id, ref, ok := strings.Cut(s.Text(), " "); ok && ref == name {
			return id, nil
		}
	}
	return "", ErrNone
}

// parseID takes the id of an object: SHA-1 or SHA-256, in hex.
func parseID(s string) ([]byte, error) {
	if len(s) != 40 && len(s) != 64 {
		return nil, fmt.Errorf("object id %q", s)
	}
	return hex.DecodeString(s)
}
