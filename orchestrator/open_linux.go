package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// openWorkspace opens dir once; everything later uses the descriptor. The path
// is what the kernel says the descriptor is.
func openWorkspace(dir string) (*os.File, string, error) {
	fail := func(err error) (*os.File, string, error) {
		return nil, "", &Error{Err: fmt.Errorf("workspace %s: %w", orDefault(dir, "(the current directory)"), err)}
	}
	fd, err := unix.Open(orDefault(dir, "."), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
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
	if err != nil {
		_ = f.Close()
		return fail(err)
	}
	return f, name, nil
}

// owned refuses a workspace that is another user's, unless we are root.
func owned(workspace *os.File, dir string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(workspace.Fd()), &st); err != nil {
		return fmt.Errorf("workspace %s: %w", dir, err)
	}
	if uid := os.Geteuid(); uid != 0 && int(st.Uid) != uid {
		return &Error{Err: fmt.Errorf("workspace %s: belongs to user %d, not to you", dir, st.Uid), Hint: "make a copy of your own"}
	}
	return nil
}

func procFD(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// kernelName is the path of the object that f refers to, as the kernel knows it.
func kernelName(f *os.File) (string, error) { return os.Readlink(procFD(f)) }

// shown is one object of the view: its path and an O_PATH descriptor of it.
type shown struct {
	path string
	fd   int
}

func closeShown(list []shown) {
	for _, s := range list {
		_ = unix.Close(s.fd)
	}
}

// openView opens what the jail will show, with the user's rights. Entries that
// may be missing are left out when they are, when the user may not reach them,
// and when their path leads through a link (what is behind it has a name of its
// own, and is shown under that one if a rule says so).
func (p *Plan) openView() (list []shown, err error) {
	list = make([]shown, 0, len(p.view))
	for _, m := range p.view {
		if m.Path == p.Resolved.Vars.Workspace {
			name, err := kernelName(p.workspace)
			if err == nil && name != m.Path {
				err = refuse(fmt.Errorf("workspace %s is now %s: it was moved or removed while the jail was made", m.Path, name), "")
			}
			if err != nil {
				closeShown(list)
				return nil, err
			}
			fd, err := unix.FcntlInt(p.workspace.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				closeShown(list)
				return nil, fmt.Errorf("duplicate workspace: %w", err)
			}
			list = append(list, shown{m.Path, fd})
			continue
		}
		fd, err := unix.Openat2(unix.AT_FDCWD, m.Path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		switch {
		case err != nil && m.Optional:
		case err != nil:
			closeShown(list)
			return nil, fmt.Errorf("open %s: %w", m.Path, err)
		case givable(fd):
			list = append(list, shown{m.Path, fd})
		default:
			_ = unix.Close(fd)
		}
	}
	return list, nil
}

// givable: the helper takes files, directories, links and sockets only.
func givable(fd int) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
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
// the conversation g. Everything is sent before anything is waited for; the
// first request that fails is the error, and those behind it fail with it.
func Launch(ctx context.Context, g Gate, p *Plan, tty *rpc.Terminal) (*Proc, error) {
	if err := p.makeState(); err != nil {
		return nil, err
	}
	data, err := p.document()
	if err != nil {
		return nil, err
	}
	doc, err := memfd("document", data)
	if err != nil {
		return nil, err
	}
	created, err := g.Ask(rpc.Create, struct{}{}, int(doc.Fd()))
	_ = doc.Close()
	if err != nil {
		return nil, fmt.Errorf("create jail: %w", err)
	}
	defer created.Forget()
	list, err := p.openView() // while the helper resolves the policy
	if err != nil {
		return nil, err
	}
	given, err := give(g, list)
	defer func() {
		for _, a := range given {
			a.Forget()
		}
	}()
	if err != nil {
		closeShown(list)
		return nil, err
	}
	proc := &Proc{gate: g, jail: true}
	var draft rpc.Drafted
	err = proc.start(ctx, rpc.Start, rpc.StartJail{Terminal: tty}, &proc.Started, tty != nil, func() error {
		closeShown(list)
		list = nil
		if _, err := created.Answer(ctx, &draft); err != nil {
			return fmt.Errorf("create jail: %w", err)
		}
		proc.ref = rpc.ProcRef{Session: draft.Session, Proc: 1}
		asked, err := g.Ask(rpc.Wait, proc.ref) // now: what is short has ended before we hear of its start
		if err != nil {
			return err
		}
		proc.asked.Store(asked)
		for _, a := range given {
			if _, err := a.Answer(ctx, nil); err != nil {
				return fmt.Errorf("give the jail its files: %w", err)
			}
		}
		return nil
	})
	closeShown(list) // unless start was not even sent, there is nothing left
	if err != nil {
		return nil, err
	}
	proc.Session, proc.Name = draft.Session, draft.Name
	return proc, nil
}

// give sends what is to be shown.
func give(g Gate, list []shown) (asked []*rpc.Asked, err error) {
	for part := range slices.Chunk(list, packet.MaxFDs) {
		var items rpc.GiveItems
		fds := make([]int, len(part))
		for i, s := range part {
			items.Paths = append(items.Paths, s.path)
			fds[i] = s.fd
		}
		a, err := g.Ask(rpc.Give, items, fds...)
		if err != nil {
			return asked, fmt.Errorf("give the jail its files: %w", err)
		}
		asked = append(asked, a)
	}
	return asked, nil
}
