package posture

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Posture is how one process is confined. Ids are those of the reader's user
// namespace.
type Posture struct {
	Pid         int
	Name        string     // the kernel's short name, chosen by the process: do not print raw
	UIDs, GIDs  [4]uint32  // real, effective, saved, file system
	Groups      []uint32   // supplementary
	UIDMap      []IDRange  // of its user namespace
	GIDMap      []IDRange  //
	Caps        Caps       // in its user namespace
	NoNewPrivs  bool       //
	Seccomp     int        // 0 none, 1 strict, 2 filter
	Filters     int        // how many seccomp filters
	Tracer      int        // pid of the tracer, 0 if none
	Namespaces  Namespaces //
	FDs         []FD       // ascending
	Limits      map[string]Limit
	Cgroups     map[string]string // v1 controller -> path; "" -> path on v2
	Mounts      []Mount           // in the order in which they were made
	OOMScoreAdj int
	Owner       uint32 // uid that owns /proc/PID: not the effective uid when the process is not dumpable
}

// Caps are the five capability sets, one bit per capability (capabilities(7)).
type Caps struct{ Inheritable, Permitted, Effective, Bounding, Ambient uint64 }

// Namespaces maps a name as in /proc/PID/ns ("mnt", "pid_for_children") to the
// inode that identifies the namespace.
type Namespaces map[string]uint64

// IDRange is one line of uid_map or gid_map.
type IDRange struct{ Inside, Outside, Count uint32 }

// FD is one open descriptor.
type FD struct {
	N      int
	Target string // as readlink says: a path, "socket:[12]", "anon_inode:..."
	Exec   bool   // survives execve
}

// Limit is one resource limit; Unlimited is its largest value.
type Limit struct{ Soft, Hard uint64 }

// Unlimited is RLIM_INFINITY.
const Unlimited = ^uint64(0)

// Mount is one line of mountinfo.
type Mount struct {
	Point, Root, Type, Source string
	Options                   []string // of the mount: "ro", "nosuid", ...
	Super                     []string // of the file system
}

// Has reports whether the mount has an option.
func (m Mount) Has(option string) bool {
	for _, o := range m.Options {
		if o == option {
			return true
		}
	}
	return false
}

// errLine reports a file that does not look as the kernel writes it.
var errLine = errors.New("unexpected line")

// parseStatus reads /proc/PID/status into p.
func (p *Posture) parseStatus(data []byte) error {
	for line := range strings.Lines(string(data)) {
		key, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if !ok {
			continue
		}
		if err := p.status(key, strings.TrimSpace(rest)); err != nil {
			return fmt.Errorf("parse status: %s: %w", key, err)
		}
	}
	return nil
}

func (p *Posture) status(key, rest string) (err error) {
	number := func() int {
		var n int
		n, err = strconv.Atoi(rest)
		return n
	}
	hex := func() uint64 {
		var n uint64
		n, err = strconv.ParseUint(rest, 16, 64)
		return n
	}
	switch key {
	case "Name":
		p.Name = rest
	case "Pid":
		p.Pid = number()
	case "TracerPid":
		p.Tracer = number()
	case "Uid":
		err = four(&p.UIDs, rest)
	case "Gid":
		err = four(&p.GIDs, rest)
	case "Groups":
		p.Groups, err = ids(rest)
	case "CapInh":
		p.Caps.Inheritable = hex()
	case "CapPrm":
		p.Caps.Permitted = hex()
	case "CapEff":
		p.Caps.Effective = hex()
	case "CapBnd":
		p.Caps.Bounding = hex()
	case "CapAmb":
		p.Caps.Ambient = hex()
	case "NoNewPrivs":
		p.NoNewPrivs = rest == "1"
	case "Seccomp":
		p.Seccomp = number()
	case "Seccomp_filters":
		p.Filters = number()
	}
	return err
}

func four(to *[4]uint32, rest string) error {
	list, err := ids(rest)
	if err != nil {
		return err
	}
	if copy(to[:], list) != 4 {
		return errLine
	}
	return nil
}

func ids(rest string) ([]uint32, error) {
	var out []uint32
	for _, word := range strings.Fields(rest) {
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, err
		}
		out = append(out, uint32(n))
	}
	return out, nil
}

// parseMap reads uid_map or gid_map.
func parseMap(data []byte) ([]IDRange, error) {
	var out []IDRange
	for line := range strings.Lines(string(data)) {
		n, err := ids(line)
		if err != nil || len(n) != 3 {
			return nil, fmt.Errorf("parse id map: %w", errLine)
		}
		out = append(out, IDRange{n[0], n[1], n[2]})
	}
	return out, nil
}

// parseLimits reads /proc/PID/limits. Keys are the kernel's words, such as "Max
// open files".
func parseLimits(data []byte) (map[string]Limit, error) {
	out := map[string]Limit{}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "Limit ") {
			continue
		}
		const nameWidth = 26 // fs/proc/base.c, proc_pid_limits
		if len(line) < nameWidth {
			return nil, fmt.Errorf("parse limits: %w", errLine)
		}
		words := strings.Fields(line[nameWidth:])
		if len(words) < 2 {
			return nil, fmt.Errorf("parse limits: %w", errLine)
		}
		soft, err1 := limit(words[0])
		hard, err2 := limit(words[1])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("parse limits: %w", err)
		}
		out[strings.TrimSpace(line[:nameWidth])] = Limit{soft, hard}
	}
	return out, nil
}

func limit(word string) (uint64, error) {
	if word == "unlimited" {
		return Unlimited, nil
	}
	return strconv.ParseUint(word, 10, 64)
}

// parseCgroups reads /proc/PID/cgroup.
func parseCgroups(data []byte) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			out[controller] = parts[2]
		}
	}
	return out
}

// parseMounts reads /proc/PID/mountinfo (proc_pid_mountinfo(5)).
func parseMounts(data []byte) ([]Mount, error) {
	var out []Mount
	for line := range strings.Lines(string(data)) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		head, tail := strings.Split(left, " "), strings.Split(right, " ")
		if !ok || len(head) < 6 || len(tail) < 3 {
			return nil, fmt.Errorf("parse mountinfo: %w", errLine)
		}
		out = append(out, Mount{
			Root: unescape(head[3]), Point: unescape(head[4]), Options: strings.Split(head[5], ","),
			Type: unescape(tail[0]), Source: unescape(tail[1]), Super: strings.Split(tail[2], ","),
		})
	}
	return out, nil
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

// parseNamespace reads the target of a link in /proc/PID/ns: "mnt:[4026531841]".
func parseNamespace(target string) (uint64, error) {
	_, rest, ok := strings.Cut(target, ":[")
	if !ok || !strings.HasSuffix(rest, "]") {
		return 0, fmt.Errorf("parse namespace %q: %w", target, errLine)
	}
	return strconv.ParseUint(strings.TrimSuffix(rest, "]"), 10, 64)
}

// parseCloexec reads the close-on-exec flag out of /proc/PID/fdinfo/N, where
// flags are octal.
func parseCloexec(data []byte) bool {
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "flags:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 8, 64)
			const cloexec = 0o2000000
			return err == nil && n&cloexec != 0
		}
	}
	return false
}
