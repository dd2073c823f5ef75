package helper

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/layer"
	"github.com/agentos/agentos/jail/opens"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/reach"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/why"
	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/policy"
)

// readyTimeout bounds how long init may take to build the jail.
const readyTimeout = 20 * time.Second

// scratch are the trees of a jail that no host process shares.
var scratch = []string{"/tmp", "/var/tmp", "/run", "/dev/shm"}

// deleteTimeout bounds the wait for dying processes.
const deleteTimeout = 10 * time.Second

// canaryAddr is a documentation address (RFC 5737): nobody's, and no rule's.
var canaryAddr = netip.MustParseAddrPort("192.0.2.1:9")

// order is what a jail is made for. Nothing in it is of one session: the session's
// id, command, variables, terminal and record come when the jail stands.
type order struct {
	owner peer // its ids
	*prepared
	res   *policy.Resolved
	host  string  // name of the jail's host
	user  string  // login name inside
	given []given // what the caller opened with its own rights; the order's
}

// close closes what was given.
func (o *order) close() {
	for _, g := range o.given {
		_ = g.file.Close()
	}
	o.given = nil
}

// build is what the steps of making a jail fill.
type build struct {
	order
	s     *Server
	ctx   context.Context // ends when nobody wants the jail any more
	going func() error    // says the same, and why
	uid   int             // of the agent, inside
	gid   int

	in        jail.Input
	sources   map[string]source // of mounts, by target
	identity  string            // of everything that decides what jail it is, see look
	sp        *spare            // what it is made from
	spec      jail.Spec
	parts     jail.Parts
	ground    jail.Ground // the host's mounts that it was made of
	report    rpc.Report
	checkedIn string // session that passed the whole check, "" if none had
	answer    jail.Message
	layer     *layer.Session
	trees     []ownTree   // of the layer and of what sessions share, as the agent writes to them
	asked     *os.File    // fanotify group, nil where nothing is asked about
	took      []jail.Step // of buildSteps
	ahead     bool        // it was not made for a session
	stood     time.Time   // when the jail check was over
	after     []func() error
	mark      int // undo steps of the session before it had a jail
}

// buildSteps make a jail that stands: only a command is missing. The name is what
// the user sees when it fails. They run at the start of a session, or before there
// is one, so none of them knows a session.
var buildSteps = []step[*build]{
	{"home", (*build).makeHome},
	{"mounts", (*build).makeMounts},
	{"init", (*build).awaitSpare},
	{"limits", (*build).limit},
	{"kernel rules", (*build).assignRules},
	{"guarantees", (*build).judge},
	{"opens", (*build).makeGroup},
	{"build", (*build).tellInit},
	{"jail check", (*build).awaitReady},
}

func (s *Server) newBuild(ctx context.Context, o order, going func() error) *build {
	b := &build{order: o, s: s, ctx: ctx, going: going, sources: make(map[string]source, len(o.given)+2*len(jail.Devices))}
	b.uid, b.gid = agentIDs(o.owner)
	return b
}

// make makes the jail of b.sp. When it fails nothing is left.
func (b *build) make() error {
	err := through(b, buildSteps, b.going, &b.took)
	b.release()
	if err != nil {
		b.abandon()
		return err
	}
	b.stood = time.Now()
	return nil
}

// push adds what is undone when all of the jail is gone, last first.
func (b *build) push(f func() error) { b.after = append(b.after, f) }

// abandon undoes what nobody claimed, and what push added. Idempotent.
func (b *build) abandon() {
	b.sp.abandon(b.s)
	for i := len(b.after) - 1; i >= 0; i-- {
		if err := b.after[i](); err != nil {
			b.s.log.Error("undo a jail", "id", b.sp.id, "error", err)
		}
	}
	b.after = nil
}

// stands reports whether the jail, which was built ahead, is the one that now would
// make: it shows the same objects of the same mounts in the same way under the same
// policy to the same user, nothing that it shows was mounted, unmounted or changed
// meanwhile, and its init waits and finds nothing to add.
func (b *build) stands(ctx context.Context, now *build) bool {
	return b.identity == now.identity && b.ground.Like(now.mountsNow()) && b.sp.usable() && b.isFresh(ctx)
}

// askFresh has the init of a jail that stands look whether it would build it in the same way
// now. Nobody else reads its socket yet.
func (b *build) askFresh() { _ = b.sp.jail.Control.Send(jail.Message{Op: jail.OpLook}) } // a dead init does not answer

// isFresh is what init answers.
func (b *build) isFresh(ctx context.Context) bool {
	j := b.sp.jail
	defer context.AfterFunc(ctx, j.Kill)()
	_ = j.Control.SetDeadline(time.Now().Add(readyTimeout))
	defer func() { _ = j.Control.SetDeadline(time.Time{}) }()
	var m jail.Message
	fds, err := j.Control.Receive(&m)
	packet.CloseAll(fds)
	return err == nil && m.Op == jail.OpLook
}

// awaitSpare returns when there is an init to build the jail.
func (b *build) awaitSpare() error {
	if err := b.sp.wait(b.ctx); err != nil {
		return err
	}
	return b.sp.revive(b.s)
}

func (b *build) limit() error {
	missing, err := b.sp.group.Limit(b.s.layout, limits(b.res))
	if err != nil {
		return err
	}
	for _, m := range missing {
		b.report.Missing = append(b.report.Missing, rpc.Missing{Guarantee: m.Guarantee, Why: m.Why, Hint: m.Hint})
	}
	return nil
}

func (b *build) assignRules() error {
	return b.s.kernel.assign(b.sp.number, b.sp.jail.Pid, b.prepared, b.ahead, b.sp.ruleName)
}

// limits are the policy's resources as a group takes them.
func limits(r *policy.Resolved) cgroup.Limits {
	return cgroup.Limits{
		Memory: int64(r.Resources.Memory), Swap: int64(r.Resources.Swap), CPU: r.Resources.CPU.Limit(runtime.NumCPU()), Pids: int64(r.Resources.Pids),
	}
}

// source is an object that a jail will show.
type source struct {
	file   *os.File    // O_PATH
	attach jail.Attach // without its id map until the range is known
	ids    *owned      // whose ids it is shown with; nil: the system's
	mapped bool        // it has an id map
	st     unix.Statx_t
	given  bool // the file is the order's
	// system: read-only and the host's own, which may lie on a file system that
	// knows no id maps (sysfs). Ids then show as nobody's; nothing more is allowed.
	system bool
	own    bool // of this jail alone
}

// detach clones what is behind a target.
func (b *build) detach(target string) (*os.File, error) {
	src, ok := b.sources[target]
	if !ok {
		return nil, fmt.Errorf("no descriptor for %s", target)
	}
	m, err := jail.Detach(int(src.file.Fd()), src.attach)
	if errors.Is(err, unix.EINVAL) && src.attach.IDMap != nil {
		if !src.system {
			return nil, &rpc.Error{Code: rpc.Unsupported, Step: "mounts", Text: fmt.Sprintf("%s: %v: its file system cannot be idmapped", target, err), Hint: "keep it on ext4, xfs, btrfs or tmpfs"}
		}
		plain := src.attach
		plain.IDMap = nil
		m, err = jail.Detach(int(src.file.Fd()), plain)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", target, err)
	}
	return m, nil
}

func (b *build) detachAll(targets []string) (out []*os.File, err error) {
	for _, t := range targets {
		m, err := b.detach(t)
		if err != nil {
			packet.CloseAll(out)
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// release closes what init has by now, or never will. Idempotent.
func (b *build) release() {
	packet.CloseAll(append(b.parts.Mounts, b.parts.Tree))
	b.parts.Mounts, b.parts.Tree = nil, nil
	for t, src := range b.sources {
		if !src.given {
			_ = src.file.Close()
		}
		delete(b.sources, t)
	}
}

// look finds out what the jail will show, and says in b.identity everything that
// decides what jail it is, except what is new in each: its id range and home.
func (b *build) look() error {
	b.in = jail.Input{
		Name: b.host, Build: b.s.build, UID: b.uid, GID: b.gid, User: b.user, Home: b.res.Vars.Home,
		Private: scratch, Tmp: uint64(b.res.Resources.Tmp), OpenFiles: uint64(b.res.Resources.OpenFiles), HomeBind: true,
	}
	if b.s.netd != nil && reach.Wanted(b.res) {
		b.in.Resolver = netpolicy.Resolver4.String()
	}
	for _, d := range jail.Devices {
		if err := b.open("/dev/"+d, "/dev/"+d); err == nil {
			b.in.Devices = append(b.in.Devices, d)
		} else if !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	b.in.Given = make([]jail.Given, 0, len(b.given))
	for _, g := range b.given {
		src := source{file: g.file, given: true, mapped: true}
		if err := src.stat(); err != nil {
			return fmt.Errorf("%s: %w", g.path, err)
		}
		d, err := describe(g, &src.st)
		if err != nil {
			return err
		}
		if src.ids, err = b.idsFor(g); err != nil {
			return err
		}
		e := b.view[g.path]
		d.ReadOnly, d.Exec, d.Overlay = e.Access == policy.ReadOnly, e.Exec, e.Access == policy.Layered
		d.Room = d.Overlay || slices.Contains(b.res.Vars.State, g.path)
		d.Own = !d.ReadOnly || b.ownedTree(g.path) != ""
		src.system, src.own = d.ReadOnly && src.ids == nil, d.Own
		src.attach = jail.Attach{ReadOnly: d.ReadOnly || d.Overlay, NoExec: !d.Exec}
		b.sources[g.path] = src
		b.in.Given = append(b.in.Given, d)
	}
	if b.owner.uid == 0 {
		b.in.Given, b.in.Covers = b.openWays(b.in)
	}
	key, err := b.key(true)
	b.identity = fmt.Sprint(b.owner.uid, " ", b.owner.gid, " ", key)
	return err
}

// makeMounts compiles the mount plan and makes the detached mounts for it.
func (b *build) makeMounts() error {
	ground := b.mountsNow()
	if err := b.ownSources(); err != nil {
		return err
	}
	if err := b.mapIDs(); err != nil {
		return err
	}
	key, err := b.key(false)
	if err != nil {
		return err
	}
	p, err := b.planned(key, func() (jail.Plan, error) { return jail.Compile(b.in) })
	if err != nil {
		return err
	}
	b.spec = p.Spec
	b.spec.Session = b.sp.id
	b.parts.Tree, err = b.s.trees.Clone(key, ground, p.Tree, b.sp.base, b.uid, func() ([]*os.File, error) { return b.detachAll(p.shared) })
	if err != nil {
		return err
	}
	b.parts.Mounts, err = b.detachAll(p.own)
	b.ground = b.s.trees.Steady(ground)
	return err
}

// mountsNow looks at the host's mounts of what look has found.
func (b *build) mountsNow() jail.Ground {
	shown := make([]jail.Source, 0, len(b.sources))
	for target, src := range b.sources {
		shown = append(shown, jail.Source{Path: target, Mount: src.st.Mnt_id})
	}
	return b.s.trees.Ground(shown)
}

// mapIDs gives each source the id map of this jail's range.
func (b *build) mapIDs() error {
	for t, src := range b.sources {
		if !src.mapped {
			continue
		}
		var err error
		if src.ids == nil {
			src.attach.IDMap, err = b.s.ranges.System(b.sp.base)
		} else {
			src.attach.IDMap, err = b.s.ranges.Owner(b.sp.base, src.ids.uid, b.uid, src.ids.gid, b.gid)
		}
		if err != nil {
			return err
		}
		b.sources[t] = src
	}
	return nil
}

// key says everything that decides what a plan and its shared tree are: the
// words that go into it, whose ids it shows, and for each source which object of
// which mount of the host it is, and how it is shown. What a jail has of its own is
// another object each time, but in no tree, only its place is; with whole, which is
// for a jail and not for a tree, it is said too.
func (b *build) key(whole bool) (string, error) {
	words := b.in
	words.Given = nil // said below, object by object
	base := uint32(0)
	if !whole {
		base = b.sp.base
	}
	h := sha256.New()
	if err := json.NewEncoder(h).Encode([]any{words, b.hash, base}); err != nil {
		return "", err
	}
	buf := make([]byte, 0, 128*len(b.sources))
	flag := func(on bool) {
		n := byte(0)
		if on {
			n = 1
		}
		buf = append(buf, n)
	}
	for _, t := range slices.Sorted(maps.Keys(b.sources)) {
		src := b.sources[t]
		st := &src.st
		buf = append(append(buf, t...), 0)
		buf = binary.LittleEndian.AppendUint16(buf, st.Mode&unix.S_IFMT)
		flag(src.attach.ReadOnly)
		flag(src.attach.NoExec)
		flag(src.mapped)
		flag(src.own)
		if src.ids != nil && whole {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(src.ids.uid))
			buf = binary.LittleEndian.AppendUint32(buf, uint32(src.ids.gid))
		}
		link := st.Mode&unix.S_IFMT == unix.S_IFLNK // is in the tree by what it says
		if whole {
			buf = binary.LittleEndian.AppendUint16(buf, st.Mode)
			buf = binary.LittleEndian.AppendUint32(buf, st.Uid)
			buf = binary.LittleEndian.AppendUint32(buf, st.Gid)
		}
		if whole || !src.own || link {
			buf = binary.LittleEndian.AppendUint64(buf, unix.Mkdev(st.Dev_major, st.Dev_minor))
			buf = binary.LittleEndian.AppendUint64(buf, st.Ino)
			buf = binary.LittleEndian.AppendUint64(buf, st.Mnt_id)
		}
		if !src.own || link { // the caller's own changes all the time, and is the same object
			buf = binary.LittleEndian.AppendUint64(buf, uint64(st.Ctime.Sec))
			buf = binary.LittleEndian.AppendUint32(buf, st.Ctime.Nsec)
		}
	}
	h.Write(buf)
	return string(h.Sum(nil)), nil
}

// ownSources adds what is new in every jail: the home layer, what it has of ours to
// see, what it shares with other sessions, and layers over directories of the user's.
func (b *build) ownSources() error {
	fd, err := unix.FcntlInt(b.s.initFile.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	tool := source{file: os.NewFile(uintptr(fd), jail.ToolPath), attach: jail.Attach{ReadOnly: true}, own: true}
	err = tool.stat()
	b.sources[jail.ToolPath] = tool // closed with the rest
	if err != nil {
		return err
	}
	b.in.System = append(b.in.System, jail.Given{Path: jail.ToolPath, ReadOnly: true, Exec: true, Own: true})
	b.in.Hint = why.Hint
	if err := b.shareTrees(); err != nil {
		return err
	}
	for _, d := range b.in.Given {
		if d.Overlay {
			if err := b.layOver(d); err != nil {
				return err
			}
		}
	}
	return b.open(b.res.Vars.Home, b.layer.Home())
}

// stat reads what object of which mount the source is.
func (s *source) stat() error {
	const want = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_UID | unix.STATX_GID | unix.STATX_INO | unix.STATX_CTIME | unix.STATX_MNT_ID
	return unix.Statx(int(s.file.Fd()), "", unix.AT_EMPTY_PATH, want, &s.st)
}

// open adds a path of ours, never of a user, as the source of a target.
func (b *build) open(target, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	src := source{file: os.NewFile(uintptr(fd), path), own: target != path}
	err = src.stat()
	b.sources[target] = src // closed with the rest
	return err
}

// tellInit sends init everything it builds the jail of.
func (b *build) tellInit() error {
	b.spec.Audit = b.res.Audit.Files
	b.spec.Broker, b.spec.Hide = b.broker, b.hides
	b.spec.Kernel = b.hides && b.s.kernel.enforces()
	b.spec.Opens, b.parts.Opens = b.asked != nil, b.asked
	if b.spec.Fifos = nil; b.spec.Opens && !b.hides {
		for _, m := range b.spec.Mounts {
			if (m.Kind == jail.Bind || m.Kind == jail.Overlay) && m.IsDir && b.marked(m.Target)&unix.FAN_OPEN_PERM != 0 {
				b.spec.Fifos = append(b.spec.Fifos, m.Target)
			}
		}
	}
	b.spec.Unix = b.res.Net.Unix
	b.spec.Canaries = canaries(b.res, b.rules, b.spec.Broker || b.s.kernel.enforces(), b.s.kernel.enforces())
	if b.checkedIn = b.s.checked.get(b.checkKey()); b.checkedIn != "" {
		b.spec.Canaries = known(b.spec.Canaries)
	}
	b.parts.Spec, b.parts.Filter, b.parts.Rules = b.spec, b.program, b.blob
	if err := b.sp.jail.Build(b.parts); err != nil {
		return b.gone(err)
	}
	return nil
}

// awaitReady waits until init has built and checked the jail. Nobody else reads
// init's socket yet, and nothing runs that it could tell of.
func (b *build) awaitReady() error {
	j := b.sp.jail
	defer context.AfterFunc(b.ctx, j.Kill)()
	_ = j.Control.SetDeadline(time.Now().Add(readyTimeout))
	err := b.receive()
	if err == nil && b.answer.Op == jail.OpMounted && b.asked != nil {
		if err = b.markMounts(); err == nil {
			b.answer = jail.Message{}
			err = b.receive()
		}
	}
	_ = j.Control.SetDeadline(time.Time{})
	switch {
	case errors.Is(err, errMarks):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("init was not ready after %s", readyTimeout)
	case err != nil:
		return b.gone(err)
	case b.answer.Op == jail.OpFailed:
		return initError(b.answer)
	case b.answer.Op != jail.OpReady:
		return fmt.Errorf("init said %q", b.answer.Op)
	}
	if b.answer.ABI == 0 {
		b.missing(policy.Landlock, "the kernel has no Landlock", "boot with landlock in lsm=")
		return b.judge()
	}
	return nil
}

func (b *build) receive() error {
	fds, err := b.sp.jail.Control.Receive(&b.answer)
	packet.CloseAll(fds)
	return err
}

// makeGroup makes the group that asks init about opens for reading. It is held until
// the jail is gone: with its last holder the marks end.
func (b *build) makeGroup() (err error) {
	if !b.reads || !b.asks() {
		return nil
	}
	if b.asked, err = opens.NewGroup(); err == nil {
		b.push(b.asked.Close)
	}
	return err
}

// errMarks says that opens of the jail could not be asked about.
var errMarks = errors.New("mark the jail's mounts")

// markMounts marks the mounts of the jail on which something is refused. Init waits for that
// before it checks the jail.
func (b *build) markMounts() error {
	j := b.sp.jail
	err := opens.Mark(b.asked, j.Pid, b.marked)
	if err == nil {
		_ = j.Control.Send(jail.Message{Op: jail.OpMarked}) // a dead init ends the start
		return nil
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // so it is with a process that ends
		select {
		case <-j.Ended:
			return nil // and it may have said why
		case <-time.After(time.Second):
		}
	}
	return fmt.Errorf("%w: %w", errMarks, err)
}

// gone says why init does not answer: it has ended, or will now.
func (b *build) gone(err error) error {
	j := b.sp.jail
	if stopped := j.Stop(); stopped != nil {
		return errors.Join(err, stopped)
	}
	return fmt.Errorf("%w: %s", errGone, firstLine(j.Said()))
}
