package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Detect finds the mounted hierarchies and which controllers they hold. The v2
// mount may be missing; [Create] then answers [ErrNoUnified].
func Detect() (Layout, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Layout{}, fmt.Errorf("detect cgroups: %w", err)
	}
	l := parseMounts(mounts)
	if l.Unified != "" {
		data, err := os.ReadFile(filepath.Join(l.Unified, "cgroup.controllers"))
		if err != nil {
			return Layout{}, fmt.Errorf("detect cgroups: %w", err)
		}
		l.Controllers = strings.Fields(string(data))
	}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		l.Systemd = true
	}
	return l, nil
}
