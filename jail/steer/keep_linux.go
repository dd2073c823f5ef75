package steer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/netpolicy"
)

// keep has a netd running until ctx is done.
func (d *Daemon) keep(ctx context.Context) {
	defer close(d.stopped)
	for wait := backoffLeast; ; wait = min(2*wait, backoffMost) {
		began := time.Now()
		err := d.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > backoffMost {
			wait = backoffLeast
		}
		d.opt.Logger.Warn("agentos-netd has ended and is started again", "error", err, "after", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// once runs one netd until it ends.
func (d *Daemon) once(ctx context.Context) error {
	conn, end, err := d.spawn()
	if err != nil {
		return err
	}
	read := make(chan error, 1)
	go func() { // ends with the conversation
		read <- d.read(conn)
		d.fail()
	}()
	if err = d.bring(ctx, conn); err == nil {
		err = d.watch(ctx, conn, read)
	}
	d.down(conn)
	d.mu.Lock()
	d.pid = 0
	d.mu.Unlock()
	_ = conn.Close() // netd ends by that
	d.fail()         // who asked after read had ended
	end()
	return err
}

// spawn starts the program: another uid, no groups, no environment, no process
// and no IPC object of others in sight. end sees to its end.
func (d *Daemon) spawn() (conn *packet.Conn, end func(), err error) {
	conn, theirs, err := packet.Pair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	fail := func(err error) (*packet.Conn, func(), error) {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("start agentos-netd: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fail(err)
	}
	defer null.Close()
	said, stderr, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer stderr.Close()
	files := []*os.File{null, null, stderr, theirs} // the last is descriptor 3
	// The child moves its descriptors before the exec: keep the program clear of those.
	highest := slices.Max([]uintptr{null.Fd(), stderr.Fd(), theirs.Fd()})
	program, err := unix.FcntlInt(d.opt.Executable.Fd(), unix.F_DUPFD_CLOEXEC, int(highest)+64)
	if err != nil {
		_ = said.Close()
		return fail(err)
	}
	defer unix.Close(program)
	p, err := os.StartProcess("/proc/self/fd/"+strconv.Itoa(program), []string{"agentos-netd"}, &os.ProcAttr{
		Dir: "/", Env: []string{"GOTRACEBACK=single"}, Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid: true, Cloneflags: unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID,
			Credential: &syscall.Credential{Uid: uint32(d.opt.UID), Gid: uint32(d.opt.GID)},
		},
	})
	if err != nil {
		_ = said.Close()
		return fail(err)
	}
	// It holds what jails make it hold: the protection from the OOM killer that the helper's unit has is not for it.
	if err := os.WriteFile("/proc/"+strconv.Itoa(p.Pid)+"/oom_score_adj", []byte("0"), 0); err != nil {
		d.opt.Logger.Warn("give agentos-netd an ordinary OOM score", "error", err)
	}
	d.mu.Lock()
	d.pid = p.Pid
	d.starts++
	d.mu.Unlock()
	logged := make(chan struct{})
	go func() { // ends when the last holder of its stderr has
		defer close(logged)
		defer said.Close()
		for lines := bufio.NewScanner(said); lines.Scan(); {
			d.opt.Logger.Warn("agentos-netd", "says", lines.Text())
		}
	}()
	return conn, func() {
		kill := time.AfterFunc(endTimeout, func() { _ = p.Kill() })
		_, _ = p.Wait()
		kill.Stop()
		<-logged
	}, nil
}

// endTimeout is how long netd has to close its connections.
const endTimeout = 2 * time.Second

// bring makes a fresh netd serve all jails. One that it refuses has no network,
// which hinders no other.
func (d *Daemon) bring(ctx context.Context, conn *packet.Conn) error {
	var hello netpolicy.Hello
	ours := netpolicy.Hello{Protocol: netpolicy.Protocol, Build: packet.Build()}
	if err := d.ask(ctx, conn, netpolicy.VerbHello, ours, &hello); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	if hello != ours {
		return fmt.Errorf("helper is build %q, agentos-netd is %q: install both from one build", ours.Build, hello.Build)
	}
	d.mu.Lock()
	d.files = files{}
	d.mu.Unlock()
	if err := d.configure(ctx, conn); err != nil {
		return err
	}
	for has := map[*served]uint64{}; ; {
		d.mu.Lock()
		v, verb := d.lacking(has)
		if v == nil {
			d.conn = conn
			close(d.up)
			d.mu.Unlock()
			return nil
		}
		var body any
		var fds []int
		switch verb {
		case netpolicy.VerbAdd:
			body, fds, has[v] = v.add(), v.sockets, v.generation
		case netpolicy.VerbSet:
			body, has[v] = v.set(), v.generation
		case netpolicy.VerbRemove:
			body = netpolicy.Remove{Jail: v.id}
			delete(has, v)
		}
		d.mu.Unlock()
		err := d.ask(ctx, conn, verb, body, nil, fds...)
		if errors.Is(err, ErrGone) {
			return err
		}
		d.mu.Lock()
		v.refused = err
		d.mu.Unlock()
		if err != nil {
			d.opt.Logger.Error("agentos-netd does not serve a jail as it should", "verb", verb, "jail", v.id, "error", err)
		}
	}
}

// lacking returns a jail that a fresh netd, which has these in these generations, does not serve
// as it should, and what to tell it. What is changed or removed meanwhile is told here alone:
// there is no netd of now yet that others could tell. d.mu is held.
func (d *Daemon) lacking(has map[*served]uint64) (*served, netpolicy.Verb) {
	for v := range has {
		if v.leaving {
			return v, netpolicy.VerbRemove
		}
	}
	for _, v := range d.jails {
		switch generation, ok := has[v]; {
		case v.leaving:
		case !ok:
			return v, netpolicy.VerbAdd
		case generation != v.generation && v.refused == nil:
			return v, netpolicy.VerbSet
		}
	}
	return nil, ""
}

// watch waits for the end of a netd and tells it when its files change.
func (d *Daemon) watch(ctx context.Context, conn *packet.Conn, read <-chan error) error {
	t := time.NewTicker(filesAge)
	defer t.Stop()
	for {
		select {
		case err := <-read:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			if err := d.configure(ctx, conn); err != nil {
				return err
			}
		}
	}
}

// read takes what netd says until the conversation ends.
func (d *Daemon) read(conn *packet.Conn) error {
	for {
		a, err := netpolicy.ReceiveAnswer(conn)
		if err != nil {
			return err
		}
		d.mu.Lock()
		if a.Event != nil {
			v := d.jails[a.Event.Jail]
			d.mu.Unlock()
			if v != nil {
				v.queue.put(*a.Event)
			}
			continue
		}
		got := d.pending[a.ID]
		delete(d.pending, a.ID)
		d.mu.Unlock()
		if got != nil {
			got <- a // it has room for one
		}
	}
}

// fail ends every wait for an answer.
func (d *Daemon) fail() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, got := range d.pending {
		close(got)
		delete(d.pending, id)
	}
}

// down says that the netd at conn is gone.
func (d *Daemon) down(conn *packet.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn == conn && conn != nil {
		d.conn, d.up = nil, make(chan struct{})
	}
}

// files are what netd is configured by. The zero value was never sent.
type files struct{ resolv, hosts string }

// maxFile bounds each, in bytes.
const maxFile = 1 << 20

// configure sends the host's resolver and hosts files, if they are not those
// that were sent before. One that is missing is empty.
func (d *Daemon) configure(ctx context.Context, conn *packet.Conn) error {
	now := files{readFile(d.opt.Resolv), readFile(d.opt.Hosts)}
	d.mu.Lock()
	same := now == d.files && d.files != files{}
	d.mu.Unlock()
	if same {
		return nil
	}
	err := d.ask(ctx, conn, netpolicy.VerbConfigure, netpolicy.Configure{Resolv: now.resolv, Hosts: now.hosts, Upstream: d.opt.Upstream}, nil)
	if err != nil {
		return fmt.Errorf("configure agentos-netd: %w", err)
	}
	d.mu.Lock()
	d.files = now
	d.mu.Unlock()
	return nil
}

func readFile(path string) string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) > maxFile {
		return ""
	}
	return string(data)
}
