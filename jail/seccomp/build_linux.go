//go:build linux && cgo && (amd64 || arm64)

package seccomp

import (
	"fmt"
	"io"
	"os"
	"runtime"

	lib "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// maxInsns is the kernel's limit (BPF_MAXINSNS).
const maxInsns = 4096

// Build compiles a spec for this machine's architecture. The same spec gives
// the same bytes with the same libseccomp. It takes about a millisecond: use a [Cache].
//
// Errors: *[Error] for a mistake in the spec.
func Build(s Spec) (Program, error) {
	p, err := newPlan(s, number)
	if err != nil {
		return nil, err
	}
	return assemble(p)
}

// BuildNetd compiles the filter of agentos-netd for this machine's architecture: it may use the sockets that
// it was handed, dial TCP and UDP, and ask for routes. What it never calls is answered with EPERM, or with
// ENOSYS where [Build] does for every program.
func BuildNetd() (Program, error) { return assemble(newNetdPlan(number)) }

// assemble makes the program of a plan.
func assemble(p *plan) (Program, error) {
	filter, err := compile(p)
	if err != nil {
		return nil, err
	}
	defer filter.Release()
	body, err := export(filter.ExportBPF)
	if err != nil {
		return nil, fmt.Errorf("export filter: %w", err)
	}
	program := append(encode(guard(auditArch(), p.spans)), body...)
	if program.Len() > maxInsns {
		return nil, fmt.Errorf("build filter: %d instructions, the kernel takes %d", program.Len(), maxInsns)
	}
	return program, nil
}

// PFC returns the filter in libseccomp's pseudo code, after a line for each
// part of the guard. For people and golden files.
func PFC(s Spec) (string, error) {
	p, err := newPlan(s, number)
	if err != nil {
		return "", err
	}
	filter, err := compile(p)
	if err != nil {
		return "", err
	}
	defer filter.Release()
	body, err := export(filter.ExportPFC)
	if err != nil {
		return "", fmt.Errorf("export pseudo code: %w", err)
	}
	head := fmt.Sprintf("# guard: arch != %#x -> ERRNO(%d)\n# guard: %d <= nr < 0xffffffff -> ERRNO(%d)\n",
		auditArch(), enosys, limit, enosys)
	for _, span := range p.spans {
		head += fmt.Sprintf("# guard: %d <= nr < %d -> ERRNO(%d)\n", span.from, span.to, enosys)
	}
	return head + string(body), nil
}

// Version is the version of libseccomp in use, such as "2.5.4".
func Version() string {
	major, minor, micro := lib.GetLibraryVersion()
	return fmt.Sprintf("%d.%d.%d", major, minor, micro)
}

// compile makes the libseccomp filter. The caller releases it.
func compile(p *plan) (*lib.ScmpFilter, error) {
	filter, err := lib.NewFilter(lib.ActAllow)
	if err != nil {
		return nil, fmt.Errorf("make filter: %w", err)
	}
	if err := fill(filter, p); err != nil {
		filter.Release()
		return nil, err
	}
	return filter, nil
}

func fill(filter *lib.ScmpFilter, p *plan) error {
	if err := filter.SetBadArchAction(lib.ActErrno.SetReturnCode(int16(enosys))); err != nil {
		return fmt.Errorf("set foreign architecture: %w", err)
	}
	if err := filter.SetOptimize(2); err != nil { // binary tree, libseccomp 2.5
		return fmt.Errorf("set optimisation: %w", err)
	}
	for _, r := range p.rules {
		action := lib.ActErrno.SetReturnCode(int16(r.errno))
		if r.notify {
			action = lib.ActNotify
		}
		conds, err := conditions(r.conds)
		if err != nil {
			return err
		}
		if err := filter.AddRuleConditionalExact(lib.ScmpSyscall(r.nr), action, conds); err != nil {
			return fmt.Errorf("add rule for system call %d: %w", r.nr, err)
		}
	}
	return nil
}

func conditions(conds []cond) ([]lib.ScmpCondition, error) {
	var out []lib.ScmpCondition
	for _, c := range conds {
		made, err := lib.MakeCondition(c.arg, lib.CompareMaskedEqual, c.mask, c.value)
		switch c.op {
		case above:
			made, err = lib.MakeCondition(c.arg, lib.CompareGreater, c.value)
		case other:
			made, err = lib.MakeCondition(c.arg, lib.CompareNotEqual, c.value)
		}
		if err != nil {
			return nil, fmt.Errorf("make condition on argument %d: %w", c.arg, err)
		}
		out = append(out, made)
	}
	return out, nil
}

// number resolves names with libseccomp, and with our own list for calls that
// are younger than it.
func number(name string) (int, bool) {
	if nr, err := lib.GetSyscallFromName(name); err == nil {
		return int(nr), true
	}
	if nr, ok := late()[name]; ok {
		return nr, true
	}
	nr, ok := lateAMD64()[name]
	if ok && runtime.GOARCH != "amd64" {
		nr = -1
	}
	return nr, ok
}

// auditArch is AUDIT_ARCH_* of this machine.
func auditArch() uint32 {
	if runtime.GOARCH == "arm64" {
		return unix.AUDIT_ARCH_AARCH64
	}
	return unix.AUDIT_ARCH_X86_64
}

// export collects what libseccomp writes into a file.
func export(write func(*os.File) error) ([]byte, error) {
	f, err := memfd("seccomp-export")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// numberName is the name of a number on this machine, or "".
func numberName(nr int) string {
	name, err := lib.ScmpSyscall(nr).GetName()
	if err != nil {
		return ""
	}
	return name
}
