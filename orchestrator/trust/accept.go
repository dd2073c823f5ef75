package trust

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxAccepted bounds what is remembered; the oldest is forgotten.
const maxAccepted = 20_000

// Accepted are the items that the user took: by path and by state, so that the
// next change of the same file is shown again.
type Accepted map[string]acceptance

type acceptance struct {
	Digest string    `json:"digest"`
	At     time.Time `json:"at"`
}

// Has reports whether an item was accepted as it is now.
func (a Accepted) Has(it Item) bool { return it.Digest != "" && a[it.Path].Digest == it.Digest }

const acceptedFile = "accepted.json"

// Accepted returns what was accepted so far.
func (t Store) Accepted() (Accepted, error) {
	a := Accepted{}
	err := t.read(acceptedFile, &a)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return a, err
}

// Accept remembers items as they are in a report.
func (t Store) Accept(items []Item) error {
	a, err := t.Accepted()
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	for _, it := range items {
		a[it.Path] = acceptance{it.Digest, now}
	}
	if len(a) > maxAccepted {
		var paths []string
		for p := range a {
			paths = append(paths, p)
		}
		slices.SortFunc(paths, func(x, y string) int { return a[x].At.Compare(a[y].At) })
		for _, p := range paths[:len(a)-maxAccepted] {
			delete(a, p)
		}
	}
	return t.write(acceptedFile, a)
}

// Only returns those of items that lie at one of the paths or below; paths are
// absolute or relative to wd. It answers which paths named none.
func Only(items []Item, wd string, paths []string) (out []Item, none []string) {
	for _, p := range paths {
		abs := p
		if !filepath.IsAbs(abs) {
			abs = filepath.Join(wd, abs)
		}
		found := false
		for _, it := range items {
			if _, below := cut(it.Path, filepath.Clean(abs)); below || it.Path == strings.TrimSuffix(abs, "/") {
				found = true
				if !slices.ContainsFunc(out, func(o Item) bool { return o.Path == it.Path }) {
					out = append(out, it)
				}
			}
		}
		if !found {
			none = append(none, p)
		}
	}
	return out, none
}
