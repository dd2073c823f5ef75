package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/bpf"
)

// family is one object of package bpf and where it belongs.
type family struct {
	name  string
	tiers string // letters of the tiers that load it
	load  func() (*ebpf.CollectionSpec, error)
}

var objects = []family{
	{"trace", "ABC", bpf.LoadTrace},
	{"net", "ABC", bpf.LoadNet},
	{"owner", "ABC", bpf.LoadOwner},
	{"files", "AB", bpf.LoadFiles},
	{"guard", "AB", bpf.LoadGuard},
	{"attr", "AB", bpf.LoadAttr},
}

// onDemand programs are loaded and pinned, but attached only while a jail asks.
const onDemand = "trace_open"

func (o Options) defaults() (Options, error) {
	if o.PinDir == "" {
		o.PinDir = DefaultPinDir
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CritBytes == 0 {
		o.CritBytes = 128 << 10
	}
	if o.BulkBytes == 0 {
		o.BulkBytes = 256 << 10
	}
	if o.Group == "" {
		mount, err := cgroup2Mount()
		if err != nil {
			return o, err
		}
		o.Group = filepath.Join(mount, "agentos")
	}
	return o, nil
}

func cgroup2Mount() (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup2 mount: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if ok && strings.HasPrefix(right, "cgroup2 ") && len(f) > 4 {
			return f[4], nil
		}
	}
	return "", fmt.Errorf("find cgroup2 mount: %w", fs.ErrNotExist)
}

// versionDir holds the pins of this version of the programs.
func (o Options) versionDir() string { return filepath.Join(o.PinDir, bpf.Version()) }

// Install makes sure that the programs of this version are loaded, pinned and attached,
// and answers with what it chose. When they are already, it changes nothing.
//
// Errors: [ErrTier] when nothing of use loads here, [ErrOther] when jails are running
// under programs of another version. Needs root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN,
// CAP_SYS_ADMIN).
func Install(o Options) (Features, error) {
	o, err := o.defaults()
	if err != nil {
		return Features{}, err
	}
	if err := mountBPFFS(filepath.Dir(o.PinDir), o.Logger); err != nil {
		return Features{}, err
	}
	types := btf.NewCache()
	f, err := probe(types)
	if err != nil {
		return f, err
	}
	if o.Tier != 0 && f.Tier > o.Tier {
		f.Tier = o.Tier
		f.Why = append(f.Why, "tier "+o.Tier.String()+" was asked for")
	}
	if f.Tier < TierC {
		return f, fmt.Errorf("load kernel programs: %w: %s", ErrTier, strings.Join(f.Why, "; "))
	}
	if m, err := readMachine(o.versionDir()); err == nil && m.Ready != 0 && Tier(m.Tier) == f.Tier {
		return f, nil
	}
	if err := removeOthers(o); err != nil {
		return f, err
	}
	if err := install(o, f.Tier, types); err != nil {
		os.RemoveAll(o.versionDir())
		return f, err
	}
	return f, nil
}

func install(o Options, tier Tier, types *btf.Cache) error {
	dir := o.versionDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make pin directory: %w", err)
	}
	if err := os.MkdirAll(o.Group, 0o755); err != nil {
		return fmt.Errorf("make group of all jails: %w", err)
	}
	group, err := os.Open(o.Group)
	if err != nil {
		return fmt.Errorf("open group of all jails: %w", err)
	}
	defer group.Close()
	for _, fam := range objects {
		if !strings.Contains(fam.tiers, tier.String()) {
			continue
		}
		if err := loadFamily(fam, tier, dir, group, types); err != nil {
			return fmt.Errorf("load %s programs: %w", fam.name, err)
		}
	}
	agents, err := ebpf.LoadPinnedMap(filepath.Join(dir, "agents"), nil)
	if err != nil {
		return fmt.Errorf("open map agents: %w", err)
	}
	defer agents.Close()
	if err := agents.Put(uint32(0), uint32(group.Fd())); err != nil {
		return fmt.Errorf("set group of all jails: %w", err)
	}
	return writeMachine(dir, bpf.TraceMachine{Tier: uint32(tier), Ready: 1})
}

func loadFamily(fam family, tier Tier, dir string, group *os.File, types *btf.Cache) error {
	spec, err := fam.load()
	if err != nil {
		return err
	}
	if err := adapt(spec, tier, types); err != nil {
		return err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: dir}, Cache: types})
	if err != nil {
		return plain(err)
	}
	defer coll.Close()
	for name, prog := range coll.Programs {
		if name == onDemand {
			if err := prog.Pin(filepath.Join(dir, "prog_"+name)); err != nil {
				return fmt.Errorf("pin %s: %w", name, err)
			}
			continue
		}
		if err := attach(prog, spec.Programs[name], filepath.Join(dir, "link_"+name), group); err != nil {
			return fmt.Errorf("attach %s: %w", name, err)
		}
	}
	return nil
}

// adapt turns LSM programs into fmod_ret ones on tier B, and drops hooks that this
// kernel does not have.
func adapt(spec *ebpf.CollectionSpec, tier Tier, types *btf.Cache) error {
	kernel, err := types.Kernel()
	if err != nil {
		return fmt.Errorf("read kernel types: %w", err)
	}
	var cast *btf.Func
	if v := spec.Variables["typed"]; v != nil && kernel.TypeByName("bpf_rdonly_cast", &cast) == nil {
		if err := v.Set(true); err != nil {
			return fmt.Errorf("choose typed loads: %w", err)
		}
	}
	if err := adaptAttributes(spec, tier, kernel); err != nil {
		return err
	}
	for name, p := range spec.Programs {
		if p.Type != ebpf.LSM {
			continue
		}
		hook, prefix := p.AttachTo, "bpf_lsm_"
		if tier == TierB {
			prefix = "security_"
			if hook == "bprm_check_security" {
				hook = "bprm_check"
			}
			p.Type, p.AttachType, p.AttachTo = ebpf.Tracing, ebpf.AttachModifyReturn, prefix+hook
		}
		var fn *btf.Func
		if err := kernel.TypeByName(prefix+hook, &fn); err != nil {
			if !optional[hook] {
				return fmt.Errorf("hook %s: %w", hook, ErrTier)
			}
			delete(spec.Programs, name)
		}
	}
	return nil
}

// lookups are what getxattr finds its name by, newest kernel first, and a function that only such a
// kernel has: fs/xattr.c of 6.13, of older ones, of 6.12.
var lookups = []struct{ program, sign string }{
	{"note_path_613", "path_getxattrat"},
	{"note_path_61", "user_path_at_empty"},
	{"note_path_612", "user_path_at"},
}

// adaptAttributes keeps those programs of bpf/attr.c that fit this kernel.
func adaptAttributes(spec *ebpf.CollectionSpec, tier Tier, kernel *btf.Spec) error {
	if spec.Programs["check_setattr"] == nil {
		return nil
	}
	name, other := "bpf_lsm_inode_setattr", "check_setattr_mapped"
	if tier == TierB {
		name = "security_inode_setattr"
	}
	var fn *btf.Func
	if err := kernel.TypeByName(name, &fn); err != nil {
		return fmt.Errorf("hook %s: %w", name, ErrTier)
	}
	if proto, ok := fn.Type.(*btf.FuncProto); ok && len(proto.Params) == 3 {
		other = "check_setattr"
	}
	delete(spec.Programs, other)
	kept := ""
	for _, l := range lookups {
		if kept == "" && kernel.TypeByName(l.sign, &fn) == nil {
			kept = l.program
			continue
		}
		delete(spec.Programs, l.program)
	}
	if kept == "" {
		return fmt.Errorf("what getxattr looks names up by: %w", ErrTier)
	}
	return nil
}

// optional hooks are younger than 6.1; older kernels reach the object another way.
var optional = map[string]bool{"file_truncate": true, "inode_set_acl": true, "inode_remove_acl": true}

func attach(prog *ebpf.Program, spec *ebpf.ProgramSpec, pin string, group *os.File) error {
	var (
		l   link.Link
		err error
	)
	switch spec.Type {
	case ebpf.LSM:
		l, err = link.AttachLSM(link.LSMOptions{Program: prog})
	case ebpf.Tracing:
		l, err = link.AttachTracing(link.TracingOptions{Program: prog})
	case ebpf.CGroupSockAddr, ebpf.CGroupSock, ebpf.CGroupSKB, ebpf.SockOps:
		l, err = link.AttachCgroup(link.CgroupOptions{Path: group.Name(), Attach: spec.AttachType, Program: prog})
	default:
		err = fmt.Errorf("program type %s: %w", spec.Type, errors.ErrUnsupported)
	}
	if err != nil {
		return plain(err)
	}
	defer l.Close()
	if err := l.Pin(pin); err != nil {
		return fmt.Errorf("pin link: %w", err)
	}
	return nil
}

// removeOthers drops pins of other versions and of interrupted installations, unless
// jails run under them.
func removeOthers(o Options) error {
	entries, err := os.ReadDir(o.PinDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read pin directory: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(o.PinDir, e.Name())
		if used(dir) {
			return fmt.Errorf("replace programs in %s: %w", dir, ErrOther)
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove old pins: %w", err)
		}
	}
	return nil
}

// used says whether a jail is registered in the set of maps pinned in dir.
func used(dir string) bool {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "jails"), nil)
	if err != nil {
		return false
	}
	defer m.Close()
	var key uint64
	return m.NextKey(nil, &key) == nil
}

// Unpin removes every pin: with the last reference gone the kernel detaches and frees
// everything. Jails that are running lose their enforcement: only for uninstalling,
// tests, and when no jail is left.
func Unpin(o Options) error {
	o, err := o.defaults()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(o.PinDir); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

// mountBPFFS mounts a bpf file system at dir unless there is one.
func mountBPFFS(dir string, log *slog.Logger) error {
	for d := dir; ; d = filepath.Dir(d) {
		if isBPFFS(d) {
			return nil
		}
		if d == "/" || d == "." {
			break
		}
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpf file system at %s: %w", dir, err)
	}
	log.Info("mounted bpf file system", "path", dir)
	return nil
}

func readMachine(dir string) (bpf.TraceMachine, error) {
	var v bpf.TraceMachine
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "machines"), nil)
	if err != nil {
		return v, fmt.Errorf("open map machines: %w", err)
	}
	defer m.Close()
	return v, m.Lookup(uint32(0), &v)
}

func writeMachine(dir string, v bpf.TraceMachine) error {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "machines"), nil)
	if err != nil {
		return fmt.Errorf("open map machines: %w", err)
	}
	defer m.Close()
	return m.Put(uint32(0), v)
}
