package steer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/seccomp"
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
		d.broken()
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
	filter, err := filter()
	if err != nil {
		_ = said.Close()
		return fail(err)
	}
	defer filter.Close()
	files := []*os.File{null, null, stderr, theirs, filter} // the last are descriptors 3 and 4
	// The child moves its descriptors before the exec: keep the program clear of those.
	highest := slices.Max([]uintptr{null.Fd(), stderr.Fd(), theirs.Fd(), filter.Fd()})
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

// filter is the seccomp filter that netd puts on itself.
func filter() (*os.File, error) {
	program, err := seccomp.BuildNetd()
	if err != nil {
		return nil, err
	}
	return seccomp.Memfd(program)
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
			if v != nil {
				v.follow(a.Event)
			}
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

// follow keeps what is open.
func (v *served) follow(e *netpolicy.Event) {
	switch e.Kind {
	case netpolicy.Opened:
		v.open[e.Connection.ID] = e.Connection
	case netpolicy.Closed, netpolicy.Cut:
		delete(v.open, e.Connection.ID)
	}
}

// broken tells the end of every connection of a netd that can no longer say so.
func (d *Daemon) broken() {
	d.mu.Lock()
	all := map[*served]map[uint64]netpolicy.Connection{}
	for _, v := range d.jails {
		all[v], v.open = v.open, map[uint64]netpolicy.Connection{}
	}
	d.mu.Unlock()
	now := time.Now().UTC()
	for v, open := range all {
		for _, id := range slices.Sorted(maps.Keys(open)) {
			v.queue.put(netpolicy.Event{
				Kind: netpolicy.Broken, Time: now, Jail: v.id, Connection: open[id],
				Why: "agentos-netd ended, and nobody counted the bytes",
			})
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
type files struct{ resolv, hosts, upstream string }

// way is how connections leave this host. bad is why the newest word about it is not used.
type way struct {
	up  netpolicy.Upstream
	bad string
}

// maxFile bounds each, in bytes.
const maxFile = 1 << 20

// configure sends the host's resolver and hosts files and how connections leave this host, if they are not
// what was sent before. A file that is missing is empty.
func (d *Daemon) configure(ctx context.Context, conn *packet.Conn) error {
	up, err := d.upstream()
	if err != nil {
		return err
	}
	now := files{readFile(d.opt.Resolv), readFile(d.opt.Hosts), fmt.Sprintf("%q", append([]string{up.Proxy}, up.Direct...))}
	d.mu.Lock()
	before := d.files
	d.mu.Unlock()
	if now == before {
		return nil
	}
	err = d.ask(ctx, conn, netpolicy.VerbConfigure, netpolicy.Configure{Resolv: now.resolv, Hosts: now.hosts, Upstream: up}, nil)
	if errors.Is(err, errRefused) && before != (files{}) { // what it was told before holds
		d.opt.Logger.Error("agentos-netd goes on as it was configured before", "error", err)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("configure agentos-netd: %w", err)
	}
	d.mu.Lock()
	d.files = now
	d.mu.Unlock()
	return nil
}

// upstream is how connections leave this host. What cannot be used leaves what was; at the first time it is an error.
func (d *Daemon) upstream() (netpolicy.Upstream, error) {
	if d.opt.Upstream == nil {
		return netpolicy.Upstream{}, nil
	}
	up, err := d.opt.Upstream()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.way = &way{up: up}
	case d.way == nil:
		return up, err
	case d.way.bad != err.Error():
		d.way.bad = err.Error()
		d.opt.Logger.Error("connections leave as before", "error", err)
	}
	return d.way.up, nil
}

func readFile(path string) string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) > maxFile {
		return ""
	}
	return string(data)
}
