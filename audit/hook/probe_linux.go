package hook

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Probe finds out what loads on this machine by loading it; it attaches nothing. It
// needs root and parses the kernel's BTF (see [Install] about memory).
func Probe() (Features, error) { return probe(btf.NewCache()) }

// probe shares the parsed types of the kernel with whoever loads afterwards.
func probe(types *btf.Cache) (Features, error) {
	f := Features{Preemption: preemption(), ActiveLSM: lsmActive(), BPFFS: isBPFFS("/sys/fs/bpf")}
	trace := tryLoad(types, ebpf.Tracing, ebpf.AttachTraceRawTp, "sched_process_exec")
	cgroup := tryLoad(types, ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect, "")
	storage := tryStorage()
	lsm := tryLoad(types, ebpf.LSM, ebpf.AttachLSMMac, "file_open")
	mod := tryLoad(types, ebpf.Tracing, ebpf.AttachModifyReturn, "security_file_open")
	f.Trace, f.Cgroup, f.Storage, f.LSM, f.ModReturn = trace == nil, cgroup == nil, storage == nil, lsm == nil, mod == nil

	why := func(format string, args ...any) { f.Why = append(f.Why, fmt.Sprintf(format, args...)) }
	if err := errors.Join(trace, cgroup, storage); err != nil {
		why("tier C needs tracepoint, cgroup and task storage programs: %v", err)
		return f, nil
	}
	f.Tier = TierC
	switch {
	case mod != nil:
		why("tier B needs fmod_ret programs: %v", mod)
	case f.Preemption != "none" && f.Preemption != "voluntary":
		why("tier B is bypassed under %s preemption: boot with preempt=voluntary", f.Preemption)
	default:
		f.Tier = TierB
	}
	switch {
	case lsm != nil:
		why("tier A needs BPF LSM programs: %v", lsm)
	case !f.ActiveLSM:
		why("tier A needs bpf in the kernel's lsm= list")
	default:
		f.Tier = TierA
	}
	return f, nil
}

func tryLoad(types *btf.Cache, t ebpf.ProgramType, a ebpf.AttachType, to string) error {
	result := int32(0)
	if t == ebpf.CGroupSockAddr {
		result = 1
	}
	spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"probe": {
		Name: "probe", Type: t, AttachType: a, AttachTo: to, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, result), asm.Return()},
	}}}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return plain(err)
	}
	c.Close()
	return nil
}

func tryStorage() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.TaskStorage, Flags: unix.BPF_F_NO_PREALLOC, KeySize: 4, ValueSize: 4,
		Key: &btf.Int{Size: 4}, Value: &btf.Int{Size: 4},
	})
	if err != nil {
		return plain(err)
	}
	return m.Close()
}

// plain drops the library's advice to raise RLIMIT_MEMLOCK: since 5.11 that limit is
// not used, and EPERM means that the platform refuses.
func plain(err error) error {
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) && len(verifier.Log) > 0 {
		return fmt.Errorf("%w\n%s", err, strings.Join(verifier.Log[max(0, len(verifier.Log)-30):], "\n"))
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the kernel refuses to load it: %w", unix.EPERM)
	}
	return err
}

func lsmActive() bool {
	b, err := os.ReadFile("/sys/kernel/security/lsm")
	if err != nil { // securityfs may be unmounted: look without mounting it anywhere
		b, _ = readDetached("securityfs", "lsm")
	}
	return slices.Contains(strings.Split(strings.TrimSpace(string(b)), ","), "bpf")
}

// preemption is the kernel's preemption model now.
func preemption() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	version := unix.ByteSliceToString(u.Version[:])
	switch {
	case strings.Contains(version, "PREEMPT_RT"):
		return "full"
	case !strings.Contains(version, "PREEMPT"):
		return "voluntary" // or none: the same to us
	case !strings.Contains(version, "PREEMPT_DYNAMIC"):
		return "full"
	}
	b, err := os.ReadFile("/sys/kernel/debug/sched/preempt")
	if err != nil {
		b, err = readDetached("debugfs", "sched/preempt")
	}
	if err == nil { // "none voluntary (full)"
		if _, rest, ok := strings.Cut(string(b), "("); ok {
			model, _, _ := strings.Cut(rest, ")")
			return model
		}
	}
	cmdline, _ := os.ReadFile("/proc/cmdline")
	model := "unknown"
	for word := range strings.FieldsSeq(string(cmdline)) {
		if m, ok := strings.CutPrefix(word, "preempt="); ok {
			model = m
		}
	}
	if model == "unknown" {
		model = configuredPreemption(unix.ByteSliceToString(u.Release[:]))
	}
	return model
}

func configuredPreemption(release string) string {
	var r io.Reader
	if b, err := os.ReadFile("/proc/config.gz"); err == nil {
		if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
			r = z
		}
	} else if b, err := os.ReadFile("/boot/config-" + release); err == nil {
		r = bytes.NewReader(b)
	}
	if r == nil {
		return "unknown"
	}
	for s := bufio.NewScanner(r); s.Scan(); {
		switch s.Text() {
		case "CONFIG_PREEMPT_NONE=y":
			return "none"
		case "CONFIG_PREEMPT_VOLUNTARY=y":
			return "voluntary"
		case "CONFIG_PREEMPT=y":
			return "full"
		case "CONFIG_PREEMPT_LAZY=y":
			return "lazy"
		}
	}
	return "unknown"
}

// readDetached reads a file of a pseudo file system that is mounted nowhere.
func readDetached(fs, path string) ([]byte, error) {
	ctx, err := unix.Fsopen(fs, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open file system %s: %w", fs, err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigCreate(ctx); err != nil {
		return nil, fmt.Errorf("create file system %s: %w", fs, err)
	}
	mnt, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", fs, err)
	}
	defer unix.Close(mnt)
	fd, err := unix.Openat(mnt, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	return io.ReadAll(file)
}

func isBPFFS(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.BPF_FS_MAGIC
}
