package jail

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Descriptors that init inherits, by number. Everything else comes with the
// message that tells it what to build.
const (
	FDControl = 3 // SOCK_SEQPACKET to the helper, jail/packet
	FDEvents  = 4 // SOCK_SEQPACKET, binary batches of events, init to helper
)

// Descriptors of the first [OpBuild], by index. Mounts follow from PartMounts
// on, in further messages when one does not hold them.
const (
	PartSpec   = iota // sealed memfd: the Spec as JSON
	PartFilter        // sealed memfd: array of struct sock_filter
	PartRules         // sealed memfd: the automaton, policy/glob
	PartTree          // detached mount tree: what the jail shares with others
	PartMounts        // detached mounts, in the order of Spec.Mounts of kind Bind
)

// Plan is a compiled jail: Tree is read-only and the same for every jail with
// the same view, so that it is made once ([Trees]); Spec is what init puts on
// top of it.
type Plan struct {
	Tree []Mount
	Spec Spec
}

// Binds returns the targets of the Bind and Overlay entries of list, in order: the
// order of the descriptors that go with it. An overlay has two, its own target
// and what [Upper] makes of that.
func Binds(list []Mount) []string {
	var out []string
	for _, m := range list {
		switch m.Kind {
		case Bind:
			out = append(out, m.Target)
		case Overlay:
			out = append(out, m.Target, Upper(m.Target))
		}
	}
	return out
}

// Upper names the session's half of the overlay at target; it is no clean path,
// so nothing that is given has that name.
func Upper(target string) string { return target + "//upper" }

// Spec is the blueprint of one jail. It holds no kernel state.
type Spec struct {
	Build     string   // build id of the helper; init refuses another
	Session   string   // session id
	Hostname  string   // of the jail's UTS namespace
	UID, GID  int      // of the agent, inside
	Home      string   // absolute path inside
	Mounts    []Mount  // parents before children
	Allow     []Allow  // Landlock rules
	OpenFiles uint64   // RLIMIT_NOFILE; 0 = leave
	Audit     string   // "all", "changes" or "denied"
	Broker    bool     // files are decided by the broker (tiers C and D), or only hidden by it
	Hide      bool     // rules may hide names; only with Broker
	Kernel    bool     // the kernel decides files: the broker hides, and decides nothing; only with Hide
	Opens     bool     // opens that change nothing are asked about by a fanotify group
	Fifos     []string // mounts whose denied FIFOs are covered; only with Opens
	Private   []string // trees that exist only in this jail
	Unix      []string // host sockets that may be connected to
	Canaries  Canaries // what the jail check tries
}

// Process is what to execute, the content of the memfd that comes with [OpRun].
// Those after the agent leave out of Env and Cwd what is to be as the agent's.
type Process struct {
	Argv []string // Argv[0] is the absolute path of the program
	Env  []string // K=V
	Cwd  string   // absolute
}

// MountKind says what appears at a target.
type MountKind string

// Kinds of mounts. All but Bind are made by init from nothing.
const (
	Dir     MountKind = "dir"     // a plain directory of the root
	File    MountKind = "file"    // a small read-only file with Data as content
	Symlink MountKind = "symlink" // Data is the target
	Bind    MountKind = "bind"    // the next detached mount of those that come with the plan
	Overlay MountKind = "overlay" // an overlayfs of the next two: the host's tree, and the directory with the session's upper and work
	Point   MountKind = "point"   // a place for something that init mounts there
	Tmpfs   MountKind = "tmpfs"
	Proc    MountKind = "proc"
	Devpts  MountKind = "devpts"
)

// Mount is one entry of the mount plan.
type Mount struct {
	Kind     MountKind `json:",omitempty"`
	Target   string    `json:",omitempty"` // absolute, clean
	Own      bool      `json:"-"`          // not shared with other jails
	IsDir    bool      `json:",omitempty"` // Bind, Point: what it is
	ReadOnly bool      `json:",omitempty"` // Bind: for the reader of the plan; the helper has set it
	Data     string    `json:",omitempty"` // File: content; Symlink: target
	Size     uint64    `json:",omitempty"` // Tmpfs: bytes
	Mode     uint32    `json:",omitempty"` // Dir, Tmpfs: permission bits
	Agent    bool      `json:",omitempty"` // Dir: owned by the agent
}

// Allow is one Landlock rule.
type Allow struct {
	Path  string `json:",omitempty"`
	Write bool   `json:",omitempty"`
	Exec  bool   `json:",omitempty"`
	File  bool   `json:",omitempty"` // the path is not a directory
	List  bool   `json:",omitempty"` // only directories may be listed, nothing opened
}

// Canaries are acts that must fail in a sound jail.
type Canaries struct {
	Known       bool   `json:",omitempty"` // this policy was checked on this kernel before: only what costs no broker is tried
	Child       bool   `json:",omitempty"` // try them in a child: the kernel's rules trust init itself
	Userns      bool   `json:",omitempty"` // the policy permits user namespaces: not tried
	DeniedRead  string `json:",omitempty"` // a path a deny rule covers, "" if the policy has none
	DeniedWrite string `json:",omitempty"` // a path outside every write rule
	Connect     string `json:",omitempty"` // an address that no rule allows, host:port
}

// Given is a host object that a user opened for the jail.
type Given struct {
	Path     string // absolute, as the kernel names the descriptor
	Dir      bool
	Link     string // target when the object is a symlink, else ""
	ReadOnly bool
	Exec     bool
	Own      bool // of this jail alone: the caller's, not the system's
	Overlay  bool // read from the host, written to the session's layer; a directory
	Room     bool // directories of the home on the way to it are the agent's, as if it had made them
}

// Input is what Compile needs to know.
type Input struct {
	Session   string
	Name      string // the host name is made from it
	Build     string
	UID, GID  int
	User      string // login name inside
	Home      string
	Given     []Given // a descriptor each, in this order, except symlinks
	Private   []string
	Tmp       uint64 // bytes for /tmp, /var/tmp and /dev/shm each; 0 = DefaultTmp
	OpenFiles uint64
	Devices   []string // present devices below /dev, each with a descriptor
	System    []Given  // further binds made by the helper
	HomeBind  bool     // there is a descriptor for the home layer
	Covers    []string // directories of which only what is mounted below is shown
	Hint      string   // what agents are told about the jail, see HintPath; "" = nothing
	Resolver  string   // address of the name server; "" = init, which knows no name
}

// Sizes of private tmpfs, in bytes: of those for which the policy names none, and
// of /run.
const (
	DefaultTmp = 1 << 30
	RunTmp     = 16 << 20
)

// ErrPlan is returned for inputs no mount plan can be made of.
var ErrPlan = errors.New("mount plan")

// ProcMasks are the files and directories of a fresh procfs that tell about the
// host or that only root of the host needs. A missing one is not an error.
var ProcMasks = []string{
	"/proc/acpi", "/proc/asound", "/proc/buddyinfo", "/proc/bus", "/proc/cmdline", "/proc/config.gz", "/proc/diskstats",
	"/proc/dma", "/proc/driver", "/proc/execdomains", "/proc/fs", "/proc/interrupts", "/proc/iomem", "/proc/ioports",
	"/proc/irq", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg", "/proc/kpagecgroup",
	"/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/locks", "/proc/modules", "/proc/mtrr",
	"/proc/pagetypeinfo", "/proc/partitions", "/proc/sched_debug", "/proc/schedstat", "/proc/scsi", "/proc/slabinfo",
	"/proc/softirqs", "/proc/swaps", "/proc/sysrq-trigger", "/proc/sysvipc", "/proc/timer_list", "/proc/timer_stats",
	"/proc/tty", "/proc/vmallocinfo", "/proc/zoneinfo",
}

// What a jail has of ours to see: the program of init, which is the canary of the jail
// check where Canaries.Child says so and `agentos why` in everybody's hands; the socket
// that answers it; and a text for agents.
const (
	ToolPath  = "/run/agentos/bin/agentos"
	WhySocket = "/run/agentos/why.sock"
	HintPath  = "/run/agentos/AGENTS.md"
)

// Bounds, in bytes, of a question at [WhySocket] and of the answer; package jail/why
// says what they are.
const (
	MaxQuestion = 4096 + 16 // PATH_MAX and a word
	MaxAnswer   = 16 << 10
)

// Devices are the character devices a jail has, if the host has them.
var Devices = []string{"full", "null", "random", "tty", "urandom", "zero"}

// Compile makes the mount plan and the Landlock rules of a jail. [Binds] says
// which descriptors go with the two lists of the plan. It is pure.
//
// Errors: [ErrPlan] for paths that are not absolute and clean, or given twice.
func Compile(in Input) (Plan, error) {
	s := Spec{
		Build: in.Build, Session: in.Session, Hostname: hostname(in.Name), UID: in.UID, GID: in.GID,
		Home: in.Home, OpenFiles: in.OpenFiles, Private: in.Private,
	}
	tmp := in.Tmp
	if tmp == 0 {
		tmp = DefaultTmp
	}
	all := []Mount{
		{Kind: Proc, Target: "/proc", Own: true},
		{Kind: Dir, Target: "/dev", Mode: 0o755},
		{Kind: Devpts, Target: "/dev/pts", Own: true},
		{Kind: Tmpfs, Target: "/dev/shm", Size: tmp, Mode: 0o1777, Own: true},
		{Kind: Symlink, Target: "/dev/ptmx", Data: "pts/ptmx"},
		{Kind: Symlink, Target: "/dev/fd", Data: "/proc/self/fd"},
		{Kind: Symlink, Target: "/dev/stdin", Data: "/proc/self/fd/0"},
		{Kind: Symlink, Target: "/dev/stdout", Data: "/proc/self/fd/1"},
		{Kind: Symlink, Target: "/dev/stderr", Data: "/proc/self/fd/2"},
		{Kind: Tmpfs, Target: "/tmp", Size: tmp, Mode: 0o1777, Own: true},
		{Kind: Tmpfs, Target: "/var/tmp", Size: tmp, Mode: 0o1777, Own: true},
		{Kind: Tmpfs, Target: "/run", Size: RunTmp, Mode: 0o755, Own: true},
		{Kind: Dir, Target: fmt.Sprintf("/run/user/%d", in.UID), Mode: 0o700, Agent: true, Own: true},
	}
	if in.Hint != "" {
		all = append(all, Mount{Kind: File, Target: HintPath, Data: in.Hint, Own: true})
	}
	all = append(all, identity(in)...)
	if in.HomeBind {
		all = append(all, Mount{Kind: Bind, Target: in.Home, IsDir: true, Own: true})
	}
	for _, c := range in.Covers {
		all = append(all, Mount{Kind: Tmpfs, Target: c, Size: 1 << 20, Mode: 0o755, Own: true})
	}
	for _, d := range in.Devices {
		all = append(all, Mount{Kind: Bind, Target: "/dev/" + d})
	}
	for _, g := range slices.Concat(in.System, in.Given) {
		if !path.IsAbs(g.Path) || path.Clean(g.Path) != g.Path || g.Path == "/" || strings.ContainsRune(g.Path, 0) {
			return Plan{}, fmt.Errorf("%w: %q is not an absolute clean path below /", ErrPlan, g.Path)
		}
		m := Mount{Kind: Bind, Target: g.Path, IsDir: g.Dir, ReadOnly: g.ReadOnly, Own: g.Own}
		if g.Link != "" {
			m = Mount{Kind: Symlink, Target: g.Path, Data: g.Link, Own: g.Own}
		}
		if g.Overlay {
			m = Mount{Kind: Overlay, Target: g.Path, IsDir: true, Own: true}
		}
		all = append(all, m)
	}
	all, err := order(append(all, rooms(in)...))
	if err != nil {
		return Plan{}, err
	}
	s.Allow = allow(in, all)
	var tree []Mount
	tree, s.Mounts = split(all)
	return Plan{Tree: tree, Spec: s}, nil
}

// rooms are the directories of the home layer on the way to what has Room: a kept
// ~/.cache/pip must not make ~/.cache another's. Those on the way to the workspace
// stay init's: what the agent wrote beside it would be lost without a word.
func rooms(in Input) []Mount {
	given := slices.Concat(in.System, in.Given)
	var out []Mount
	for _, g := range given {
		rest, below := strings.CutPrefix(g.Path, in.Home+"/")
		if !g.Room || !below || !in.HomeBind {
			continue
		}
		dir := in.Home
		names := strings.Split(rest, "/")
		for _, name := range names[:len(names)-1] {
			dir += "/" + name
			if slices.ContainsFunc(given, func(o Given) bool { return o.Path == dir }) {
				break // what is mounted there has its own
			}
			if !slices.ContainsFunc(out, func(m Mount) bool { return m.Target == dir }) {
				out = append(out, Mount{Kind: Dir, Target: dir, Mode: 0o755, Agent: true, Own: true})
			}
		}
	}
	return out
}

// split parts an ordered plan into what jails share and what one has of its own.
// What lies below something of its own is its own; the shared tree, which is
// read-only, has a place for each.
func split(all []Mount) (tree, own []Mount) {
	var tops []string
	for _, m := range all {
		if slices.ContainsFunc(tops, func(t string) bool { return strings.HasPrefix(m.Target, t+"/") }) {
			own = append(own, m)
			continue
		}
		if !m.Own {
			tree = append(tree, m)
			continue
		}
		switch m.Kind {
		case Symlink: // nothing can be mounted there
			tree = append(tree, m)
			continue
		case Dir:
			tree = append(tree, Mount{Kind: Dir, Target: m.Target, Mode: m.Mode, Agent: m.Agent})
			continue
		}
		tops = append(tops, m.Target)
		tree = append(tree, Mount{Kind: Point, Target: m.Target, IsDir: m.IsDir || m.Kind != Bind})
		own = append(own, m)
	}
	return tree, own
}

// order sorts by path, parents first, drops synthesised entries that a given
// one replaces, and refuses two entries for one target.
func order(in []Mount) ([]Mount, error) {
	slices.SortStableFunc(in, func(a, b Mount) int { return strings.Compare(a.Target+"/", b.Target+"/") })
	out := in[:0]
	for _, m := range in {
		if n := len(out); n > 0 && out[n-1].Target == m.Target {
			switch {
			case out[n-1].Kind == File: // ours stays: identity files are synthesised
			case m.Kind == File:
				out[n-1] = m
			default:
				return nil, fmt.Errorf("%w: two entries for %s", ErrPlan, m.Target)
			}
			continue
		}
		out = append(out, m)
	}
	return out, nil
}

// identity are the files that name the jail's users and network.
func identity(in Input) []Mount {
	user := in.User
	if user == "" {
		user = "agent"
	}
	passwd := fmt.Sprintf("root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n%s:x:%d:%d:%s:%s:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		user, in.UID, in.GID, user, in.Home)
	group := fmt.Sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", user, in.GID)
	host := hostname(in.Name)
	resolver := "127.0.0.53\noptions timeout:1 attempts:1"
	if in.Resolver != "" {
		resolver = in.Resolver + "\noptions timeout:5 attempts:2"
	}
	return []Mount{
		{Kind: File, Target: "/etc/group", Data: group},
		{Kind: File, Target: "/etc/hostname", Data: host + "\n"},
		{Kind: File, Target: "/etc/hosts", Data: "127.0.0.1 localhost " + host + "\n::1 localhost ip6-localhost ip6-loopback\n"},
		{Kind: File, Target: "/etc/machine-id", Data: ""},
		{Kind: File, Target: "/etc/nsswitch.conf", Data: "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n"},
		{Kind: File, Target: "/etc/passwd", Data: passwd},
		{Kind: File, Target: "/etc/resolv.conf", Data: "nameserver " + resolver + "\n"},
	}
}

// allow derives the Landlock rules: what is mounted writable may be written,
// everything may be read; what an entry may execute its Given says. Rules of
// one jail add up, so what a rule above gives already needs none of its own.
func allow(in Input, mounts []Mount) []Allow {
	all := []Allow{
		{Path: "/", List: true}, // what is mounted may be seen
		{Path: "/proc", Write: true},
		{Path: "/dev", Write: true},
		{Path: "/etc"},
		{Path: "/run", Write: true, Exec: true},
		{Path: "/tmp", Write: true, Exec: true},
		{Path: "/var/tmp", Write: true, Exec: true},
	}
	if in.HomeBind {
		all = append(all, Allow{Path: in.Home, Write: true, Exec: true})
	}
	for _, g := range slices.Concat(in.System, in.Given) {
		if g.Link == "" && !replaced(g.Path, mounts) {
			all = append(all, Allow{Path: g.Path, Write: !g.ReadOnly, Exec: g.Exec, File: !g.Dir})
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(a Allow) bool {
		return slices.ContainsFunc(all, func(above Allow) bool { return above.gives(a) })
	})
}

// gives reports whether a, which is about a directory above b's path, has all
// of b's rights.
func (a Allow) gives(b Allow) bool {
	return !a.List && !a.File && strings.HasPrefix(b.Path, a.Path+"/") && (a.Write || !b.Write) && (a.Exec || !b.Exec)
}

func replaced(target string, mounts []Mount) bool {
	for _, m := range mounts {
		if m.Target == target {
			return m.Kind == File
		}
	}
	return false
}

// hostname makes a valid host name of a session name.
func hostname(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		default:
			b.WriteByte('-')
		}
		if b.Len() == 63 {
			break
		}
	}
	h := strings.Trim(b.String(), "-")
	if h == "" {
		return "jail"
	}
	return h
}
