package generation

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/agentos/agentos/policy"
)

// Changes names the sections, or keys of them, in which two policies differ and that
// a running jail cannot change: all but the lists of [files] that are rules and, of a jail
// whose network netd serves, who may be reached. Where a
// value stands and in how many layers does not count, only what it comes to.
func Changes(from, to *policy.Resolved, served bool) []string {
	var out []string
	add := func(key string, same bool) {
		if !same {
			out = append(out, key)
		}
	}
	add("files.private", slices.Equal(from.Private, to.Private))
	add("files.persist", slices.Equal(from.Home.Persist, to.Home.Persist))
	add("files.overlay", slices.Equal(from.Home.Overlay, to.Home.Overlay))
	reached := served || from.Net.Ask == to.Net.Ask && slices.Equal(grouped(from, from.Net.Rules), grouped(to, to.Net.Rules))
	add("net", reached && slices.Equal(from.Net.Unix, to.Net.Unix))
	add("net.listen", from.Net.Listen == to.Net.Listen)
	f, t := from.Syscalls, to.Syscalls
	add("syscalls", f.Profile == t.Profile && slices.Equal(f.Allow, t.Allow) && slices.Equal(f.Deny, t.Deny) && f.UserNamespaces == t.UserNamespaces)
	a, b := from.Resources, to.Resources
	for _, r := range []struct {
		key  string
		same bool
	}{
		{"memory", a.Memory == b.Memory},
		{"swap", a.Swap == b.Swap},
		{"cpu", a.CPU == b.CPU},
		{"pids", a.Pids == b.Pids},
		{"disk_write", a.DiskWrite == b.DiskWrite},
		{"tmp", a.Tmp == b.Tmp},
		{"open_files", a.OpenFiles == b.OpenFiles},
	} {
		add("resources."+r.key, r.same)
	}
	add("env", slices.Equal(grouped(from, from.Env.Rules), grouped(to, to.Env.Rules)) && maps.Equal(from.Env.Set, to.Env.Set))
	add("audit", from.Audit == to.Audit)
	add("terminal", from.Terminal == to.Terminal)
	for _, g := range policy.Guarantees() {
		add("require."+string(g), from.Require[g] == to.Require[g])
	}
	return out
}

// grouped writes rules down layer by layer, without those layers that have none and
// no say about them.
func grouped(r *policy.Resolved, rules []policy.Rule) []string {
	var out []string
	for i, l := range r.Layers {
		var b strings.Builder
		for _, kind := range []policy.Kind{policy.NetAllow, policy.NetUnix, policy.EnvPass} {
			used := func(x policy.Rule) bool { return sameSection(x.Kind, kind) }
			if slices.Contains(l.Lists, kind) && slices.ContainsFunc(rules, used) {
				fmt.Fprintf(&b, "has %s\n", kind)
			}
		}
		for _, x := range rules {
			if x.Layer == i {
				fmt.Fprintf(&b, "%s %t %q\n", x.Kind, x.Except, x.Glob)
			}
		}
		if b.Len() > 0 {
			out = append(out, b.String())
		}
	}
	return out
}

// sameSection reports whether two kinds of rules belong to one section of a policy.
func sameSection(a, b policy.Kind) bool {
	section := func(k policy.Kind) string { s, _, _ := strings.Cut(string(k), "-"); return s }
	return section(a) == section(b)
}

// Beyond names what policy to shows of the host and a jail that was started with view
// does not: trees that are not mounted, or not with that access. sorted by path.
func Beyond(view []policy.Mount, to *policy.Resolved) []string {
	has := make(map[string]policy.Mount, len(view))
	for _, m := range view {
		has[m.Path] = m
	}
	var out []string
	for _, want := range to.View() {
		got, ok := nearest(has, want.Path)
		ok = ok && !slices.ContainsFunc(to.Private, func(p string) bool { // the jail's own lies between
			return strings.HasPrefix(p, got.Path+"/") && (p == want.Path || strings.HasPrefix(want.Path, p+"/"))
		})
		var lack []string
		switch {
		case !ok:
			lack = append(lack, "is not mounted")
		case want.Access == policy.ReadWrite && got.Access != policy.ReadWrite:
			lack = append(lack, "is mounted read-only")
		}
		if ok && want.Exec && !got.Exec {
			lack = append(lack, "is mounted without exec")
		}
		if len(lack) > 0 {
			out = append(out, want.Path+" "+strings.Join(lack, " and "))
		}
	}
	return out
}

// nearest is the mount on p or on the closest directory above it.
func nearest(has map[string]policy.Mount, p string) (policy.Mount, bool) {
	for {
		if m, ok := has[p]; ok {
			return m, true
		}
		if p == "/" {
			return policy.Mount{}, false
		}
		p = path.Dir(p)
	}
}
