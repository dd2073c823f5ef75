package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// limit sets every limit where its controller lives.
func (g *Group) limit(l Layout, lim Limits) ([]Missing, error) {
	root, err := os.Open(l.Unified)
	if err != nil {
		return nil, fmt.Errorf("open hierarchy: %w", err)
	}
	defer root.Close()
	manager, err := unified(root, g.v2.parent, g.name)
	if err != nil {
		return nil, fmt.Errorf("open group: %w", err)
	}
	var missing []Missing
	lost := map[string]bool{} // controllers that could not be enabled
	for _, s := range settings(lim) {
		why, err := g.set(l, manager, s, lim, lost)
		if err != nil {
			return nil, err
		}
		if why != "" && !s.courtesy {
			missing = append(missing, Missing{s.guarantee, why, hint(l, s)})
		}
	}
	if lim.CountIO {
		if err := g.count(l, manager); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// set sets one limit and says what of it is not enforced.
func (g *Group) set(l Layout, m *cgroup2.Manager, s setting, lim Limits, lost map[string]bool) (string, error) {
	place := l.Where(s.controller)
	if place.Mount == "" {
		place = l.Where(s.legacy)
	}
	switch {
	case place.Mount == "":
		return "no cgroup hierarchy has the " + s.controller + " controller", nil
	case place.Unified:
		return g.setUnified(m, s, lim, lost), nil
	}
	d, err := g.legacyDir(l, place.Mount)
	if err != nil {
		return "", err
	}
	values := legacyValues(s.kind, lim)
	if len(values) == 0 {
		return "cgroup v1 has no such limit for " + s.controller, nil
	}
	for _, v := range values {
		if err := d.write(v.file, v.text); err != nil {
			if s.kind == memorySwap && errors.Is(err, fs.ErrNotExist) && !swapping() {
				return "", nil
			}
			return err.Error(), nil
		}
	}
	return legacyShort(s.kind), nil
}

func (g *Group) setUnified(m *cgroup2.Manager, s setting, lim Limits, lost map[string]bool) string {
	if lost[s.controller] {
		return ""
	}
	if err := enable(m, s.controller); err != nil {
		lost[s.controller] = true
		return err.Error()
	}
	err := m.Update(resources(s.kind, lim))
	if err == nil || s.kind == memorySwap && errors.Is(err, fs.ErrNotExist) && !swapping() {
		return ""
	}
	return err.Error()
}

// count makes I/O counters available.
func (g *Group) count(l Layout, m *cgroup2.Manager) error {
	if l.Where("io").Unified {
		_ = enable(m, "io") // counters are no guarantee
		return nil
	}
	if mount := l.Where("blkio").Mount; mount != "" {
		_, err := g.legacyDir(l, mount)
		return err
	}
	return nil
}

// legacyDir returns the group's directory in a v1 hierarchy, made on first use.
func (g *Group) legacyDir(l Layout, mount string) (dir, error) {
	if i := slices.IndexFunc(g.legacy, func(d dir) bool { return d.mount == mount }); i >= 0 {
		return g.legacy[i], nil
	}
	for _, h := range hierarchies(l) {
		if h.mount != mount {
			continue
		}
		f, err := makeDir(h.top, g.name)
		if err != nil {
			return dir{}, err
		}
		h.File = f
		g.legacy = append(g.legacy, h)
		return h, nil
	}
	return dir{}, fmt.Errorf("open hierarchy %s: %w", mount, fs.ErrNotExist)
}

// swapping reports whether the machine has swap space now: without any, a
// missing swap limit bounds nothing.
func swapping() bool {
	data, err := os.ReadFile("/proc/swaps")
	return err != nil || slices.Index(data, '\n') != len(data)-1
}

// hint says what a user can do about a limit that cannot be set.
func hint(l Layout, s setting) string {
	place := l.Where(s.controller)
	switch {
	case place.Mount == "" && l.Where(s.legacy).Mount == "" && s.controller == "memory":
		return "boot with cgroup_enable=memory"
	case place.Mount == "" && l.Where(s.legacy).Mount == "":
		return "mount a cgroup hierarchy with " + s.controller + ", or use a kernel that has it"
	case place.Unified:
		return "run the helper outside containers, where it may change " + place.Mount + "/cgroup.subtree_control"
	}
	return "use cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
}
