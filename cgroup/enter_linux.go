package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Join moves a process with all its threads into the jail's v1 hierarchies, and
// into v2 where unified says so. Each move waits for an RCU grace period (6 ms):
// use [Group.Enter] where a process is started.
func (g *Group) Join(pid int, unified bool) error {
	dirs := g.legacy
	if unified {
		dirs = g.dirs()
	}
	for _, d := range dirs {
		if err := d.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("join group %s: %w", g.name, err)
		}
	}
	return nil
}

// Enter moves the calling thread alone into the jail's v1 hierarchies, so that
// what it clones is born there; leave moves it back to where it was. v2 is not
// touched: that is CLONE_INTO_CGROUP's part. Between the two the thread is
// subject to the jail's CPU limit. Without v1 hierarchies both do nothing.
//
// Precondition: the goroutine is locked to its thread until leave has returned. When
// leave fails, the thread must end with its goroutine (do not unlock it).
func (g *Group) Enter() (leave func() error, err error) {
	if len(g.legacy) == 0 {
		return func() error { return nil }, nil
	}
	back, err := homes(g.legacy)
	if err != nil {
		return nil, fmt.Errorf("enter group %s: %w", g.name, err)
	}
	leave = func() error {
		var errs []error
		for _, d := range back {
			errs = append(errs, d.write("tasks", "0"), d.Close())
		}
		back = nil
		return errors.Join(errs...)
	}
	for _, d := range g.legacy {
		if err := d.write("tasks", "0"); err != nil { // 0 is the writing thread
			return nil, errors.Join(fmt.Errorf("enter group %s: %w", g.name, err), leave())
		}
	}
	return leave, nil
}

// homes opens the groups in which the calling thread is now.
func homes(hierarchies []dir) ([]dir, error) {
	data, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return nil, err
	}
	where := parseMembership(data)
	var out []dir
	for _, h := range hierarchies {
		i := slices.IndexFunc(h.controllers, func(c string) bool { return where[c] != "" })
		if i < 0 {
			err = fmt.Errorf("no line for %s in /proc/thread-self/cgroup", strings.Join(h.controllers, ","))
		} else {
			var f *os.File
			if f, err = os.Open(path.Join(h.mount, where[h.controllers[i]])); err == nil {
				out = append(out, dir{File: f, top: h.top})
			}
		}
		if err != nil {
			for _, d := range out {
				d.Close()
			}
			return nil, err
		}
	}
	return out, nil
}
