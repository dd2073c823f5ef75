package posture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Expect is what a process in a jail may be. The zero Expect permits nothing:
// every field widens.
type Expect struct {
	UID, GID uint32     // the ids it must have, all four of each
	Groups   []uint32   // supplementary groups it may have
	IDs      IDRange    // Outside and Count: where everything its namespace maps must lie
	Caps     uint64     // capabilities it may have, in any of the five sets
	Filters  int        // least number of seccomp filters; 0 stands for 1
	Host     Namespaces // namespaces it must not be in
	Shared   []string   // names of namespaces that it may share with Host
	FDs      []int      // descriptors above 2 that it may have
	AnyFD    bool       // any descriptor: the program runs already
	Cgroup   string     // its path, on v2 and for each controller in Controllers
	// Controllers are v1 controllers whose path must be Cgroup too.
	Controllers []string
	Writable    []string // mount points that may be writable
	Devices     []string // mount points that may have devices
	AnyMount    bool     // do not look at mounts
	Limits      map[string]Limit
	OOMScoreAdj int  // least value
	Dumpable    bool // it may be dumped and traced by its own uid
}

// separate are the namespaces of a jail.
func separate() []string {
	return []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"}
}

// Check compares a posture with what is expected and returns one sentence for each
// difference, in a fixed order. None means that all is as expected.
func Check(p Posture, want Expect) []string {
	var c complaints
	c.identity(p, want)
	c.privilege(p, want)
	c.namespaces(p, want)
	c.descriptors(p, want)
	c.groups(p, want)
	c.mounts(p, want)
	c.limits(p, want)
	return c
}

type complaints []string

func (c *complaints) add(wrong bool, format string, args ...any) {
	if wrong {
		*c = append(*c, fmt.Sprintf(format, args...))
	}
}

func (c *complaints) identity(p Posture, want Expect) {
	for i, name := range []string{"real", "effective", "saved", "file system"} {
		c.add(p.UIDs[i] != want.UID, "%s uid is %d, not %d", name, p.UIDs[i], want.UID)
		c.add(p.GIDs[i] != want.GID, "%s gid is %d, not %d", name, p.GIDs[i], want.GID)
	}
	for _, g := range p.Groups {
		c.add(!slices.Contains(want.Groups, g), "it is in group %d", g)
	}
	for _, m := range []struct {
		name   string
		ranges []IDRange
	}{{"uid", p.UIDMap}, {"gid", p.GIDMap}} {
		c.add(len(m.ranges) == 0, "its namespace maps no %ss", m.name)
		for _, r := range m.ranges {
			c.add(!within(r, want.IDs), "%ss %d to %d outside are mapped", m.name, r.Outside, uint64(r.Outside)+uint64(r.Count)-1)
		}
	}
}

// within reports whether the outside of r lies in the outside of all.
func within(r, all IDRange) bool {
	return r.Outside >= all.Outside && uint64(r.Outside)+uint64(r.Count) <= uint64(all.Outside)+uint64(all.Count)
}

func (c *complaints) privilege(p Posture, want Expect) {
	for _, s := range []struct {
		name string
		set  uint64
	}{
		{"inheritable", p.Caps.Inheritable},
		{"permitted", p.Caps.Permitted},
		{"effective", p.Caps.Effective},
		{"bounding", p.Caps.Bounding},
		{"ambient", p.Caps.Ambient},
	} {
		c.add(s.set&^want.Caps != 0, "%s capabilities %#x", s.name, s.set&^want.Caps)
	}
	c.add(!p.NoNewPrivs, "no_new_privs is not set")
	c.add(p.Seccomp != 2, "seccomp mode is %d, not 2", p.Seccomp)
	least := max(want.Filters, 1)
	c.add(p.Filters < least, "%d seccomp filters, at least %d expected", p.Filters, least)
	c.add(p.Tracer != 0, "process %d traces it", p.Tracer)
	c.add(!want.Dumpable && dumpable(p), "it is dumpable")
	c.add(p.OOMScoreAdj < want.OOMScoreAdj, "oom_score_adj is %d, at least %d expected", p.OOMScoreAdj, want.OOMScoreAdj)
}

// dumpable: /proc/PID belongs to the effective uid of a dumpable process and to
// the root of its namespace otherwise. For that root itself it cannot be told, and is
// not complained about.
func dumpable(p Posture) bool {
	for _, r := range p.UIDMap {
		if r.Inside == 0 && r.Outside == p.UIDs[1] {
			return false
		}
	}
	return p.Owner == p.UIDs[1]
}

func (c *complaints) namespaces(p Posture, want Expect) {
	for _, name := range separate() {
		switch {
		case slices.Contains(want.Shared, name):
		case p.Namespaces[name] == 0:
			c.add(true, "its %s namespace is unknown", name)
		case want.Host[name] == 0:
			c.add(true, "the host's %s namespace is unknown", name)
		default:
			c.add(p.Namespaces[name] == want.Host[name], "it shares the host's %s namespace", name)
		}
	}
}

func (c *complaints) descriptors(p Posture, want Expect) {
	if want.AnyFD {
		return
	}
	for _, fd := range p.FDs {
		c.add(fd.N > 2 && !slices.Contains(want.FDs, fd.N), "descriptor %d is open: %q", fd.N, fd.Target)
	}
}

func (c *complaints) groups(p Posture, want Expect) {
	for _, controller := range append([]string{""}, want.Controllers...) {
		name := controller
		if name == "" {
			name = "v2"
		}
		got := p.Cgroups[controller]
		c.add(got != want.Cgroup, "its %s cgroup is %q, not %q", name, got, want.Cgroup)
	}
}

func (c *complaints) mounts(p Posture, want Expect) {
	if want.AnyMount {
		return
	}
	c.add(len(p.Mounts) == 0, "its mounts are unknown")
	for _, m := range p.Mounts {
		c.add(!m.Has("ro") && !slices.Contains(want.Writable, m.Point), "%q is writable", m.Point)
		c.add(!m.Has("nosuid"), "%q lets programs change ids", m.Point)
		c.add(!m.Has("nodev") && !slices.Contains(want.Devices, m.Point), "%q has devices", m.Point)
	}
}

func (c *complaints) limits(p Posture, want Expect) {
	for _, name := range slices.Sorted(maps.Keys(want.Limits)) {
		got, known := p.Limits[name]
		w := want.Limits[name]
		what := strings.ToLower(name)
		c.add(!known, "its limit of %s is unknown", what)
		c.add(known && (got.Soft > w.Soft || got.Hard > w.Hard),
			"its limit of %s is %s, not %s", what, got, w)
	}
}

func (l Limit) String() string {
	word := func(n uint64) string {
		if n == Unlimited {
			return "unlimited"
		}
		return fmt.Sprint(n)
	}
	return word(l.Soft) + "/" + word(l.Hard)
}
