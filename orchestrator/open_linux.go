package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// openWorkspace opens dir once; everything later uses the descriptor. The path
// is what the kernel says the descriptor is.
func openWorkspace(dir string) (*os.File, string, error) {
	fail := func(err error, hint string) (*os.File, string, error) {
		return nil, "", &Error{Err: fmt.Errorf("workspace %s: %w", dir, err), Hint: hint}
	}
	fd, err := unix.Open(orDefault(dir, "."), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err, "")
	}
	f := os.NewFile(uintptr(fd), dir)
	name, err := kernelName(f)
	if err == nil && !filepath.IsAbs(name) {
		err = errors.New("is not reachable from here")
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil && st.Nlink == 0 {
		err = errors.New("was removed")
	}
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, procFD(f), unix.R_OK|unix.X_OK, 0)
	}
	hint := ""
	if uid := os.Geteuid(); err == nil && uid != 0 && int(st.Uid) != uid {
		err, hint = fmt.Errorf("belongs to user %d, not to you", st.Uid), "make a copy of your own"
	}
	if err != nil {
		_ = f.Close()
		return fail(err, hint)
	}
	return f, name, nil
}

func procFD(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// kernelName is the path of the object that f refers to, as the kernel knows it.
func kernelName(f *os.File) (string, error) { return os.Readlink(procFD(f)) }

// openView opens what the jail will show, with the user's rights. Entries that
// may be missing are left out when they are, when the user may not reach them,
// and when their path leads through a link (what is behind it has a name of its
// own, and is shown under that one if a rule says so).
func (p *Plan) openView() (files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeFiles(files)
		}
	}()
	for _, m := range p.view {
		var f *os.File
		if m.Path == p.Resolved.Vars.Workspace {
			fd, err := unix.FcntlInt(p.workspace.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return files, fmt.Errorf("duplicate workspace: %w", err)
			}
			f = os.NewFile(uintptr(fd), m.Path)
		} else {
			fd, err := unix.Open(m.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				if m.Optional {
					continue
				}
				return files, fmt.Errorf("open %s: %w", m.Path, err)
			}
			f = os.NewFile(uintptr(fd), m.Path)
		}
		name, err := kernelName(f)
		switch {
		case err != nil:
			_ = f.Close()
			return files, err
		case name != m.Path && m.Optional, !givable(f):
			_ = f.Close()
			continue
		case name != m.Path:
			_ = f.Close()
			return files, refuse(fmt.Errorf("workspace %s is now %s: it was moved or removed while the jail was made", m.Path, name), "")
		}
		files = append(files, f)
	}
	return files, nil
}

// givable: the helper takes files, directories, links and sockets only.
func givable(f *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK, unix.S_IFSOCK:
		return true
	}
	return false
}

// makeState creates the agent's missing state where the policy would show it.
func (p *Plan) makeState() error {
	for _, s := range p.state {
		writable := false
		for _, m := range p.view {
			if within(s.path, m.Path) {
				writable = m.Access == policy.ReadWrite
			}
		}
		if !s.make || !writable || !within(s.path, p.Resolved.Vars.Home) {
			continue
		}
		if err := s.create(); err != nil {
			return fmt.Errorf("create state of %s: %w", p.Agent, err)
		}
	}
	return nil
}

// create makes a missing entry, readable for the user alone.
func (s stateEntry) create() error {
	if _, err := os.Lstat(s.path); err == nil {
		return nil
	}
	if s.dir {
		return os.MkdirAll(s.path, 0o700)
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if strings.HasSuffix(s.path, ".json") {
		_, err = f.WriteString("{}\n") // an empty one is a broken one
	}
	return errors.Join(err, f.Close())
}

// memfd returns data in a sealed memory file.
func memfd(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(data); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("seal memory file: %w", err)
	}
	return f, nil
}

// Launch has the helper build the jail of p and start the agent in it: with a
// terminal of size tty, or with pipes when tty is nil. The jail lives as long as
// the conversation g.
func Launch(ctx context.Context, g Gate, p *Plan, tty *rpc.Terminal) (*Proc, error) {
	if err := p.makeState(); err != nil {
		return nil, err
	}
	files, err := p.openView()
	if err != nil {
		return nil, err
	}
	defer closeFiles(files)
	data, err := p.document()
	if err != nil {
		return nil, err
	}
	doc, err := memfd("document", data)
	if err != nil {
		return nil, err
	}
	defer func() { _ = doc.Close() }()
	var draft rpc.Drafted
	if err := call(ctx, g, rpc.Create, struct{}{}, &draft, int(doc.Fd())); err != nil {
		return nil, fmt.Errorf("create jail: %w", err)
	}
	for len(files) > 0 {
		n := min(len(files), packet.MaxFDs)
		if err := give(ctx, g, draft.Session, files[:n]); err != nil {
			return nil, err
		}
		closeFiles(files[:n])
		files = files[n:]
	}
	proc := &Proc{Session: draft.Session, Name: draft.Name, gate: g, jail: true}
	if err := proc.start(ctx, rpc.Start, rpc.StartJail{Session: draft.Session, Terminal: tty}, &proc.Started, tty != nil); err != nil {
		return nil, fmt.Errorf("start jail: %w", err)
	}
	proc.ref = rpc.ProcRef{Session: draft.Session, Proc: proc.Started.Proc}
	return proc, nil
}

func give(ctx context.Context, g Gate, session string, files []*os.File) error {
	items := rpc.GiveItems{Session: session}
	var fds []int
	for _, f := range files {
		items.Paths = append(items.Paths, f.Name())
		fds = append(fds, int(f.Fd()))
	}
	if err := call(ctx, g, rpc.Give, items, nil, fds...); err != nil {
		return fmt.Errorf("give the jail its files: %w", err)
	}
	return nil
}
