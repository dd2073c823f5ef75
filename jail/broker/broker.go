package broker

import "github.com/agentos/agentos/audit/event"

// Operation bits of an [Answer], and the index of the deciding rule in
// Answer.Rule. They are those of policy/glob.
const (
	opRead = iota
	opWrite
	opExec
	opSee

	canRead  = 1 << opRead
	canWrite = 1 << opWrite
	canExec  = 1 << opExec
	canSee   = 1 << opSee // the name may be listed and looked up

	noRule   = 0xffff // glob.NoRule
	someRule = 0xfffe // glob.SomeRule
)

// Answer says what the rules allow on one path: bit n of Bits set means that
// operation n (read, write, exec, see) is allowed, Rule[n] is the index of the rule
// that decided it, 0xffff if none did. It is laid out like glob.Accept.
type Answer struct {
	Bits uint8
	Rule [8]uint16
}

// Source gives each call the rules that it is judged by, the same ones from its
// beginning to its end, while others may be put in their place. Both methods must
// be safe for concurrent use, and cheap.
type Source interface {
	// Enter answers the rules that hold now; nil refuses everything. They may be
	// used until they are given to Leave.
	Enter() Rules
	// Leave says that a call is over. One that waits for others (a FIFO, a lease)
	// was judged when it began and has left.
	Leave(Rules)
}

// Only is a source of rules that never change.
func Only(r Rules) Source { return only{r} }

type only struct{ Rules }

func (o only) Enter() Rules { return o.Rules }
func (o only) Leave(Rules)  {}

// Rules is what the broker needs of a rule set. Paths are absolute and clean, as
// the kernel prints them, "/" for the root. Implementations must be safe for
// concurrent use and must not keep the string: its bytes are reused.
type Rules interface {
	// Match decides one path.
	Match(path string) Answer
	// Shows reports whether a path and every directory above it may be seen.
	Shows(path string) bool
	// NoGain reports whether a directory may move from one name to another
	// without any path below it gaining an access that it lacked.
	NoGain(from, to string) bool
	// Text is how events name rule i, or, for 0xffff, that no one rule decided. It
	// is asked after Leave, too.
	Text(i uint16) string
}

// Linked is what a jail came to know of files with several names; package opens has one. It
// must be safe for concurrent use.
type Linked interface {
	Some() bool
	// Met notes the name of a file with several, which was refused.
	Met(dev, ino uint64, name []byte)
	// Refused reports whether a file has a known name that allows says no to.
	Refused(dev, ino uint64, allows func(name string) bool) bool
}

// Audit levels of [Config.Audit]. Denials are always reported.
const (
	AuditAll     = "all"     // every decision
	AuditChanges = "changes" // whatever changes the tree
	AuditDenied  = "denied"  // denials only
)

// Config is the blueprint of a broker. The zero value of every rule-like field
// refuses.
type Config struct {
	Listener int               // descriptor of the seccomp listener; stays the caller's
	Rules    Source            // nil refuses everything
	UID, GID int               // of the agent, in init's user namespace
	Groups   []int             // supplementary groups of the agent
	Emit     func(event.Event) // cheap, safe for concurrent use; nil drops
	Audit    string            // one of the Audit constants; "" is AuditDenied
	Sockets  bool              // answer connect and bind, see [Notified]
	Unix     []string          // host sockets that may be connected to, absolute paths
	Private  []string          // trees that exist in this jail only; sockets there may be used
	Workers  int               // threads; 0 chooses

	// Linked is what is known of files with several names, shared with whoever else
	// decides opens; nil: each name is judged by itself.
	Linked Linked

	// Hide says that rules may hide names: the filter must send the calls of [Looks], too,
	// and all of open and openat.
	Hide bool
	// Kernel says that the kernel decides all but what is hidden: only the calls of [Looks] and
	// [LooksInKernel] are answered.
	Kernel bool
}

// Notified names the calls that the filter of the jail must send to the broker,
// those of other architectures included: read only.
//
// The filter must be loaded with SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: without
// it a signal makes a call that was carried out run a second time.
var Notified = append([]string{
	"open", "openat", "openat2", "creat",
	"rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat",
	"mkdir", "mkdirat", "mknod", "mknodat", "unlink", "unlinkat", "rmdir",
	"truncate", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat",
	"utime", "utimes", "futimesat", "utimensat",
	"getxattr", "lgetxattr", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
	"inotify_add_watch",
}, Sockets...)

// Sockets is the part of Notified that may be left out when [Config].Sockets is
// false: read only.
var Sockets = []string{"bind", "connect"}

// Refused names calls that no jail is allowed and that tell of an attempt to get out of one: the filter may send their refusals here
// (seccomp.Spec.Report), so that they are recorded. They are refused with EPERM, whoever asks. Not here is what ordinary programs try at their
// start (io_uring_setup, keyctl): its refusal is no news. Read only.
var Refused = []string{
	"mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "mount_setattr", "fsopen", "setns", "unshare", "open_by_handle_at",
	"bpf", "perf_event_open", "userfaultfd", "init_module", "finit_module", "delete_module", "kexec_load",
	"fanotify_init", "pidfd_getfd", "reboot", "clock_settime",
}
