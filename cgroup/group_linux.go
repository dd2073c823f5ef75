package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Group is the control group of one jail. Its methods may be called from
// several goroutines, but not together with Close and Delete.
type Group struct {
	name   string
	v2     dir
	legacy []dir
	memory int64 // limits, for the sentences of hits; 0 unknown
	pids   int64
}

// Create makes the group name, empty and without limits, in every hierarchy
// where one could be set, so that what is born in it is under [Group.Limit] from
// its first moment on. Nothing is left behind on error.
//
// It needs root (or ownership of the hierarchies) and takes about 0.1 ms per hierarchy.
// The group lives until [Group.Delete], also when this process ends.
//
// Errors: [fs.ErrExist] when the name is taken, [ErrName], [ErrNoUnified].
func Create(l Layout, name string) (*Group, error) {
	if err := validName(name); err != nil {
		return nil, err
	}
	if l.Unified == "" {
		return nil, ErrNoUnified
	}
	f, err := makeDir(top{l.Unified, l.parent()}, name)
	if err != nil {
		return nil, err
	}
	g := &Group{name: name, v2: dir{File: f, top: top{l.Unified, l.parent()}, unified: true}}
	for _, h := range hierarchies(l) {
		if h.unified {
			continue
		}
		if _, err := g.legacyDir(l, h.mount); err != nil {
			return nil, errors.Join(err, g.Delete(0))
		}
	}
	return g, nil
}

// Limit sets limits. What cannot be limited is returned as Missing and
// everything else is set. Call it before the group has work to do.
func (g *Group) Limit(l Layout, lim Limits) ([]Missing, error) {
	g.memory, g.pids = lim.Memory, lim.Pids
	return g.limit(l, lim)
}

// Open returns an existing group, for a helper that was restarted. Errors:
// [fs.ErrNotExist], [ErrName], [ErrNoUnified].
func Open(l Layout, name string) (*Group, error) {
	if err := validName(name); err != nil {
		return nil, err
	}
	if l.Unified == "" {
		return nil, ErrNoUnified
	}
	g := &Group{name: name}
	for _, h := range hierarchies(l) {
		parent, err := openParent(h.top, false)
		if err != nil {
			if h.unified {
				return nil, err
			}
			continue
		}
		h.File, err = openDir(parent, name)
		parent.Close()
		switch {
		case err == nil && h.unified:
			g.v2 = h
		case err == nil:
			g.legacy = append(g.legacy, h)
		case h.unified || !errors.Is(err, fs.ErrNotExist):
			g.Close()
			return nil, err
		}
	}
	g.memory, g.pids = g.readLimits()
	return g, nil
}

// List returns the names of all groups of jails, sorted: also half-made ones
// that exist in some hierarchies only.
func List(l Layout) ([]string, error) {
	var out []string
	for _, h := range hierarchies(l) {
		parent, err := openParent(h.top, false)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names, err := children(parent)
		parent.Close()
		if err != nil {
			return nil, err
		}
		out = append(out, names...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Top makes sure that the parent of all groups exists on v2 and returns its
// directory, which the caller closes, and its id. BPF programs gate on this
// id: it changes when the parent is removed ([Prune]) and made again.
func Top(l Layout) (*os.File, uint64, error) {
	if l.Unified == "" {
		return nil, 0, ErrNoUnified
	}
	f, err := openParent(top{l.Unified, l.parent()}, true)
	if err != nil {
		return nil, 0, err
	}
	id, err := inode(f)
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, id, nil
}

// Prune removes the parent of all groups from every hierarchy where it is empty.
func Prune(l Layout) error {
	var errs []error
	for _, h := range hierarchies(l) {
		if err := removeParent(h.top); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// hierarchies returns v2 first, then every v1 hierarchy once, by mount point.
func hierarchies(l Layout) []dir {
	var out []dir
	if l.Unified != "" {
		out = append(out, dir{top: top{l.Unified, l.parent()}, unified: true})
	}
	for _, c := range limited() {
		mount := l.Legacy[c]
		if mount == "" {
			continue
		}
		i := slices.IndexFunc(out, func(d dir) bool { return d.mount == mount })
		if i < 0 {
			out = append(out, dir{top: top{mount, l.parent()}})
			i = len(out) - 1
		}
		out[i].controllers = append(out[i].controllers, c)
	}
	return out
}

// Name is the group's name below "agentos".
func (g *Group) Name() string { return g.name }

// FD is the descriptor of the group's v2 directory, for CLONE_INTO_CGROUP and
// for attaching BPF programs. It belongs to the group.
func (g *Group) FD() int { return int(g.v2.Fd()) }

// ID is the kernel's number of the v2 group (kernfs id), as
// bpf_get_current_cgroup_id returns it.
func (g *Group) ID() (uint64, error) { return inode(g.v2.File) }

// inode is the inode number, which on 64-bit kernels is the whole kernfs id.
func inode(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("identify group: %w", err)
	}
	return st.Ino, nil
}

// Close closes the descriptors and leaves the group as it is.
func (g *Group) Close() error {
	var errs []error
	for _, d := range g.dirs() {
		if d.File != nil {
			errs = append(errs, d.File.Close())
		}
	}
	g.v2, g.legacy = dir{}, nil
	return errors.Join(errs...)
}

func (g *Group) dirs() []dir { return append([]dir{g.v2}, g.legacy...) }
