package policy

import (
	"fmt"
	"maps"
	"slices"
)

// maxRules bounds the file rules of all layers together; the automaton numbers
// rules in 16 bits.
const maxRules = 8192

// placed is an Item that knows its document, because a layer is one document
// and those it extends.
type placed struct {
	Item
	file string
}

func (p placed) pos() string { return fmt.Sprintf("%s:%d:%d", p.file, p.Line, p.Col) }

// merged is one layer with its extends joined: lists are joined (extended
// documents first), single values of the extending document win.
type merged struct {
	kind  LayerKind
	doc   *Document // single values, joined; lists are in the map
	lists map[Kind][]placed
	at    map[string]string // dotted key of a single value to file:line:col
}

// merge joins a document with those it extends.
func merge(l Layer) (*merged, error) {
	m := &merged{kind: l.Kind, doc: &Document{File: l.Doc.File, Name: l.Doc.Name}, lists: map[Kind][]placed{}, at: map[string]string{}}
	if err := m.add(l.Doc, 0); err != nil {
		return nil, err
	}
	m.doc.Tests = l.Doc.Tests
	return m, nil
}

func (m *merged) add(d *Document, depth int) error {
	if depth > 4 {
		return &Error{File: d.File, Msg: "extends go deeper than 4"}
	}
	for _, e := range d.Extends {
		b, err := Builtin(e.Text[len("builtin:"):])
		if err != nil {
			return d.itemError(e, "", "%v", err)
		}
		if err := m.add(b, depth+1); err != nil {
			return err
		}
	}
	for kind, list := range d.kinds() {
		if list == nil {
			continue
		}
		if m.lists[kind] == nil {
			m.lists[kind] = []placed{}
		}
		for _, it := range list {
			m.lists[kind] = append(m.lists[kind], placed{it, d.File})
		}
	}
	for key, at := range d.At {
		m.at[key] = fmt.Sprintf("%s:%d:%d", d.File, at.Line, at.Col)
	}
	m.singles(d)
	return nil
}

// kinds lists the document's lists by the kind of rule that they make.
func (d *Document) kinds() map[Kind][]Item {
	return map[Kind][]Item{
		Read: d.Files.Read, Write: d.Files.Write, Exec: d.Files.Exec, Deny: d.Files.Deny,
		Protect: d.Files.Protect, Private: d.Files.Private,
		NetAllow: d.Net.Allow, NetDeny: d.Net.Deny, NetUnix: d.Net.Unix,
		SyscallAllow: d.Syscalls.Allow, SyscallDeny: d.Syscalls.Deny,
		EnvPass: d.Env.Pass, EnvDeny: d.Env.Deny,
	}
}

// singles lets the single values of d replace those of m.
func (m *merged) singles(d *Document) {
	t := m.doc
	replace(&t.Files.AnyWorkspace, d.Files.AnyWorkspace)
	replace(&t.Net.Listen, d.Net.Listen)
	replace(&t.Syscalls.Profile, d.Syscalls.Profile)
	replace(&t.Syscalls.UserNamespaces, d.Syscalls.UserNamespaces)
	r, s := &t.Resources, d.Resources
	replace(&r.Memory, s.Memory)
	replace(&r.Swap, s.Swap)
	replace(&r.CPU, s.CPU)
	replace(&r.Pids, s.Pids)
	replace(&r.DiskWrite, s.DiskWrite)
	replace(&r.Tmp, s.Tmp)
	replace(&r.OpenFiles, s.OpenFiles)
	replace(&t.Audit.Files, d.Audit.Files)
	replace(&t.Audit.OnOverload, d.Audit.OnOverload)
	replace(&t.Terminal.OSC52, d.Terminal.OSC52)
	replace(&t.Terminal.Title, d.Terminal.Title)
	if d.Env.Set != nil && t.Env.Set == nil {
		t.Env.Set = map[string]string{}
	}
	maps.Copy(t.Env.Set, d.Env.Set)
	if d.Require != nil && t.Require == nil {
		t.Require = Require{}
	}
	maps.Copy(t.Require, d.Require)
}

func replace[T comparable](to *T, from T) {
	var zero T
	if from != zero {
		*to = from
	}
}

// lists names the lists that have a say in this layer: the allow lists it has,
// and all of them for the profile, whose missing lists are empty ones.
func (m *merged) said() []Kind {
	var out []Kind
	for _, k := range grants() {
		if m.kind == Profile || m.lists[k] != nil {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// grants are the kinds of rules that allow something.
func grants() []Kind { return []Kind{Read, Write, Exec, NetAllow, NetUnix, SyscallAllow, EnvPass} }

// joinLists derives the flat lists that others consume.
func (r *Resolved) joinLists() {
	slices.Sort(r.Private)
	r.Private = slices.Compact(r.Private)
	for _, rule := range r.Net.Rules {
		if rule.Kind == NetUnix && r.everyLayer(NetUnix, func(l int) bool { return slices.ContainsFunc(r.Net.Rules, same(rule, l)) }) {
			r.Net.Unix = append(r.Net.Unix, rule.Glob)
		}
	}
	for _, rule := range r.Syscalls.Rules {
		if rule.Kind == SyscallDeny {
			r.Syscalls.Deny = append(r.Syscalls.Deny, rule.Glob)
		} else if r.everyLayer(SyscallAllow, func(l int) bool { return slices.ContainsFunc(r.Syscalls.Rules, same(rule, l)) }) {
			r.Syscalls.Allow = append(r.Syscalls.Allow, rule.Glob)
		}
	}
	for _, list := range []*[]string{&r.Net.Unix, &r.Syscalls.Deny, &r.Syscalls.Allow} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
}

// everyLayer is true if ok holds for all layers that have a say about kind.
func (r *Resolved) everyLayer(kind Kind, ok func(layer int) bool) bool {
	for i, l := range r.Layers {
		if slices.Contains(l.Lists, kind) && !ok(i) {
			return false
		}
	}
	return true
}

func same(rule Rule, layer int) func(Rule) bool {
	return func(o Rule) bool { return o.Kind == rule.Kind && o.Glob == rule.Glob && o.Layer == layer }
}
