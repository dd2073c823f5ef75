package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Parent is the name of the group below which every jail has its own, in each
// hierarchy, unless the layout names another.
const Parent = "agentos"

// Layout says where this machine's controllers live.
type Layout struct {
	Unified     string            // mount point of cgroup v2, "" if it is not mounted
	Controllers []string          // controllers that v2 offers at its root
	Legacy      map[string]string // v1 controller -> mount point; co-mounted controllers share one
	Systemd     bool              // systemd manages this machine's groups
	Parent      string            // group above all jails; "" is [Parent]
}

// ErrNoUnified reports that cgroup v2 is not mounted. AgentOS needs it, with or
// without controllers, to start, freeze and end jails.
var ErrNoUnified = errors.New("cgroup v2 is not mounted (mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified)")

// Place says where one controller lives.
type Place struct {
	Mount   string // mount point, "" when the controller is nowhere
	Unified bool   // on cgroup v2
}

// parent is the name of the group above all jails.
func (l Layout) parent() string {
	if l.Parent == "" {
		return Parent
	}
	return l.Parent
}

// Where returns the place of a controller, such as "memory".
func (l Layout) Where(controller string) Place {
	if l.Unified != "" && slices.Contains(l.Controllers, controller) {
		return Place{l.Unified, true}
	}
	return Place{l.Legacy[controller], false}
}

// Kind names the layout: "unified", "hybrid", "legacy" or "none".
func (l Layout) Kind() string {
	switch {
	case l.Unified != "" && len(l.Legacy) > 0:
		return "hybrid"
	case l.Unified != "":
		return "unified"
	case len(l.Legacy) > 0:
		return "legacy"
	}
	return "none"
}

// controllers that this package limits.
func limited() []string { return []string{"memory", "pids", "cpu", "blkio"} }

// parseMounts reads the mounts of a layout from /proc/self/mountinfo
// (proc_pid_mountinfo(5)). Mounts whose root is not the top of the hierarchy are
// taken only where there is no other.
func parseMounts(mountinfo []byte) Layout {
	l := Layout{Legacy: map[string]string{}}
	whole := map[string]bool{}
	take := func(key, root string, set func()) {
		_, seen := whole[key]
		if top := root == "/"; !seen || top && !whole[key] {
			whole[key] = top
			set()
		}
	}
	lines := bufio.NewScanner(bytes.NewReader(mountinfo))
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		fields, tail := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 6 || len(tail) < 3 {
			continue
		}
		root, point := unescape(fields[3]), unescape(fields[4])
		switch tail[0] {
		case "cgroup2":
			take("", root, func() { l.Unified = point })
		case "cgroup":
			for _, c := range strings.Split(tail[2], ",") {
				if slices.Contains(limited(), c) {
					take(c, root, func() { l.Legacy[c] = point })
				}
			}
		}
	}
	return l
}

// unescape undoes the octal escapes of mountinfo (\040 and the like).
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseMembership reads /proc/PID/cgroup (cgroups(7)): v1 controller -> path in
// its hierarchy, "" -> path on v2.
func parseMembership(data []byte) map[string]string {
	out := map[string]string{}
	for _, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, c := range strings.Split(parts[1], ",") {
			out[c] = parts[2]
		}
	}
	return out
}
