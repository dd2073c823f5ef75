package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Kind is what a rule does.
type Kind string

// Kinds of rules.
const (
	Read         Kind = "read"
	Write        Kind = "write"
	Exec         Kind = "exec"
	Deny         Kind = "deny"
	Protect      Kind = "protect"
	Private      Kind = "private"
	Persist      Kind = "persist"
	Overlay      Kind = "overlay"
	NetAllow     Kind = "net-allow"
	NetDeny      Kind = "net-deny"
	NetUnix      Kind = "net-unix"
	SyscallAllow Kind = "syscall-allow"
	SyscallDeny  Kind = "syscall-deny"
	EnvPass      Kind = "env-pass"
	EnvDeny      Kind = "env-deny"
)

// Rule is one line of a policy after its variables were replaced.
type Rule struct {
	Kind   Kind   `json:"kind"`
	Glob   string `json:"glob"`             // files: absolute or "**/"; others: the entry itself
	Except bool   `json:"except,omitempty"` // an exception to earlier deny or protect rules of its layer
	Hide   bool   `json:"hide,omitempty"`   // of Deny: the name is kept from the agent, too
	Layer  int    `json:"layer"`            // index into Resolved.Layers
	Pos    string `json:"pos"`              // file:line:col
	Text   string `json:"text"`             // as written
}

// String is the position and the text, as the audit log stores it.
func (r *Rule) String() string { return r.Pos + ": " + string(r.Kind) + " " + r.Text }

// LayerInfo describes one layer of a resolved policy. Lists names the allow
// lists by which the layer has a say; it has none about the others.
type LayerInfo struct {
	Kind  LayerKind `json:"kind"`
	Name  string    `json:"name"`
	File  string    `json:"file"`
	Lists []Kind    `json:"lists,omitempty"`
}

// Resolved is what holds: all layers joined, variables replaced. It is pure
// data and does not change after [Resolve].
type Resolved struct {
	Name         string            `json:"name"` // of the profile
	Vars         Vars              `json:"vars"`
	Layers       []LayerInfo       `json:"layers"`
	Files        []Rule            `json:"files"`   // in the order of the automaton's rule numbers
	Private      []string          `json:"private"` // paths that the jail makes for itself, sorted
	Home         HomeRules         `json:"home,omitzero"`
	AnyWorkspace bool              `json:"any_workspace"`
	Fixed        bool              `json:"fixed,omitempty"` // Files may not be changed while a jail runs; Where has "files.live"
	Net          NetRules          `json:"net"`
	Syscalls     SyscallRules      `json:"syscalls"`
	Resources    Resources         `json:"resources"`
	Env          EnvRules          `json:"env"`
	Audit        Audit             `json:"audit"`
	Terminal     TerminalRules     `json:"terminal"`
	Org          OrgRules          `json:"org,omitzero"`
	Require      Require           `json:"require,omitempty"`
	Where        map[string]string `json:"where,omitempty"` // dotted key of a single value to the file:line:col that set it
	Tests        []Test            `json:"tests,omitempty"` // of the profile
	Refused      []Refusal         `json:"refused,omitempty"`

	memo *memo // what was derived; nil when this was not made by Resolve
}

// memo keeps what several parts of a program ask a resolved policy for.
type memo struct {
	hashed, viewed, judged sync.Once
	hash                   string
	view                   []Mount
	engine                 bool
}

// HomeRules says which directories of the home are neither the session's alone
// nor the host's. The lists are absolute paths, sorted; none lies in another.
type HomeRules struct {
	Persist []string `json:"persist,omitempty"` // shared by the sessions of one user and workspace, kept after them
	Overlay []string `json:"overlay,omitempty"` // the host's to read, the session's to write
	Rules   []Rule   `json:"rules,omitempty"`   // Persist and Overlay, as asked for
}

// NetRules is the network part of a resolved policy.
type NetRules struct {
	Rules  []Rule   `json:"rules,omitempty"` // NetAllow, NetDeny and NetUnix
	Unix   []string `json:"unix,omitempty"`  // host sockets that every layer grants
	Listen string   `json:"listen"`          // "jail" or "host:PORTS"
	Ask    bool     `json:"ask,omitempty"`   // a name that no rule knows is a question to the attached human
}

// SyscallRules is the syscall part of a resolved policy. Deny wins over Allow.
type SyscallRules struct {
	Profile        string   `json:"profile"`
	Allow          []string `json:"allow,omitempty"`
	Deny           []string `json:"deny,omitempty"`
	UserNamespaces bool     `json:"user_namespaces"`
	Rules          []Rule   `json:"rules,omitempty"`
}

// EnvRules is the environment part of a resolved policy; see [Resolved.Environ].
type EnvRules struct {
	Rules []Rule            `json:"rules,omitempty"` // EnvPass and EnvDeny
	Set   map[string]string `json:"set,omitempty"`
}

// TerminalRules is the terminal part of a resolved policy.
type TerminalRules struct {
	OSC52 string `json:"osc52"` // "deny" or "write"
	Title bool   `json:"title"`
}

// ErrWorkspace is a workspace that would show the whole home or system:
// change into a project, or say any_workspace = true under [files].
var ErrWorkspace = errors.New("is the home, a directory above it, or one that the jail makes for itself")

// maxLayers bounds what one jail may be asked to resolve.
const maxLayers = 32

// Resolve joins layers, given top first (org, user, project, profile; exactly
// one profile, last), and replaces variables. Layers only tighten: something
// is allowed if the profile allows it, every other layer that has such a list
// allows it too, and no layer denies it. Errors are an [*Error] for a mistake
// in a document, else about the call.
func Resolve(layers []Layer, v Vars) (*Resolved, error) {
	if err := v.Validate(); err != nil {
		return nil, fmt.Errorf("resolve policy: %w", err)
	}
	if err := checkLayers(layers); err != nil {
		return nil, fmt.Errorf("resolve policy: %w", err)
	}
	r := &Resolved{Vars: v, Where: map[string]string{}, memo: &memo{}}
	all := make([]*merged, len(layers))
	for i, l := range layers {
		if err := l.Doc.validate(false); err != nil {
			return nil, err
		}
		m, err := merge(l)
		if err != nil {
			return nil, err
		}
		all[i] = m
		r.Layers = append(r.Layers, LayerInfo{Kind: l.Kind, Name: l.Doc.Name, File: l.Doc.File, Lists: m.said()})
	}
	profile := all[len(all)-1]
	r.Name, r.Tests = profile.doc.Name, profile.doc.Tests
	for i, m := range all {
		if err := r.addFiles(i, m); err != nil {
			return nil, err
		}
		r.addOther(i, m)
		if err := r.joinOrg(i, m, layers[i].Doc); err != nil {
			return nil, err
		}
	}
	r.joinSingles(all)
	r.joinLists()
	if err := r.joinHome(all); err != nil {
		return nil, err
	}
	if w := v.Workspace; !r.AnyWorkspace && (below(v.Home, w) || r.private(w)) {
		return nil, fmt.Errorf("workspace %s: %w", w, ErrWorkspace)
	}
	r.Refused = append(r.Refused, r.refuse()...)
	return r, nil
}

func checkLayers(layers []Layer) error {
	if len(layers) > maxLayers {
		return fmt.Errorf("over %d layers", maxLayers)
	}
	last := LayerKind(0)
	for _, l := range layers {
		switch {
		case l.Doc == nil:
			return errors.New("a layer has no document")
		case l.Kind < Org || l.Kind > Profile:
			return errors.New("a layer has no kind")
		case l.Kind < last:
			return fmt.Errorf("%s layer stands below %s layer", l.Kind, last)
		case l.Kind == Profile && last == Profile:
			return errors.New("there are two profiles")
		}
		last = l.Kind
	}
	if last != Profile {
		return errors.New("there is no profile, so nothing is granted")
	}
	return nil
}

// addFiles appends the file rules of layer i.
func (r *Resolved) addFiles(i int, m *merged) error {
	kinds := []Kind{Read, Write, Exec, Deny, Protect}
	n := 0
	for _, kind := range kinds {
		n += len(m.lists[kind])
	}
	r.Files = slices.Grow(r.Files, n+n/4)
	for _, kind := range kinds {
		for _, p := range m.lists[kind] {
			text, except := strings.CutPrefix(p.Text, "!")
			first := len(r.Files)
			err := r.Vars.expand(text, QuoteGlob, func(g string) {
				if !slices.ContainsFunc(r.Files[first:], func(o Rule) bool { return o.Glob == g }) {
					r.Files = append(r.Files, Rule{Kind: kind, Glob: g, Except: except, Hide: p.Hide, Layer: i, Pos: p.pos, Text: p.Text})
				}
			})
			if err != nil {
				return p.fault("%v", err)
			}
			if len(r.Files) > maxRules {
				return p.fault("over %d file rules in all layers together", maxRules)
			}
		}
	}
	var own []string
	for _, p := range m.lists[Private] {
		text, except := strings.CutPrefix(p.Text, "!")
		paths, err := r.Vars.expandPath(text)
		if err != nil {
			return p.fault("%v", err)
		}
		for _, q := range paths {
			if except {
				own = slices.DeleteFunc(own, func(s string) bool { return s == q })
			} else {
				own = append(own, q)
			}
		}
	}
	r.Private = append(r.Private, own...)
	return nil
}

// addOther appends the rules of layer i that are not about files.
func (r *Resolved) addOther(i int, m *merged) {
	add := func(to *[]Rule, kind Kind, variable string, values []string) {
		for _, p := range m.lists[kind] {
			text, except := strings.CutPrefix(p.Text, "!")
			list := []string{text}
			switch {
			case text == variable:
				list = values
			case kind == NetUnix:
				list, _ = r.Vars.expandPath(text) // checked by Validate
			}
			for _, g := range list {
				*to = append(*to, Rule{Kind: kind, Glob: g, Except: except, Layer: i, Pos: p.pos, Text: p.Text})
			}
		}
	}
	add(&r.Net.Rules, NetAllow, "${agent.hosts}", r.Vars.Hosts)
	add(&r.Net.Rules, NetDeny, "${agent.hosts}", r.Vars.Hosts)
	add(&r.Net.Rules, NetUnix, "", nil)
	add(&r.Syscalls.Rules, SyscallAllow, "", nil)
	add(&r.Syscalls.Rules, SyscallDeny, "", nil)
	add(&r.Env.Rules, EnvPass, "${agent.env}", r.Vars.EnvPass)
	add(&r.Env.Rules, EnvDeny, "${agent.env}", r.Vars.EnvPass)
}

// both is a permission: the profile must give it and nobody take it away.
func (r *Resolved) both(all []*merged, get func(*merged) *bool) bool {
	for _, m := range all {
		b := get(m)
		if b == nil && m.kind == Profile || b != nil && !*b {
			return false
		}
	}
	return true
}

// joinSingles takes the most strict single value of all layers.
func (r *Resolved) joinSingles(all []*merged) {
	strict := func(key string, m *merged, take bool) bool {
		if take {
			r.Where[key] = m.at(key)
		}
		return take
	}
	set := map[string]string{}
	noSwap := false
	for i, m := range all {
		s, t := m.doc.Resources, &r.Resources
		noSwap = noSwap || s.Memory != 0 && s.Swap == 0
		tighten(strict, "resources.memory", m, &t.Memory, s.Memory)
		tighten(strict, "resources.swap", m, &t.Swap, s.Swap)
		tighten(strict, "resources.pids", m, &t.Pids, s.Pids)
		tighten(strict, "resources.disk_write", m, &t.DiskWrite, s.DiskWrite)
		tighten(strict, "resources.tmp", m, &t.Tmp, s.Tmp)
		tighten(strict, "resources.open_files", m, &t.OpenFiles, s.OpenFiles)
		tighten(strict, "resources.cpu", m, &t.CPU.Machine, s.CPU.Machine)
		tighten(strict, "resources.cpu", m, &t.CPU.Cores, s.CPU.Cores)
		rank(strict, "audit.files", m, &r.Audit.Files, m.doc.Audit.Files, "denied", "changes", "all")
		rank(strict, "audit.on_overload", m, &r.Audit.OnOverload, m.doc.Audit.OnOverload, "drop-and-count", "hold", "deny")
		rank(strict, "terminal.osc52", m, &r.Terminal.OSC52, m.doc.Terminal.OSC52, "write", "deny")
		if live := m.doc.Files.Live; strict("files.live", m, live != nil && !*live && !r.Fixed) {
			r.Fixed = true
		}
		r.joinListen(i, m)
		r.joinEnvSet(i, set, m)
		for g, l := range m.doc.Require {
			if l > r.Require[g] {
				if r.Require == nil {
					r.Require = Require{}
				}
				r.Require[g] = l
				r.Where["require."+string(g)] = m.at("require." + string(g))
			}
		}
	}
	if noSwap {
		r.Resources.Swap = 0
	}
	r.Env.Set = set
	r.AnyWorkspace = r.both(all, func(m *merged) *bool { return m.doc.Files.AnyWorkspace })
	r.Net.Ask = r.both(all, func(m *merged) *bool { return m.doc.Net.Ask })
	r.Terminal.Title = r.both(all, func(m *merged) *bool { return m.doc.Terminal.Title })
	r.Syscalls.UserNamespaces = r.both(all, func(m *merged) *bool { return m.doc.Syscalls.UserNamespaces })
	r.Syscalls.Profile = "default"
	fallback(&r.Audit.Files, "all")
	fallback(&r.Audit.OnOverload, "hold")
	fallback(&r.Terminal.OSC52, "deny")
	fallback(&r.Net.Listen, "jail")
}

func (r *Resolved) joinListen(i int, m *merged) {
	l := m.doc.Net.Listen
	switch {
	case l == "":
	case l == "jail", m.kind == Profile && r.Net.Listen == "":
		r.Net.Listen = l
		r.Where["net.listen"] = m.at("net.listen")
	case m.kind == Profile && r.Net.Listen != l:
		// Two different port ranges: nothing is open that both did not name.
		r.Refused = append(r.Refused, Refusal{Layer: i, Pos: m.at("net.listen"), What: "net.listen " + l, By: r.Where["net.listen"]})
		r.Net.Listen = "jail"
	case r.Net.Listen == "":
		r.Net.Listen = l
		r.Where["net.listen"] = m.at("net.listen")
	}
	if m.kind == Profile && l == "" {
		r.Net.Listen = "jail"
	}
}

// joinEnvSet lets higher layers win. A project may set nothing: a variable can
// point an agent's key at another server, or load code into every process.
func (r *Resolved) joinEnvSet(i int, set map[string]string, m *merged) {
	for k, v := range m.doc.Env.Set {
		key := "env.set." + k
		if old, ok := set[k]; m.kind == Project || ok && old != v {
			by := r.Where[key]
			if m.kind == Project {
				by = "a project may not set variables"
			}
			r.Refused = append(r.Refused, Refusal{Layer: i, Pos: m.at(key), What: "env.set " + k, By: by})
			continue
		}
		set[k] = v
		r.Where[key] = m.at(key)
	}
}

type number interface{ ~int | ~uint64 }

// tighten takes the smaller of two limits; 0 is no limit.
func tighten[T number](strict func(string, *merged, bool) bool, key string, m *merged, to *T, from T) {
	if strict(key, m, from != 0 && (*to == 0 || from < *to)) {
		*to = from
	}
}

// rank takes the word that stands later in order.
func rank(strict func(string, *merged, bool) bool, key string, m *merged, to *string, from string, order ...string) {
	if strict(key, m, from != "" && slices.Index(order, from) > slices.Index(order, *to)) {
		*to = from
	}
}

func fallback(to *string, v string) {
	if *to == "" {
		*to = v
	}
}

// Hash is the SHA-256, in hex, over the JSON of the resolved policy. Two
// policies with the same hash give the same jail.
func (r *Resolved) Hash() string {
	if r.memo == nil {
		return r.sum()
	}
	r.memo.hashed.Do(func() { r.memo.hash = r.sum() })
	return r.memo.hash
}

func (r *Resolved) sum() string {
	data, err := json.Marshal(r)
	if err != nil {
		return "" // cannot happen: all fields are plain data; "" equals no hash
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
