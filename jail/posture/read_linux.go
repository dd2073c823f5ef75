package posture

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Read takes the posture of a live process. The reader needs the right to
// trace it (root, in practice). Errors: [fs.ErrNotExist] or ESRCH when it is gone.
func Read(pid int) (Posture, error) {
	proc, err := os.Open("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return Posture{}, fmt.Errorf("read posture of %d: %w", pid, err)
	}
	defer proc.Close()
	p, err := readFrom(process{proc})
	if err != nil {
		return Posture{}, fmt.Errorf("read posture of %d: %w", pid, err)
	}
	return p, nil
}

// Host returns the namespaces of the calling process, for [Expect].
func Host() (Namespaces, error) {
	proc, err := os.Open("/proc/self")
	if err != nil {
		return nil, fmt.Errorf("read namespaces: %w", err)
	}
	defer proc.Close()
	return process{proc}.namespaces()
}

// process is an open /proc/PID.
type process struct{ *os.File }

func readFrom(d process) (p Posture, err error) {
	for _, step := range []struct {
		file string
		take func([]byte) error
	}{
		{"status", p.parseStatus},
		{"uid_map", func(b []byte) (err error) { p.UIDMap, err = parseMap(b); return }},
		{"gid_map", func(b []byte) (err error) { p.GIDMap, err = parseMap(b); return }},
		{"limits", func(b []byte) (err error) { p.Limits, err = parseLimits(b); return }},
		{"cgroup", func(b []byte) error { p.Cgroups = parseCgroups(b); return nil }},
		{"mountinfo", func(b []byte) (err error) { p.Mounts, err = parseMounts(b); return }},
		{"oom_score_adj", func(b []byte) (err error) {
			_, err = fmt.Sscan(string(b), &p.OOMScoreAdj)
			return
		}},
	} {
		data, err := d.read(step.file)
		if err != nil {
			return p, err
		}
		if err := step.take(data); err != nil {
			return p, err
		}
	}
	if p.Namespaces, err = d.namespaces(); err != nil {
		return p, err
	}
	if p.FDs, err = d.fds(); err != nil {
		return p, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return p, fmt.Errorf("stat: %w", err)
	}
	p.Owner = st.Uid
	return p, nil
}

func (d process) read(name string) ([]byte, error) {
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return io.ReadAll(f)
}

// list returns the names in one of its directories.
func (d process) list(name string) ([]string, error) {
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return f.Readdirnames(-1)
}

func (d process) link(name string) (string, error) {
	var buf [4096]byte
	n, err := unix.Readlinkat(int(d.Fd()), name, buf[:])
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(buf[:n]), nil
}

func (d process) namespaces() (Namespaces, error) {
	names, err := d.list("ns")
	if err != nil {
		return nil, err
	}
	out := Namespaces{}
	for _, name := range names {
		target, err := d.link("ns/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // pid_for_children before the first fork
		}
		if err != nil {
			return nil, err
		}
		if out[name], err = parseNamespace(target); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (d process) fds() ([]FD, error) {
	names, err := d.list("fd")
	if err != nil {
		return nil, err
	}
	var out []FD
	for _, name := range names {
		n, err := strconv.Atoi(name)
		if err != nil {
			return nil, fmt.Errorf("descriptor %q: %w", name, errLine)
		}
		target, err := d.link("fd/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return nil, err
		}
		info, err := d.read("fdinfo/" + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		out = append(out, FD{n, target, !parseCloexec(info)})
	}
	slices.SortFunc(out, func(a, b FD) int { return a.N - b.N })
	return out, nil
}
