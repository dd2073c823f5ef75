package seccomp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Default is the name of the only built-in profile.
const Default = "default"

// Spec says what a filter answers. The zero Spec is the default profile.
type Spec struct {
	Profile string   `json:"profile,omitempty"` // "" or [Default]
	Allow   []string `json:"allow,omitempty"`   // names of calls that the profile refuses and the policy wants
	Deny    []string `json:"deny,omitempty"`    // names of calls answered with EPERM, over everything else
	Notify  []string `json:"notify,omitempty"`  // names of calls that the broker answers, where they are not denied

	// Changes restricts Notify for open and openat to calls that may create, write or cut a
	// file: the kernel asks somebody else about the rest.
	Changes bool `json:"changes,omitempty"`

	// Report are names of calls that the broker refuses in the filter's place, so that it can say so: those that the
	// profile refuses with EPERM whatever their arguments, and unshare. Elsewhere, and for others, it changes nothing.
	Report []string `json:"report,omitempty"`

	// Userns permits new user, pid and network namespaces by clone and unshare,
	// which browsers want for their own confinement. It opens much kernel code
	// that checks capabilities in the caller's user namespace.
	Userns bool `json:"userns,omitempty"`
}

// Program is a filter: an array of struct sock_filter (8 bytes each: u16 code,
// u8 jt, u8 jf, u32 k) in the byte order of the machine.
type Program []byte

// Len is the number of instructions.
func (p Program) Len() int { return len(p) / 8 }

var (
	// ErrUnknownCall reports a name that is no system call on any architecture.
	ErrUnknownCall = errors.New("unknown system call")
	// ErrNever reports that a policy may not allow this call.
	ErrNever = errors.New("no policy may allow it: it would open the jail")
	// ErrChecked reports a call that cannot be asked about because the filter
	// decides on its arguments.
	ErrChecked = errors.New("the filter decides on its arguments")
	// ErrEssential reports a call without which no program starts.
	ErrEssential = errors.New("no program can start without it")
	// ErrUnknownProfile reports a profile that does not exist.
	ErrUnknownProfile = errors.New("unknown profile")
)

// Error is a mistake in a [Spec].
type Error struct {
	Op   string // "allow", "deny", "notify" or "profile"
	Name string // the word that is wrong
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Name, e.Err) }

// Unwrap returns the reason, one of the errors of this package.
func (e *Error) Unwrap() error { return e.Err }

// Hash is the SHA-256 of a program in hex: the name under which a receipt
// records it.
func Hash(p Program) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

// Key is equal for specs that mean the same program in one build of AgentOS.
func (s Spec) Key() string {
	s.Allow, s.Deny, s.Notify, s.Report = set(s.Allow), set(s.Deny), set(s.Notify), set(s.Report)
	if s.Profile == "" {
		s.Profile = Default
	}
	blob, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and booleans marshal
	}
	sum := sha256.Sum256(blob)
	return hex.EncodeToString(sum[:])
}

// set returns names sorted and without repetitions.
func set(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}

// cacheSize bounds a [Cache]: users choose specs, so keys are not trusted.
const cacheSize = 64

// Cache remembers built programs by [Spec.Key]. The zero Cache is ready; it
// may be used from several goroutines.
type Cache struct {
	mu       sync.Mutex
	programs map[string]Program
}

// Build is [Build] with memory. The program is shared: do not write to it.
func (c *Cache) Build(s Spec) (Program, error) {
	key := s.Key()
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.programs[key]; ok {
		return p, nil
	}
	p, err := Build(s)
	if err != nil {
		return nil, err
	}
	if c.programs == nil || len(c.programs) >= cacheSize {
		c.programs = make(map[string]Program)
	}
	c.programs[key] = p
	return p, nil
}
