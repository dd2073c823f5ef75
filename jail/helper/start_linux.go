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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/generation"
	"github.com/agentos/agentos/jail/layer"
	"github.com/agentos/agentos/jail/opens"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/why"
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

// build is what the steps of a start fill.
type build struct {
	ctx  context.Context // ends with the conversation
	v    *session
	uid  int // of the agent, inside
	gid  int
	base uint32
	*prepared
	spec    jail.Spec
	sources map[string]source // of mounts, by target
	parts   jail.Parts
	group   *cgroup.Group
	report  rpc.Report
	ready   chan initAnswer
	answer  jail.Message
	layer   *layer.Session
	took    []jail.Step // of startSteps
	log     chan recording
}

// startSteps make a jail, in order. Each pushes its undo. The name is what the
// user sees when it fails.
var startSteps = []struct {
	name string
	do   func(*build) error
}{
	{"policy", (*build).compilePolicy},
	{"begin audit log", (*build).beginLog},
	{"home", (*build).makeHome},
	{"mounts", (*build).makeMounts},
	{"audit log", (*build).openLog},
	{"init", (*build).adopt},
	{"limits", (*build).limit},
	{"disk meter", (*build).meterDisk},
	{"kernel rules", (*build).assignRules},
	{"guarantees", (*build).judge},
	{"build", (*build).tellInit},
	{"jail check", (*build).awaitReady},
}

// start builds the drafted jail and starts the agent in it.
func (c *conversation) start(ctx context.Context, m rpc.StartJail, fds []*os.File) (any, []*os.File, error) {
	v, err := c.find(m.Session)
	if err != nil {
		return nil, nil, err
	}
	if err := checkStdio(m.Terminal, fds); err != nil {
		return nil, nil, err
	}
	if !v.advance(starting) {
		return nil, nil, invalid("session %s was started before", v.name)
	}
	b := &build{v: v, base: v.spare.base, sources: map[string]source{}, ready: make(chan initAnswer, 1), prepared: v.policy}
	b.uid, b.gid = agentIDs(v.owner)
	v.building.Lock()
	err = b.run(ctx)
	b.release()
	v.building.Unlock()
	if err != nil {
		v.close()
		return nil, nil, err
	}
	receipt, err := b.receipt()
	if err != nil {
		v.close()
		return nil, nil, err
	}
	v.mu.Lock()
	v.procs[1] = &proc{}
	v.mu.Unlock()
	_, out, err := v.startProc(jail.Message{Op: jail.OpRun}, m.Terminal, fds)
	if err != nil {
		v.close()
		return nil, nil, err
	}
	if !v.advance(running) {
		packet.CloseAll(out)
		return nil, nil, &rpc.Error{Code: rpc.Failed, Text: "the session was ended while it started"}
	}
	c.s.pool.tmp.Store(uint64(v.res.Resources.Tmp))
	c.s.refillSoon()
	return rpc.Started{Session: v.id, Proc: 1, Report: b.report, Receipt: receipt}, out, nil
}

// checkStdio: with a terminal none, without exactly three pipes. Nothing else of
// the caller's enters a jail: no file, no directory, no socket.
func checkStdio(t *rpc.Terminal, fds []*os.File) error {
	if t != nil {
		if len(fds) != 0 {
			return invalid("a terminal and descriptors exclude each other")
		}
		return nil
	}
	if len(fds) != 3 {
		return invalid("want three pipes for stdin, stdout and stderr, not %d descriptors", len(fds))
	}
	for i, f := range fds {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return err
		}
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		want := unix.O_WRONLY
		if i == 0 {
			want = unix.O_RDONLY
		}
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO || flags&unix.O_ACCMODE != want {
			return invalid("descriptor %d is not the right end of a pipe", i)
		}
	}
	return nil
}

func (b *build) run(ctx context.Context) error {
	b.ctx = ctx
	for _, st := range startSteps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if b.v.now() != starting {
			return &rpc.Error{Code: rpc.Failed, Text: "the session was ended while it started"}
		}
		began := time.Now()
		err := st.do(b)
		b.took = append(b.took, jail.Step{Name: st.name, Micros: time.Since(began).Microseconds()})
		if err != nil {
			var e *rpc.Error
			if errors.As(err, &e) {
				return err
			}
			return &rpc.Error{Code: rpc.Failed, Step: st.name, Text: err.Error()}
		}
	}
	return nil
}

func (b *build) compilePolicy() error { return b.compiled(b.v.s) }

// recording is a recorder, or why there is none.
type recording struct {
	*recorder
	err error
}

// beginLog makes the log while the mounts are made: both wait for the kernel.
func (b *build) beginLog() error {
	b.log = make(chan recording, 1)
	go func() {
		r, err := b.v.s.newRecorder(b.v)
		b.log <- recording{r, err}
	}()
	return nil
}

func (b *build) openLog() error {
	log := <-b.log
	b.log = nil
	if log.err != nil {
		return log.err
	}
	log.rules = generation.New(generation.Rules{Policy: b.v.res, Explain: b.explain})
	b.v.record.Store(log.recorder)
	b.v.push(log.Close)
	return nil
}

// adopt makes the spare this session's.
func (b *build) adopt() error {
	v, sp := b.v, b.v.spare
	if err := sp.wait(b.ctx); err != nil {
		return err
	}
	undo := sp.claim()
	if undo == nil {
		return errors.New("the jail was given up")
	}
	for _, f := range undo {
		v.push(f)
	}
	if err := sp.revive(v.s); err != nil {
		return err
	}
	g, j := sp.group, sp.jail
	b.group = g
	v.record.Load().group.Store(g)
	v.mu.Lock()
	v.jail, v.group = j, g
	v.initPid.Store(int32(j.Pid))
	v.mu.Unlock()
	if b.reads && b.asks() {
		// Held until the jail is gone: with its last holder the marks end.
		group, err := opens.NewGroup()
		if err != nil {
			return err
		}
		v.opens = group
		v.push(group.Close)
	}
	pumps := v.attach(j, b.ready)
	v.push(func() error {
		killed := g.Kill() // everything at once, also what init could not reach
		err := j.Stop()
		if err == nil {
			<-pumps // every event that was sent is in the log
		}
		return errors.Join(killed, err, j.Close())
	})
	return nil
}

func (b *build) limit() error {
	missing, err := b.group.Limit(b.v.s.layout, limits(b.v.res))
	if err != nil {
		return err
	}
	for _, m := range missing {
		b.report.Missing = append(b.report.Missing, rpc.Missing{Guarantee: m.Guarantee, Why: m.Why, Hint: m.Hint})
	}
	return nil
}

func (b *build) assignRules() error {
	v := b.v
	return v.s.kernel.assign(v.number, v.jail.Pid, b.prepared, v.record.Load().kernelRule)
}

// limits are the policy's resources as a group takes them.
func limits(r *policy.Resolved) cgroup.Limits {
	return cgroup.Limits{
		Memory: int64(r.Resources.Memory), Swap: int64(r.Resources.Swap), CPU: r.Resources.CPU.Limit(runtime.NumCPU()), Pids: int64(r.Resources.Pids),
	}
}

// source is an object that a jail will show.
type source struct {
	file   *os.File // O_PATH
	attach jail.Attach
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

// release closes what init has by now, or never will.
func (b *build) release() {
	if b.log != nil { // a step between the two failed
		if log := <-b.log; log.err == nil {
			_ = log.Close()
		}
	}
	packet.CloseAll(append(b.parts.Mounts, b.parts.Tree))
	for _, s := range b.sources {
		_ = s.file.Close()
	}
}

// makeMounts compiles the mount plan and makes the detached mounts for it.
func (b *build) makeMounts() error {
	v := b.v
	in := jail.Input{
		Name: v.hostName(), Build: v.s.build, UID: b.uid, GID: b.gid, User: userName(v.doc.Env), Home: v.res.Vars.Home,
		Private: scratch, Tmp: uint64(v.res.Resources.Tmp), OpenFiles: uint64(v.res.Resources.OpenFiles), HomeBind: true,
	}
	system, err := v.s.ranges.System(b.base)
	if err != nil {
		return err
	}
	if err := b.ownSources(&in); err != nil {
		return err
	}
	given := v.takeGiven()
	for _, g := range given {
		b.sources[g.path] = source{file: g.file} // closed with the rest
	}
	if err := b.shareTrees(&in, given); err != nil {
		return err
	}
	for _, g := range given {
		d, err := describe(g)
		if err != nil {
			return err
		}
		ids, err := b.idmapFor(g, given, system)
		if err != nil {
			return err
		}
		e := b.view[g.path]
		d.ReadOnly, d.Exec, d.Overlay = e.Access == policy.ReadOnly, e.Exec, e.Access == policy.Layered
		d.Room = d.Overlay || slices.Contains(v.res.Vars.State, g.path)
		if d.Overlay {
			if err := b.layOver(d, g.file); err != nil {
				return err
			}
		}
		d.Own = !d.ReadOnly || b.ownedTree(g.path) != ""
		b.sources[g.path] = source{
			file: g.file, system: d.ReadOnly && ids == system, own: d.Own,
			attach: jail.Attach{ReadOnly: d.ReadOnly || d.Overlay, NoExec: !d.Exec, IDMap: ids},
		}
		in.Given = append(in.Given, d)
	}
	if v.owner.uid == 0 {
		in.Given, in.Covers = b.openWays(in)
	}
	key, err := b.planKey(in)
	if err != nil {
		return err
	}
	p, err := b.planned(key, func() (jail.Plan, error) { return jail.Compile(in) })
	if err != nil {
		return err
	}
	b.spec = p.Spec
	b.spec.Session = v.id
	b.parts.Tree, err = v.s.trees.Clone(key, p.Tree, b.base, b.uid, func() ([]*os.File, error) { return b.detachAll(p.shared) })
	if err != nil {
		return err
	}
	b.parts.Mounts, err = b.detachAll(p.own)
	return err
}

// planKey says everything that decides what a plan and its shared tree are: the
// words that go into it, whose ids it shows, and for each source which object of
// which mount of the host it is, and how it is shown.
func (b *build) planKey(in jail.Input) (string, error) {
	words := in
	words.Given = nil // said below, object by object
	h := sha256.New()
	if err := json.NewEncoder(h).Encode([]any{words, b.hash, b.base}); err != nil {
		return "", err
	}
	var buf []byte
	flag := func(on bool) {
		n := byte(0)
		if on {
			n = 1
		}
		buf = append(buf, n)
	}
	for _, t := range slices.Sorted(maps.Keys(b.sources)) {
		src := b.sources[t]
		var st unix.Statx_t
		if err := unix.Statx(int(src.file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_CTIME|unix.STATX_MNT_ID, &st); err != nil {
			return "", fmt.Errorf("%s: %w", t, err)
		}
		buf = append(append(buf, t...), 0)
		buf = binary.LittleEndian.AppendUint16(buf, st.Mode&unix.S_IFMT)
		flag(src.attach.ReadOnly)
		flag(src.attach.NoExec)
		flag(src.attach.IDMap != nil)
		flag(src.own)
		// What a jail has of its own is another object each time, but in no tree,
		// only its place is; a link is in the tree by what it says.
		if !src.own || st.Mode&unix.S_IFMT == unix.S_IFLNK {
			buf = binary.LittleEndian.AppendUint64(buf, unix.Mkdev(st.Dev_major, st.Dev_minor))
			buf = binary.LittleEndian.AppendUint64(buf, st.Ino)
			buf = binary.LittleEndian.AppendUint64(buf, st.Mnt_id)
			buf = binary.LittleEndian.AppendUint64(buf, uint64(st.Ctime.Sec))
			buf = binary.LittleEndian.AppendUint32(buf, st.Ctime.Nsec)
		}
	}
	h.Write(buf)
	return string(h.Sum(nil)), nil
}

// ownSources adds what every jail has whatever the policy says: devices, the
// home layer, and what it has of ours to see.
func (b *build) ownSources(in *jail.Input) error {
	for _, d := range jail.Devices {
		if err := b.open("/dev/"+d, "/dev/"+d); err == nil {
			in.Devices = append(in.Devices, d)
		} else if !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	fd, err := unix.FcntlInt(b.v.s.initFile.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	b.sources[jail.ToolPath] = source{file: os.NewFile(uintptr(fd), jail.ToolPath), attach: jail.Attach{ReadOnly: true}, own: true}
	in.System = append(in.System, jail.Given{Path: jail.ToolPath, ReadOnly: true, Exec: true, Own: true})
	in.Hint = why.Hint
	return b.open(b.v.res.Vars.Home, b.layer.Home())
}

// open adds a path of ours, never of a user, as the source of a target.
func (b *build) open(target, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	b.sources[target] = source{file: os.NewFile(uintptr(fd), path), own: target != path}
	return nil
}

// tellInit sends init everything it builds the jail of.
func (b *build) tellInit() error {
	v := b.v
	const session = "AGENTOS_SESSION="
	env := slices.DeleteFunc(slices.Clone(v.doc.Env), func(e string) bool { return strings.HasPrefix(e, session) })
	env = append(env, session+v.name)
	b.spec.Process = jail.Process{Argv: v.doc.Argv, Env: env, Cwd: v.doc.Cwd}
	b.spec.Audit = v.res.Audit.Files
	b.spec.Broker, b.spec.Hide = b.broker, b.hides
	b.spec.Kernel = b.hides && v.s.kernel.enforces()
	b.spec.Opens, b.parts.Opens = v.opens != nil, v.opens
	if b.spec.Fifos = nil; b.spec.Opens && !b.hides {
		for _, m := range b.spec.Mounts {
			if (m.Kind == jail.Bind || m.Kind == jail.Overlay) && m.IsDir && b.marked(m.Target)&unix.FAN_OPEN_PERM != 0 {
				b.spec.Fifos = append(b.spec.Fifos, m.Target)
			}
		}
	}
	b.spec.Unix = v.res.Net.Unix
	b.spec.Canaries = canaries(v.res, b.rules, b.spec.Broker || v.s.kernel.enforces(), v.s.kernel.enforces())
	if b.checkedIn() != "" {
		b.spec.Canaries = known(b.spec.Canaries)
	}
	b.parts.Spec, b.parts.Filter, b.parts.Rules = b.spec, b.program, b.blob
	return v.jail.Build(b.parts)
}

func (b *build) awaitReady() error {
	ctx := b.ctx
	t := time.NewTimer(readyTimeout)
	defer t.Stop()
	j := b.v.jail
	select {
	case m := <-b.ready:
		if m.Op == jail.OpFailed {
			return initError(m.Message)
		}
		b.answer = m.Message
	case <-j.Ended:
		select {
		case m := <-b.ready:
			if m.Op == jail.OpFailed {
				return initError(m.Message)
			}
		case <-time.After(100 * time.Millisecond): // the pump may still be reading
		}
		return fmt.Errorf("init ended: %s", firstLine(j.Said()))
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return fmt.Errorf("init was not ready after %s", readyTimeout)
	}
	if b.answer.ABI == 0 {
		b.missing(policy.Landlock, "the kernel has no Landlock", "boot with landlock in lsm=")
		return b.judge()
	}
	if b.checkedIn() == "" {
		b.v.s.checked.add(b.checkKey(), b.v.id)
	}
	return nil
}

// receipt writes the first record: what was checked, on what, with which result.
func (b *build) receipt() (json.RawMessage, error) {
	v := b.v
	b.report.Tier = v.s.kernel.tier()
	for _, r := range v.res.Refused {
		b.report.Refused = append(b.report.Refused, r.String())
	}
	fields := map[string]any{
		"session": v.id, "name": v.name, "agent": v.doc.Agent, "uid": v.owner.uid, "workspace": v.res.Vars.Workspace,
		"policy": v.res.Name, "policy_sha256": b.hash, "filter_sha256": b.sum, "kernel": kernelRelease(),
		"tier": b.report.Tier, "landlock_abi": b.answer.ABI, "enforced": b.report.Enforced, "missing": b.report.Missing,
		"refused": b.report.Refused, "layers": v.res.Layers, "build_steps": b.took, "steps": b.answer.Steps, "checks": b.answer.Checks, "build": v.s.build,
	}
	if before := b.checkedIn(); before != v.id {
		fields["checked_in"] = before // the session whose receipt has the checks that were not made again
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	v.record.Load().put(event.Event{Kind: event.Receipt, Verdict: event.Allow, Path: v.res.Vars.Workspace, Detail: string(out)})
	v.record.Load().put(event.Event{Kind: event.Start, Verdict: event.Allow, Argv: v.doc.Argv, Path: v.doc.Argv[0], Detail: v.doc.Cwd})
	return out, nil
}

// startProc asks init for a process and returns the terminal's master.
func (v *session) startProc(m jail.Message, t *rpc.Terminal, fds []*os.File) (int, []*os.File, error) {
	var nums []int
	if t != nil {
		m.TTY, m.Rows, m.Cols = true, t.Rows, t.Cols
	}
	for _, f := range fds {
		nums = append(nums, int(f.Fd()))
	}
	a, err := v.ask(m, nums...)
	if err != nil {
		return 0, nil, err
	}
	return a.Proc, a.fds, nil
}
