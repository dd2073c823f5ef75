package hook

import (
	"errors"
	"log/slog"
)

// Tier says which kernel mechanism carries the file rules here. The zero value is none.
type Tier uint8

// Tiers, from the weakest.
const (
	TierD Tier = iota // no BPF
	TierC             // no trampolines: tracepoints and cgroup hooks only
	TierB             // fmod_ret on security_*
	TierA             // BPF LSM
)

// String is the letter of the tier.
func (t Tier) String() string { return string("DCBA"[min(int(t), 3)]) }

// Features says what loads on this machine and why nothing better does. It is what
// loads, not what works: see [Hook.Canary].
type Features struct {
	Tier       Tier
	Why        []string // one sentence per tier that was ruled out
	LSM        bool     // BPF LSM programs load
	ModReturn  bool     // fmod_ret programs load
	Trace      bool     // tp_btf programs load
	Cgroup     bool     // cgroup socket programs load
	Storage    bool     // task storage
	ActiveLSM  bool     // bpf is listed in /sys/kernel/security/lsm
	Preemption string   // none, voluntary, full, lazy, or unknown
	BPFFS      bool     // a bpf file system is mounted at [DefaultPinDir]'s parent
}

// Audit says which allowed file operations are recorded. Denied ones always are.
type Audit uint8

// Audit levels. Opens cost most; exec, fork, exit and sockets are always recorded.
const (
	AuditDenied  Audit = iota // nothing that was allowed
	AuditChanges              // what writes, creates, renames, removes
	AuditAll                  // every open as well
)

// Jail is what the kernel needs to know about one jail.
type Jail struct {
	ID       uint32 // not 0, unique among live jails
	CgroupID uint64 // kernfs id (inode number) of its cgroup v2 directory, below [Options.Group]
	Rules    []byte // automaton blob, glob.Automaton.Bytes
	Audit    Audit
	Enforce  bool // false: record what would be denied, deny nothing
	// Strict also denies what cannot be judged (a path outside the mount namespace) or
	// not be recorded (a full ring). Not strict allows it and marks the record.
	Strict bool
	// Opens records opens on tier C at the end of the system call: for a jail whose
	// files no broker serves. It costs every system call of the machine about 100 ns.
	Opens bool
	// Reads says that on tier C opens for reading are decided by fanotify events and all others by
	// a broker, which records them. Then Opens is about the former, an open that finds
	// nothing is an allowed event with errno ENOENT, and a denied FIFO kills its reader.
	// The cost is that of Opens.
	Reads bool
	// Setup trusts all tasks of the jail, unrecorded, until [Hook.Start]: while init builds
	// the view, mounts and all.
	Setup bool
	// RuleText names rule i of Rules for events; nil leaves Event.Rule empty.
	RuleText func(i uint16) string
}

// Stats counts what the kernel saw of one jail since it was added.
type Stats struct {
	Attempted  uint64 // records, kept or lost
	Lost       uint64
	Denied     uint64
	FailClosed uint64 // denials because something could not be judged
	Retries    uint64 // path walks repeated because of a rename
}

// DefaultPinDir is where programs, links and maps are pinned.
const DefaultPinDir = "/sys/fs/bpf/agentos"

// Options of [Install], [Open] and [Load]. The zero value works for root on a usual host.
type Options struct {
	PinDir string // default [DefaultPinDir]; its parent is mounted if it is no bpf file system
	// Group is the cgroup v2 directory that holds all jails; default: "agentos" below the
	// first cgroup2 mount. Made if missing.
	Group  string
	Tier   Tier         // at most this tier; 0 = the best that loads
	Logger *slog.Logger // nil: silent
	// Executable is a program that calls [Attempt] first thing, usually "/proc/self/exe":
	// [Load] then runs [Install] in a short-lived child of it. "" = in this process.
	Executable string
	// CritBytes and BulkBytes size the two rings of a jail: powers of two, at least a
	// page. Defaults 128 KiB and 256 KiB; both count as memory of the reading process.
	CritBytes, BulkBytes int
	// HighWater is called from [Hook.Read] with full when a ring of the jail is over half
	// full, and with !full once it is below an eighth. The caller freezes and thaws.
	HighWater func(jail uint32, full bool)
}

// Errors. Match with errors.Is.
var (
	ErrTier   = errors.New("not possible on this kernel")
	ErrFull   = errors.New("too many jails")
	ErrNoJail = errors.New("no such jail")
	ErrOther  = errors.New("jails of another version are running")
)
