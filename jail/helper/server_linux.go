package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/segment"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/glass"
	"github.com/agentos/agentos/jail/layer"
	"github.com/agentos/agentos/jail/meter"
	"github.com/agentos/agentos/jail/organisation"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/seccomp"
	"github.com/agentos/agentos/jail/steer"
	"github.com/agentos/agentos/netpolicy"
)

// Limits per user, so that one cannot use up what all share.
const (
	maxSessions = 64  // drafts and running jails
	maxConns    = 128 // conversations
	maxGiven    = 512 // descriptors of one draft
)

// Options are where the helper works. All directories are made as needed.
type Options struct {
	State    string        // audit logs and home layers; default /var/lib/agentos
	Run      string        // sockets; default /run/agentos
	Org      string        // organisation policy; default /etc/agentos/policy.d
	Group    string        // cgroup above all jails; default agentos. Helpers of different groups do not meet
	Pins     string        // BPF pins; default /sys/fs/bpf/GROUP
	Init     string        // path of agentos-init
	Netd     string        // path of agentos-netd; default beside Init
	Resolv   string        // how names are resolved outside; default /etc/resolv.conf
	Hosts    string        // and those that are not asked for; default /etc/hosts
	Upstream string        // how jails' connections leave this host; default /etc/agentos/network.toml
	Wait     time.Duration // for another helper of this machine to end
	Spare    time.Duration // how long a jail that was made ahead waits to be used; 0: none is made
	Logger   *slog.Logger
}

var groupRule = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Server is a running helper. New touches nothing; Open makes the machine ready.
type Server struct {
	opt        Options
	build      string
	log        *slog.Logger
	init       *os.File
	initFile   *os.File   // the program itself, for the jail check
	fds        *os.File   // /proc/self/fd: what this process' descriptors are
	locked     []*os.File // the cgroup parent and the state directory, flocked
	ranges     *jail.Ranges
	layout     cgroup.Layout
	kernel     *kernel
	meter      *meter.Meter // nil where the kernel does not count: unmetered says why
	unmetered  error
	key        signer
	audit      *os.File // the directory of all logs
	compressor segment.Compressor
	filter     seccomp.Cache
	policies   preparations
	trees      *jail.Trees
	shared     *layer.Store // directories that sessions of a workspace share
	pool       pool
	netd       *steer.Daemon // nil where no jail can be served: unserved says why
	unserved   error
	netdFile   *os.File // its program
	checked    checked
	resolved   resolved
	org        *organisation.Store
	glass      *glass.Book

	mu       sync.Mutex
	sessions map[string]*session // by id: drafts and running
	byNumber map[uint32]*spare
	number   uint32
	conns    map[int]int // by uid
	wg       sync.WaitGroup
}

// Open prepares the machine: directories, audit key, a sealed copy of init, the
// kernel programs, and the removal of what an earlier helper left behind.
func Open(opt Options) (_ *Server, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("agentos-helper must run as root")
	}
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&opt.State, "/var/lib/agentos")
	def(&opt.Run, "/run/agentos")
	def(&opt.Org, "/etc/agentos/policy.d")
	def(&opt.Upstream, "/etc/agentos/network.toml")
	def(&opt.Group, cgroup.Parent)
	if !groupRule.MatchString(opt.Group) {
		return nil, fmt.Errorf("group %q: want a-z, 0-9 and '-', at most 32 bytes", opt.Group)
	}
	def(&opt.Pins, "/sys/fs/bpf/"+opt.Group)
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		opt: opt, build: packet.Build(), log: opt.Logger, ranges: jail.NewRanges(opt.Group),
		sessions: map[string]*session{}, byNumber: map[uint32]*spare{}, conns: map[int]int{},
	}
	// Nothing of this process, not even its /proc, is a user's to read.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become undumpable: %w", err)
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"directories", s.makeDirs},
		{"organisation", s.openOrganisation},
		{"init", s.loadInit},
		{"descriptors", s.openDescriptors},
		{"audit key", s.loadKey},
		{"cgroups", s.findCgroups},
		{"remains", s.sweep},
		{"kernel programs", s.loadKernel},
		{"kept directories", s.openShared},
		{"trees", s.openTrees},
		{"disk meter", s.openMeter},
		{"network", s.openNetwork},
	} {
		if err := step.do(); err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return s, nil
}

func (s *Server) makeDirs() error {
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{s.opt.State, 0o711}, {s.auditDir(), 0o700}, {s.layersDir(), 0o711}, {s.opt.Run, 0o755}} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return err
		}
		if err := os.Chmod(d.path, d.mode); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) auditDir() string  { return filepath.Join(s.opt.State, "audit") }
func (s *Server) layersDir() string { return filepath.Join(s.opt.State, "layers") }

// loadInit takes a sealed copy of init, so that what runs as pid 1 of every jail
// is what was checked once (CVE-2019-5736 is about the other way).
func (s *Server) loadInit() error {
	f, err := os.Open(s.opt.Init)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	// Mapped, not read: the heap of a helper would never be small again. A file that is cut
	// meanwhile makes the copy's write fail.
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return &os.PathError{Op: "map", Path: s.opt.Init, Err: err}
	}
	defer func() { _ = unix.Munmap(data) }()
	if s.init, err = jail.Memfd("agentos-init", data, true); err != nil {
		return err
	}
	fd, err := unix.Open(s.opt.Init, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.initFile = os.NewFile(uintptr(fd), s.opt.Init)
	return nil
}

// netdID is what netd runs as: a number that systems give to nobody (systemd.io/UIDS-GIDS).
const netdID = 65522

// openNetwork finds netd, which starts with the first jail that wants it.
func (s *Server) openNetwork() error {
	path := s.opt.Netd
	if path == "" {
		path = filepath.Join(filepath.Dir(s.opt.Init), "agentos-netd")
	}
	if s.kernel.h == nil {
		s.unserved = errors.New("no BPF program loads here that could hand its connections to agentos-netd")
		return nil
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		s.unserved = fmt.Errorf("%s is not there", path)
		return nil // jails then have no network, and their reports say so
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	s.netdFile = os.NewFile(uintptr(fd), path)
	if _, err := s.upstream(); err != nil {
		return err
	}
	s.netd = steer.NewDaemon(steer.Options{
		Executable: s.netdFile, UID: netdID, GID: netdID, Resolv: s.opt.Resolv, Hosts: s.opt.Hosts, Upstream: s.upstream, Logger: s.log,
	})
	return nil
}

// upstream is how connections of jails leave this host: root's word, never a user's.
func (s *Server) upstream() (netpolicy.Upstream, error) { return organisation.Upstream(s.opt.Upstream) }

func (s *Server) openOrganisation() (err error) {
	s.org = organisation.New(s.opt.Org, 0)
	if s.glass, err = glass.Open(filepath.Join(s.opt.State, "break-glass.json")); err != nil {
		s.log.Error("no grant of an earlier helper holds", "error", err)
	}
	return nil
}

func (s *Server) openShared() (err error) {
	s.shared, err = layer.OpenStore(filepath.Join(s.opt.State, "persist"))
	return err
}

func (s *Server) openDescriptors() error {
	fd, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.fds = os.NewFile(uintptr(fd), "/proc/self/fd")
	return nil
}

func (s *Server) openTrees() (err error) {
	s.trees, err = jail.NewTrees()
	return err
}

func (s *Server) findCgroups() (err error) {
	s.layout, err = cgroup.Detect()
	s.layout.Parent = s.opt.Group
	return err
}

// Close ends every session and gives everything back. Idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	var all []*session
	for _, v := range s.sessions {
		all = append(all, v)
	}
	s.mu.Unlock()
	for _, v := range all {
		v.close()
	}
	s.wg.Wait()
	s.closePool()
	if s.netd != nil {
		_ = s.netd.Close() // it has no error
		s.netd = nil
	}
	var err error
	if s.trees != nil {
		err = s.trees.Close()
	}
	if s.kernel != nil {
		err = errors.Join(err, s.kernel.Close())
		s.kernel = nil
	}
	if s.meter != nil {
		err = errors.Join(err, s.meter.Close())
		s.meter = nil
	}
	s.ranges.Close()
	packet.CloseAll([]*os.File{s.init, s.initFile, s.netdFile, s.fds})
	s.init, s.initFile, s.netdFile, s.fds = nil, nil, nil, nil
	if s.audit != nil {
		_ = s.audit.Close()
		s.audit = nil
	}
	if s.locked != nil {
		err = errors.Join(err, cgroup.Prune(s.layout))
		packet.CloseAll(s.locked)
		s.locked = nil
	}
	return err
}

// peer is who is at the other end of a conversation.
type peer struct {
	uid, gid int
	pid      int
}

// mayUse reports whether p may act on something that belongs to uid.
func (p peer) mayUse(uid int) bool { return p.uid == 0 || p.uid == uid }

// Serve takes part in one conversation until it ends, then ends the sessions
// that it made. The connection is closed.
func (s *Server) Serve(ctx context.Context, conn *packet.Conn) error {
	s.wg.Add(1)
	defer s.wg.Done()
	defer conn.Close()
	cred, err := conn.Peer()
	if err != nil {
		return err // unknown peer: refused
	}
	c := &conversation{s: s, conn: conn, peer: peer{int(cred.Uid), int(cred.Gid), int(cred.Pid)}, slots: make(chan struct{}, rpc.MaxInFlight)}
	s.mu.Lock()
	s.conns[c.peer.uid]++
	over := s.conns[c.peer.uid] > maxConns
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		if s.conns[c.peer.uid]--; s.conns[c.peer.uid] == 0 {
			delete(s.conns, c.peer.uid)
		}
		s.mu.Unlock()
	}()
	if over {
		return fmt.Errorf("uid %d has too many conversations", c.peer.uid)
	}
	return c.run(ctx)
}

// conversation is one client.
type conversation struct {
	s     *Server
	conn  *packet.Conn
	peer  peer
	slots chan struct{}
	hello bool
	draft *session // made here and not started; of run's goroutine alone

	mu   sync.Mutex
	made []*session
}

func (c *conversation) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		c.mu.Lock()
		made := c.made
		c.mu.Unlock()
		if len(made) > 0 && ctx.Err() == nil {
			time.Sleep(lull / 10) // the caller is ending, too
		}
		cancel()
		for _, v := range made {
			v.close()
		}
		wg.Wait()
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	for {
		var r rpc.Request
		fds, err := c.conn.Receive(&r)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
				return nil
			}
			return err // a peer that cannot speak is not spoken to
		}
		if err := c.admit(r, fds); err != nil {
			c.discard(r.Verb)
			packet.CloseAll(fds)
			c.reply(r.ID, nil, nil, err)
			continue
		}
		if r.Verb == rpc.HelloVerb {
			c.greet(r)
			continue
		}
		if r.Verb.Ordered() {
			if err := c.do(ctx, r, fds, nil); err != nil {
				c.discard(r.Verb)
			}
			continue
		}
		var draft *session
		if r.Verb == rpc.Start { // from here on another one may be made
			draft, c.draft = c.draft, nil
		}
		c.slots <- struct{}{} // back pressure: the peer waits
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-c.slots }()
			_ = c.do(ctx, r, fds, draft)
		}()
	}
}

// do answers r, which came with fds; draft is what a start is about.
func (c *conversation) do(ctx context.Context, r rpc.Request, fds []*os.File, draft *session) error {
	body, out, err := c.answer(ctx, r, fds, draft)
	packet.CloseAll(fds)
	c.reply(r.ID, body, out, err)
	packet.CloseAll(out)
	return err
}

// discard ends the draft when a request that belongs to it failed: those that
// the peer has sent after it, without waiting, must not make a lesser jail of it.
func (c *conversation) discard(v rpc.Verb) {
	if c.draft != nil && (v.Ordered() || v == rpc.Start) {
		c.draft.close()
		c.draft = nil
	}
}

// admit checks what holds for every verb.
func (c *conversation) admit(r rpc.Request, fds []*os.File) error {
	if !r.Verb.Valid() {
		return &rpc.Error{Code: rpc.Invalid, Text: fmt.Sprintf("unknown verb %q", r.Verb)}
	}
	if lo, hi := r.Verb.FDs(); len(fds) < lo || len(fds) > hi {
		return &rpc.Error{Code: rpc.Invalid, Text: fmt.Sprintf("%s takes %d to %d descriptors, not %d", r.Verb, lo, hi, len(fds))}
	}
	if !c.hello && r.Verb != rpc.HelloVerb {
		return &rpc.Error{Code: rpc.Invalid, Text: "hello comes first"}
	}
	return nil
}

func (c *conversation) greet(r rpc.Request) {
	var h rpc.Hello
	err := packet.Unmarshal(r.Body, &h)
	if err == nil && h.Protocol != rpc.Protocol {
		err = &rpc.Error{Code: rpc.Unsupported, Text: fmt.Sprintf("the helper speaks protocol %d, the caller %d", rpc.Protocol, h.Protocol), Hint: "install agentos and agentos-helper from one release"}
	}
	c.hello = err == nil
	c.reply(r.ID, rpc.HelloReply{Protocol: rpc.Protocol, Build: c.s.build, Tier: c.s.kernel.tier()}, nil, err)
}

func (c *conversation) reply(id uint64, body any, fds []*os.File, err error) {
	out := rpc.Reply{ID: id}
	if err != nil {
		out.Error = asError(err)
	} else {
		raw, merr := json.Marshal(body)
		if merr != nil {
			out.Error = asError(merr)
		}
		out.Body = raw
	}
	var nums []int
	for _, f := range fds {
		nums = append(nums, int(f.Fd()))
	}
	if err := c.conn.Send(out, nums...); errors.Is(err, packet.ErrTooLarge) {
		_ = c.conn.Send(rpc.Reply{ID: id, Error: &rpc.Error{Code: rpc.Failed, Text: "the answer is larger than a message may be"}})
	}
}

// asError makes of any error one that crosses the gate.
func asError(err error) *rpc.Error {
	var e *rpc.Error
	if errors.As(err, &e) {
		return e
	}
	code := rpc.Failed
	if errors.Is(err, packet.ErrMalformed) || errors.Is(err, packet.ErrTooLarge) {
		code = rpc.Invalid
	}
	return &rpc.Error{Code: code, Text: err.Error()}
}

// answer dispatches one request. The descriptors stay the conversation's.
func (c *conversation) answer(ctx context.Context, r rpc.Request, fds []*os.File, draft *session) (body any, out []*os.File, err error) {
	switch r.Verb {
	case rpc.Create:
		return with(r, func(struct{}) (any, []*os.File, error) { return c.create(fds[0]) })
	case rpc.Give:
		return with(r, func(m rpc.GiveItems) (any, []*os.File, error) { return c.give(m, fds) })
	case rpc.Start:
		return c.startDraft(ctx, draft, r, fds)
	case rpc.Spawn:
		return with(r, func(m rpc.SpawnProc) (any, []*os.File, error) { return c.spawn(m, fds) })
	case rpc.Wait:
		return with(r, func(m rpc.ProcRef) (any, []*os.File, error) { return c.await(ctx, m) })
	case rpc.Signal:
		return with(r, func(m rpc.SignalProc) (any, []*os.File, error) { return c.signal(m) })
	case rpc.Resize:
		return with(r, func(m rpc.ResizeProc) (any, []*os.File, error) { return c.resize(m) })
	case rpc.Changes:
		return with(r, func(m rpc.LayerRef) (any, []*os.File, error) { return c.changes(m) })
	case rpc.Kept:
		return with(r, func(m rpc.KeptRef) (any, []*os.File, error) { return c.kept(m) })
	case rpc.Drop:
		return with(r, func(m rpc.DropKept) (any, []*os.File, error) { return c.drop(ctx, m) })
	case rpc.Kill:
		return with(r, func(m rpc.SessionRef) (any, []*os.File, error) { return c.kill(m) })
	case rpc.List:
		return with(r, func(m rpc.ListSessions) (any, []*os.File, error) { return c.list(m) })
	case rpc.Policy:
		return with(r, func(m rpc.SetPolicy) (any, []*os.File, error) { return c.setPolicy(m, fds[0]) })
	case rpc.NetworkVerb:
		return with(r, func(m rpc.SessionRef) (any, []*os.File, error) { return c.state(ctx, m) })
	case rpc.RulesVerb:
		return with(r, func(m rpc.SessionRef) (any, []*os.File, error) { return c.netRules(m) })
	case rpc.GrantVerb:
		return with(r, func(m rpc.SetGrant) (any, []*os.File, error) { return c.grant(m) })
	case rpc.BreakGlass:
		return with(r, func(m rpc.BreakGlassAsk) (any, []*os.File, error) { return c.breakGlass(m) })
	case rpc.Log:
		return with(r, func(m rpc.LogRef) (any, []*os.File, error) { return c.logs(m) })
	case rpc.Probe:
		return with(r, func(struct{}) (any, []*os.File, error) { return c.s.probe(), nil, nil })
	default:
		return nil, nil, &rpc.Error{Code: rpc.Invalid, Text: fmt.Sprintf("verb %q has no answer", r.Verb)}
	}
}

// await is wait that adds the totals to the end of the agent.
func (c *conversation) await(ctx context.Context, m rpc.ProcRef) (any, []*os.File, error) {
	v, err := c.find(m.Session)
	if err != nil {
		return nil, nil, err
	}
	body, out, err := c.wait(ctx, m)
	if h, ok := body.(rpc.Happened); ok && h.What == "exited" && m.Proc == 1 && v.record.Load() != nil {
		if v.now() == ended {
			<-v.done // its last records are being read
		}
		h.Totals = v.record.Load().totals()
		body = h
	}
	return body, out, err
}

// with decodes the body of a request strictly and calls f with it.
func with[T any](r rpc.Request, f func(T) (any, []*os.File, error)) (any, []*os.File, error) {
	var m T
	if err := packet.Unmarshal(r.Body, &m); err != nil {
		return nil, nil, err
	}
	return f(m)
}
