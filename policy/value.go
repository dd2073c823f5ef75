package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Bytes is a size. Text forms: "4GB", "512 MiB", "1.5GiB", "4096"; kB, MB, GB
// and TB are powers of 1000, KiB, MiB, GiB and TiB powers of 1024.
type Bytes uint64

var errBytes = errors.New(`want a size such as "512MB" (1000s) or "512MiB" (1024s)`)

// ParseBytes reads the text form of a size. Zero, negative and over 2^62 are errors.
func ParseBytes(s string) (Bytes, error) {
	num := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.TrimSpace(s[len(num):])
	scale, ok := unitScale(unit)
	if !ok {
		return 0, fmt.Errorf("unknown unit %q: %w", unit, errBytes)
	}
	if n, err := strconv.ParseUint(num, 10, 62); err == nil { // exact, so that String can be read back
		if n == 0 || n > 1<<62/uint64(scale) {
			return 0, fmt.Errorf("size %q is out of range: %w", s, errBytes)
		}
		return Bytes(n * uint64(scale)), nil
	}
	n, err := parseDecimal(num)
	if err != nil {
		return 0, errBytes
	}
	n *= scale
	if n < 1 || n > 1<<62 {
		return 0, fmt.Errorf("size %q is out of range: %w", s, errBytes)
	}
	return Bytes(n), nil
}

func unitScale(unit string) (float64, bool) {
	switch unit {
	case "", "B":
		return 1, true
	case "kB", "KB", "K", "k":
		return 1e3, true
	case "MB", "M":
		return 1e6, true
	case "GB", "G":
		return 1e9, true
	case "TB", "T":
		return 1e12, true
	case "KiB":
		return 1 << 10, true
	case "MiB":
		return 1 << 20, true
	case "GiB":
		return 1 << 30, true
	case "TiB":
		return 1 << 40, true
	default:
		return 0, false
	}
}

// parseDecimal reads digits with at most one point: no sign, exponent or NaN.
func parseDecimal(s string) (float64, error) {
	if s == "" || strings.Trim(s, "0123456789.") != "" || len(s) > 24 {
		return 0, errors.New("not a number")
	}
	return strconv.ParseFloat(s, 64)
}

// String is the shortest exact text form.
func (b Bytes) String() string {
	units := []struct {
		name  string
		scale Bytes
	}{{"TB", 1e12}, {"TiB", 1 << 40}, {"GB", 1e9}, {"GiB", 1 << 30}, {"MB", 1e6}, {"MiB", 1 << 20}, {"kB", 1e3}, {"KiB", 1 << 10}}
	for _, u := range units {
		if b >= u.scale && b%u.scale == 0 {
			return strconv.FormatUint(uint64(b/u.scale), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(b), 10) + "B"
}

// MarshalText is [Bytes.String].
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText is [ParseBytes], and accepts "0B".
func (b *Bytes) UnmarshalText(t []byte) error {
	if string(t) == "0B" {
		*b = 0
		return nil
	}
	v, err := ParseBytes(string(t))
	if err != nil {
		return err
	}
	*b = v
	return nil
}

// CPU is a limit on processor time, as thousandths: of the whole machine, of
// one processor, or both (the smaller one holds). The zero CPU is no limit.
type CPU struct {
	Machine int // 800 = 80 % of all processors together; 0 = not set
	Cores   int // 1500 = one and a half processors; 0 = not set
}

var errCPU = errors.New(`want "80%" of the whole machine, or a number of processors such as "1.5"`)

// ParseCPU reads "80%", "1.5", or both as "80% 1.5".
func ParseCPU(s string) (CPU, error) {
	var c CPU
	for _, word := range strings.Fields(s) {
		pct := strings.HasSuffix(word, "%")
		n, err := parseDecimal(strings.TrimSuffix(word, "%"))
		if err != nil {
			return CPU{}, errCPU
		}
		switch {
		case pct && n > 0 && n <= 100 && c.Machine == 0:
			c.Machine = max(1, int(math.Round(n*10)))
		case !pct && n >= 0.01 && n <= 65536 && c.Cores == 0:
			c.Cores = int(math.Round(n * 1000))
		default:
			return CPU{}, errCPU
		}
	}
	if c == (CPU{}) {
		return CPU{}, errCPU
	}
	return c, nil
}

// Limit is the limit in processors on a machine that has ncpu of them; 0 is no limit.
func (c CPU) Limit(ncpu int) float64 {
	var limit float64
	if c.Machine > 0 {
		limit = float64(c.Machine) / 1000 * float64(ncpu)
	}
	if cores := float64(c.Cores) / 1000; cores > 0 && (limit == 0 || cores < limit) {
		limit = cores
	}
	return limit
}

// String is the text form; "" for no limit.
func (c CPU) String() string {
	var words []string
	if c.Machine > 0 {
		words = append(words, strconv.FormatFloat(float64(c.Machine)/10, 'f', -1, 64)+"%")
	}
	if c.Cores > 0 {
		words = append(words, strconv.FormatFloat(float64(c.Cores)/1000, 'f', -1, 64))
	}
	return strings.Join(words, " ")
}

// MarshalText is [CPU.String].
func (c CPU) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is [ParseCPU], and accepts "".
func (c *CPU) UnmarshalText(t []byte) error {
	if len(t) == 0 {
		*c = CPU{}
		return nil
	}
	v, err := ParseCPU(string(t))
	if err != nil {
		return err
	}
	*c = v
	return nil
}

// Guarantee names something a machine can or cannot enforce.
type Guarantee string

// Guarantees, for [require].
const (
	DenyGlobs     Guarantee = "deny-globs"      // deny and protect globs hold for files that exist at the start
	DenyGlobsLate Guarantee = "deny-globs-late" // and for those made, renamed or linked later
	AuditRecord   Guarantee = "audit"           // file, process and network events are recorded
	AuditLossless Guarantee = "lossless-audit"  // and none is lost under load
	CgroupMemory  Guarantee = "cgroup-memory"
	CgroupPids    Guarantee = "cgroup-pids"
	CgroupCPU     Guarantee = "cgroup-cpu"
	Landlock      Guarantee = "landlock"
	Seccomp       Guarantee = "seccomp"
	NetworkNone   Guarantee = "network-none" // no packet leaves the jail but through us
	PrivateIDs    Guarantee = "private-ids"  // a uid and gid range no other process has
	BPFLSM        Guarantee = "bpf-lsm"      // decisions are made in the kernel by BPF
)

// Guarantees lists them all, in the order to show them.
func Guarantees() []Guarantee {
	return []Guarantee{
		DenyGlobs, DenyGlobsLate, AuditRecord, AuditLossless, CgroupMemory, CgroupPids,
		CgroupCPU, Landlock, Seccomp, NetworkNone, PrivateIDs, BPFLSM,
	}
}

// Level says what happens when a guarantee cannot be given.
type Level uint8

// Levels, weakest first.
const (
	Ignore   Level = iota // nothing
	Prefer                // start, and report it as missing
	Required              // refuse to start
)

// MarshalText is "ignore", "prefer" or "require".
func (l Level) MarshalText() ([]byte, error) {
	if l > Required {
		return nil, fmt.Errorf("level %d does not exist", l)
	}
	return []byte(l.String()), nil
}

// String is the text form.
func (l Level) String() string {
	return [...]string{"ignore", "prefer", "require"}[min(l, Required)]
}

// UnmarshalText reads the text form.
func (l *Level) UnmarshalText(t []byte) error {
	for v := Ignore; v <= Required; v++ {
		if v.String() == string(t) {
			*l = v
			return nil
		}
	}
	return errors.New(`want "require", "prefer" or "ignore"`)
}

// LayerKind says who wrote a document. The zero kind is invalid.
type LayerKind uint8

// Kinds of layers, top first: an earlier one limits the later ones.
const (
	_       LayerKind = iota
	Org               // /etc/agentos/policy.d, root-owned
	User              // ~/.agentos/policy.toml
	Project           // .agentos/policy.toml of the workspace: untrusted
	Profile           // the policy that was chosen; the only layer that grants
)

// String is "org", "user", "project" or "profile".
func (k LayerKind) String() string {
	return [...]string{"invalid", "org", "user", "project", "profile", "invalid"}[min(k, Profile+1)]
}

// MarshalText is [LayerKind.String].
func (k LayerKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the text form.
func (k *LayerKind) UnmarshalText(t []byte) error {
	for v := Org; v <= Profile; v++ {
		if v.String() == string(t) {
			*k = v
			return nil
		}
	}
	return fmt.Errorf("layer kind %q does not exist", t)
}

// Layer is a document and who wrote it.
type Layer struct {
	Kind LayerKind `json:"kind"`
	Doc  *Document `json:"doc"`
}

// reference is a document that only extends others, in JSON.
type reference struct {
	File        string `json:"file"`
	Version     int    `json:"version"`
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	Extends     []Item `json:"extends,omitzero"`
}

// MarshalJSON is what the fields say. A document that only extends others, which
// most are, does not pay for the reflection on all that it does not have.
func (l Layer) MarshalJSON() ([]byte, error) {
	type plain Layer
	if l.Doc == nil {
		return json.Marshal(plain(l))
	}
	rest := *l.Doc
	r := reference{rest.File, rest.Version, rest.Name, rest.Description, rest.Extends}
	rest.File, rest.Version, rest.Name, rest.Description, rest.Extends = "", 0, "", "", nil
	if !reflect.ValueOf(&rest).Elem().IsZero() {
		return json.Marshal(plain(l))
	}
	return json.Marshal(struct {
		Kind LayerKind `json:"kind"`
		Doc  reference `json:"doc"`
	}{l.Kind, r})
}

// PolicyDocument is what crosses the gate: everything [Resolve] needs. Layers
// name builtin policies that they extend; Builtins is the [BuiltinDigest] of who
// wrote it, so that both sides mean the same ones.
type PolicyDocument struct {
	Layers   []Layer `json:"layers"`
	Vars     Vars    `json:"vars"`
	Builtins string  `json:"builtins"`
}

func (g Guarantee) known() bool {
	for _, k := range Guarantees() {
		if k == g {
			return true
		}
	}
	return false
}
