package changes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// Gate is the conversation with the helper that this package needs.
type Gate interface {
	CallFDs(ctx context.Context, v rpc.Verb, body, out any, fds ...int) ([]*os.File, error)
}

// Set is what one session has of its own: its home and its overlays, and the
// rules that say what none of it may become on the host.
type Set struct {
	Session string // id
	Name    string
	Home    string // absolute, inside
	Trees   []Tree
	Bars    *policy.Bars
}

// Open asks for the trees of a running session of the caller.
func Open(ctx context.Context, g Gate, session string) (*Set, error) {
	var r rpc.Layers
	files, err := g.CallFDs(ctx, rpc.Changes, rpc.LayerRef{Session: session}, &r)
	if err != nil {
		return nil, fmt.Errorf("ask for changes: %w", err)
	}
	if len(files) != 1+len(r.Trees) {
		closeAll(files)
		return nil, fmt.Errorf("ask for changes: helper sent %d descriptors for %d trees", len(files), len(r.Trees))
	}
	s := &Set{Session: r.Session, Name: r.Name, Home: r.Home, Bars: &policy.Bars{}}
	for i, t := range r.Trees {
		s.Trees = append(s.Trees, Tree{Path: t.Path, Overlay: t.Overlay, dir: files[1+i]})
	}
	defer files[0].Close()
	data, err := readAll(files[0])
	if err == nil {
		err = packet.UnmarshalDocument(data, s.Bars)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("read rules of session: %w", err)
	}
	s.Bars.Add(startup(s.Home)...)
	return s, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// readAll reads a sealed memory file from its beginning, wherever its offset is.
func readAll(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, st.Size())
	_, err = f.ReadAt(data, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data, err
}

// Close gives the descriptors back.
func (s *Set) Close() error {
	for _, t := range s.Trees {
		_ = t.dir.Close()
	}
	return nil
}

// List walks all trees and returns what the session made, by path.
func (s *Set) List(l Limits, all bool) ([]Change, Totals, error) {
	w := newWalker(l)
	rows := []Change{}
	for _, t := range s.Trees {
		entries, err := w.walk(t, "")
		if err != nil {
			return nil, w.totals, fmt.Errorf("read %s: %w", t.Path, err)
		}
		w.totals.Names-- // its top is not the session's
		rows = append(rows, Rows(t.Path, entries, all)...)
	}
	return rows, w.totals, nil
}

// find returns the tree that holds an absolute path of the jail, and the path below it.
func (s *Set) find(p string) (t Tree, rel string, ok bool) {
	for _, x := range s.Trees {
		if r, is := strings.CutPrefix(p, x.Path+"/"); is && len(x.Path) > len(t.Path) {
			t, rel, ok = x, r, true
		} else if p == x.Path && x.Overlay {
			return x, "", true
		}
	}
	return t, rel, ok
}

// Kept is a directory that sessions of a workspace share.
type Kept struct {
	rpc.KeptTree
	Totals Totals `json:"totals"`
}

// ListKept returns what is kept for the caller (root: for everybody), in the order
// of ids, each with its size.
func ListKept(ctx context.Context, g Gate, l Limits) ([]Kept, error) {
	out := []Kept{}
	for after := ""; ; {
		var r rpc.KeptTrees
		files, err := g.CallFDs(ctx, rpc.Kept, rpc.KeptRef{After: after}, &r)
		if err != nil {
			return nil, fmt.Errorf("list kept directories: %w", err)
		}
		if len(files) != len(r.Trees) {
			closeAll(files)
			return nil, fmt.Errorf("list kept directories: helper sent %d descriptors for %d", len(files), len(r.Trees))
		}
		for i, t := range r.Trees {
			w := newWalker(l)
			if _, err := w.walk(Tree{Path: t.Path, dir: files[i]}, ""); err != nil {
				w.totals.Unread++
			} else {
				w.totals.Names--
			}
			out = append(out, Kept{t, w.totals})
			after = t.ID
		}
		closeAll(files)
		if !r.More || len(r.Trees) == 0 {
			return out, nil
		}
	}
}

// Drop removes a kept directory.
func Drop(ctx context.Context, g Gate, id string) error {
	files, err := g.CallFDs(ctx, rpc.Drop, rpc.DropKept{ID: id}, nil)
	closeAll(files)
	return err
}
