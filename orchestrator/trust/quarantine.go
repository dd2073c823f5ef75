package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentos/agentos/orchestrator/repo"
)

// mover is an [opener] that also changes what lies beneath. Names are as there.
type mover interface {
	opener
	take(name, to string) error                      // moves name to the path to, which is ours
	back(name, from string) error                    // and back, if nothing lies at name
	put(name string, data []byte, mode uint32) error // makes a file or link, if nothing lies at name; mode as in trees
	remove(name, digest string) error                // removes a file, if that is its state
}

// manifest says what is in a directory of the quarantine. It is written before
// anything is moved.
type manifest struct {
	Session string    `json:"session"`
	At      time.Time `json:"at"`
	Roots   []string  `json:"roots"`
	Files   []moved   `json:"files"`
}

type moved struct {
	Path   string `json:"path"`             // where it lay
	Stored string `json:"stored"`           // name in the directory
	Kind   string `json:"kind"`             //
	Put    string `json:"put,omitempty"`    // digest of the earlier version that lies there now
	Failed string `json:"failed,omitempty"` // why it was not moved
}

const manifestFile = "manifest.json"

// errElsewhere says that a path is in none of the session's directories.
var errElsewhere = errors.New("is itself a file or directory that the policy shows; move it by hand")

// Quarantine moves items to a new directory of the user's, which it returns, and
// puts the earlier version back where it is known. What fails is an error for each
// item; the others are moved.
func (t Store) Quarantine(s *Session, items []Item) (dir string, errs []error, err error) {
	m := manifest{Session: s.ID, At: time.Now().UTC(), Roots: s.Roots}
	dir = filepath.Join(t.quarantine(s.ID), m.At.Format("20060102T150405.000000000"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	for i, it := range items {
		m.Files = append(m.Files, moved{Path: it.Path, Stored: strconv.Itoa(i+1) + "-" + harmless(filepath.Base(it.Path)), Kind: it.Kind})
	}
	if err := writeManifest(dir, m); err != nil {
		return "", nil, err
	}
	d := s.open()
	defer d.close()
	git := repo.Open(s.Git)
	defer func() { _ = git.Close() }()
	for i := range m.Files {
		f := &m.Files[i]
		if err := d.isolate(git, items[i], f, dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Path, err))
			if f.Put == "" {
				f.Failed = err.Error()
			}
		}
	}
	return dir, errs, writeManifest(dir, m)
}

// harmless is a name for a file of ours: no program finds it by it.
func harmless(name string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f && !strings.ContainsRune(`/\:*?"<>|`, r) {
			return r
		}
		return '_'
	}, name[:min(len(name), 100)]) + ".quarantined"
}

func (t Store) quarantine(session string) string {
	return filepath.Join(filepath.Dir(t.dir), "quarantine", session)
}

// isolate moves one item.
func (d *disk) isolate(git *repo.Store, it Item, f *moved, dir string) error {
	r, name, ok := d.at(it.Path)
	to, can := r.dir.(mover)
	if !ok || !can || name == "." {
		return errElsewhere
	}
	if err := to.take(name, filepath.Join(dir, f.Stored)); err != nil {
		return err
	}
	var data []byte
	var err error
	mode := it.mode
	switch {
	case it.held != nil:
		if data, mode = it.held.Data, 0o100644; it.held.Exec {
			mode = 0o100755
		}
	case it.Base != "":
		data, err = git.Blob(it.Base)
	default:
		return nil
	}
	if err == nil {
		err = to.put(name, data, mode)
	}
	if err != nil {
		return fmt.Errorf("moved, but the earlier version was not put back: %w", err)
	}
	o, err := to.look(name, maxFile)
	if err != nil {
		return fmt.Errorf("the earlier version: %w", err)
	}
	f.Put = o.digest()
	return nil
}

// Restore undoes every [Store.Quarantine] of a session, the last one first, and
// returns the paths that are back. What cannot go back, because something else
// lies there now, stays in quarantine and is an error.
func (t Store) Restore(session string) (paths []string, errs []error, err error) {
	if !plain(session) {
		return nil, nil, ErrUnknown
	}
	list, err := os.ReadDir(t.quarantine(session))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range slices.Backward(list) {
		dir := filepath.Join(t.quarantine(session), e.Name())
		var m manifest
		data, err := os.ReadFile(filepath.Join(dir, manifestFile))
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
			continue
		}
		d := (&Session{Roots: m.Roots}).open()
		var left []moved
		for _, f := range m.Files {
			if err := d.release(f, dir); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", f.Path, err))
				left = append(left, f)
			} else if f.Failed == "" {
				paths = append(paths, f.Path)
			}
		}
		d.close()
		if m.Files = left; len(left) > 0 {
			err = writeManifest(dir, m)
		} else {
			err = errors.Join(os.Remove(filepath.Join(dir, manifestFile)), os.Remove(dir))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	_ = os.Remove(t.quarantine(session)) // if it is empty
	return paths, errs, nil
}

// release moves one file back.
func (d *disk) release(f moved, dir string) error {
	from := filepath.Join(dir, filepath.Base(f.Stored))
	if _, err := os.Lstat(from); f.Failed != "" && errors.Is(err, fs.ErrNotExist) {
		return nil // it was never moved
	}
	r, name, ok := d.at(f.Path)
	to, can := r.dir.(mover)
	if !ok || !can || name == "." {
		return errElsewhere
	}
	if f.Put != "" {
		if err := to.remove(name, f.Put); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return to.back(name, from)
}

func writeManifest(dir string, m manifest) error {
	return Store{dir}.write(manifestFile, m)
}
