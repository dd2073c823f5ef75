package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxRules bounds the file rules of all layers together; the automaton numbers
// rules in 16 bits.
const maxRules = 8192

// placed is an Item and its place as text, because a layer is one document and
// those it extends.
type placed struct {
	Item
	pos string // file:line:col
}

// fault is an error at the place of p.
func (p placed) fault(format string, args ...any) *Error {
	file := strings.TrimSuffix(p.pos, place("", p.At))
	return &Error{File: file, Line: p.Line, Col: p.Col, Msg: fmt.Sprintf(format, args...)}
}

// place is file:line:col.
func place(file string, at At) string {
	b := make([]byte, 0, len(file)+12)
	b = append(append(b, file...), ':')
	b = append(strconv.AppendInt(b, int64(at.Line), 10), ':')
	return string(strconv.AppendInt(b, int64(at.Col), 10))
}

// merged is one layer with its extends joined: lists are joined (extended
// documents first), single values of the extending document win.
type merged struct {
	kind  LayerKind
	doc   *Document // single values, joined; lists are in the map
	lists map[Kind][]placed
	from  []placer // of the single values; the last that knows one counts
}

// placer says where a document has a single value, by its dotted key.
type placer interface {
	where(key string) (pos string, ok bool)
}

// merge joins a document with those it extends.
func merge(l Layer) (*merged, error) {
	m := &merged{kind: l.Kind, doc: &Document{File: l.Doc.File, Name: l.Doc.Name}, lists: map[Kind][]placed{}}
	if err := m.add(l.Doc); err != nil {
		return nil, err
	}
	m.doc.Tests = l.Doc.Tests
	return m, nil
}

func (m *merged) add(d *Document) error {
	for _, e := range d.Extends {
		t := table(strings.TrimPrefix(e.Text, "builtin:"))
		if t == nil {
			return d.itemError(e, "", "there is no builtin policy %q", e.Text)
		}
		if err := m.extend(t, 0); err != nil {
			return err
		}
	}
	for _, kind := range ruleKinds {
		list := *d.list(kind)
		if list == nil {
			continue
		}
		out := make([]placed, len(list))
		for i, it := range list {
			out[i] = placed{it, place(d.File, it.At)}
		}
		m.join(kind, out)
	}
	m.from = append(m.from, d)
	m.singles(d)
	for k, v := range d.Env.Set {
		m.set(k, v)
	}
	for g, l := range d.Require {
		m.require(g, l)
	}
	return nil
}

// extend adds a builtin policy, which is there in parts already.
func (m *merged) extend(t *builtinTable, depth int) error {
	if depth > 4 {
		return &Error{File: t.doc.File, Msg: "extends go deeper than 4"}
	}
	for _, e := range t.doc.Extends {
		if err := m.extend(table(strings.TrimPrefix(e.Text, "builtin:")), depth+1); err != nil {
			return err
		}
	}
	for _, l := range t.lists {
		m.join(l.kind, l.items)
	}
	m.from = append(m.from, t)
	m.singles(&t.doc)
	for _, s := range t.set {
		m.set(s.name, s.value)
	}
	for _, r := range t.require {
		m.require(r.guarantee, r.level)
	}
	return nil
}

func (m *merged) join(kind Kind, items []placed) {
	if m.lists[kind] == nil {
		m.lists[kind] = slices.Clip(items) // appending copies: a table is never written to
		return
	}
	m.lists[kind] = append(m.lists[kind], items...)
}

func (m *merged) set(name, value string) {
	if m.doc.Env.Set == nil {
		m.doc.Env.Set = map[string]string{}
	}
	m.doc.Env.Set[name] = value
}

func (m *merged) require(g Guarantee, l Level) {
	if m.doc.Require == nil {
		m.doc.Require = Require{}
	}
	m.doc.Require[g] = l
}

// at is the place of a single value, "" if no document has it.
func (m *merged) at(key string) string {
	for i := len(m.from) - 1; i >= 0; i-- {
		if pos, ok := m.from[i].where(key); ok {
			return pos
		}
	}
	return ""
}

func (d *Document) where(key string) (string, bool) {
	at, ok := d.At[key]
	if !ok {
		return "", false
	}
	return place(d.File, at), true
}

// ruleKinds are the kinds of rules that documents have lists of.
var ruleKinds = [...]Kind{Read, Write, Exec, Deny, Protect, Private, Persist, Overlay, NetAllow, NetDeny, NetUnix, SyscallAllow, SyscallDeny, EnvPass, EnvDeny}

// list is the document's list that makes rules of that kind.
func (d *Document) list(kind Kind) *[]Item {
	switch kind {
	case Read:
		return &d.Files.Read
	case Write:
		return &d.Files.Write
	case Exec:
		return &d.Files.Exec
	case Deny:
		return &d.Files.Deny
	case Protect:
		return &d.Files.Protect
	case Private:
		return &d.Files.Private
	case Persist:
		return &d.Files.Persist
	case Overlay:
		return &d.Files.Overlay
	case NetAllow:
		return &d.Net.Allow
	case NetDeny:
		return &d.Net.Deny
	case NetUnix:
		return &d.Net.Unix
	case SyscallAllow:
		return &d.Syscalls.Allow
	case SyscallDeny:
		return &d.Syscalls.Deny
	case EnvPass:
		return &d.Env.Pass
	case EnvDeny:
		return &d.Env.Deny
	}
	return nil
}

// singles lets the single values of d replace those of m.
func (m *merged) singles(d *Document) {
	t := m.doc
	replace(&t.Files.AnyWorkspace, d.Files.AnyWorkspace)
	replace(&t.Files.Live, d.Files.Live)
	replace(&t.Net.Listen, d.Net.Listen)
	replace(&t.Net.Ask, d.Net.Ask)
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
func grants() []Kind {
	return []Kind{Read, Write, Exec, Persist, Overlay, NetAllow, NetUnix, SyscallAllow, EnvPass}
}

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
