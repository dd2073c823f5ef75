package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/cgroup"
	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/broker"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/jail/seccomp"
	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/glob"
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
	ctx     context.Context // ends with the conversation
	v       *session
	uid     int // of the agent, inside
	gid     int
	base    uint32
	rules   *glob.Automaton
	explain *policy.Explainer
	filter  seccomp.Program
	spec    jail.Spec
	files   map[string]*os.File // detached mounts by target
	parts   jail.Parts
	group   *cgroup.Group
	report  rpc.Report
	ready   chan initAnswer
	answer  jail.Message
	homeDir string
	took    []jail.Step // of startSteps
}

// startSteps make a jail, in order. Each pushes its undo. The name is what the
// user sees when it fails.
var startSteps = []struct {
	name string
	do   func(*build) error
}{
	{"id range", (*build).takeRange},
	{"rules", (*build).compileRules},
	{"system call filter", (*build).compileFilter},
	{"audit log", (*build).openLog},
	{"cgroup", (*build).makeGroup},
	{"disk meter", (*build).meterDisk},
	{"kernel rules", (*build).addRules},
	{"home", (*build).makeHome},
	{"mounts", (*build).makeMounts},
	{"guarantees", (*build).judge},
	{"init", (*build).startInit},
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
	b := &build{v: v, files: map[string]*os.File{}, ready: make(chan initAnswer, 1)}
	v.building.Lock()
	err = b.run(ctx)
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

func (b *build) takeRange() error {
	r := b.v.s.ranges
	base, err := r.Take()
	if err != nil {
		return err
	}
	b.base = base
	b.uid, b.gid = agentIDs(b.v.owner)
	b.v.push(func() error { r.Put(base); return nil })
	return nil
}

func (b *build) compileRules() error {
	c, err := b.v.s.rules.get(b.v.res)
	if err != nil {
		return err
	}
	b.rules, b.explain = c.Automaton(), c
	return nil
}

// brokered reports whether files are decided by the broker in init.
func (b *build) brokered() bool {
	return !b.v.s.kernel.enforces() && b.v.res.NeedsEngine()
}

func (b *build) compileFilter() (err error) {
	spec := seccomp.Spec{
		Profile: b.v.res.Syscalls.Profile, Allow: b.v.res.Syscalls.Allow, Deny: b.v.res.Syscalls.Deny,
		Userns: b.v.res.Syscalls.UserNamespaces,
	}
	if b.brokered() {
		spec.Notify = broker.Notified
	}
	b.filter, err = b.v.s.filter.Build(spec)
	return err
}

func (b *build) openLog() error {
	r, err := b.v.s.newRecorder(b.v)
	if err != nil {
		return err
	}
	r.explain = b.explain
	b.v.record = r
	b.v.push(r.Close)
	return nil
}

func (b *build) makeGroup() error {
	g, missing, err := cgroup.Create(b.v.s.layout, b.v.id, limits(b.v.res))
	if err != nil {
		return err
	}
	b.group, b.v.group = g, g
	b.v.record.group.Store(g)
	b.v.push(func() error {
		return errors.Join(g.Kill(), g.Delete(deleteTimeout))
	})
	for _, m := range missing {
		b.report.Missing = append(b.report.Missing, rpc.Missing{Guarantee: m.Guarantee, Why: m.Why, Hint: m.Hint})
	}
	return nil
}

func (b *build) addRules() error {
	v := b.v
	id, err := b.group.ID()
	if err != nil {
		return err
	}
	if err := v.s.kernel.add(v.number, id, b.rules.Bytes(), v.res, b.brokered()); err != nil {
		return err
	}
	v.push(func() error { return v.s.kernel.remove(v.number, v.s.observed) })
	return nil
}

// limits are the policy's resources as a group takes them.
func limits(r *policy.Resolved) cgroup.Limits {
	return cgroup.Limits{
		Memory: int64(r.Resources.Memory), Swap: int64(r.Resources.Swap), CPU: r.Resources.CPU.Limit(runtime.NumCPU()), Pids: int64(r.Resources.Pids),
	}
}

// makeHome makes the session's home layer: what the agent installs stays there
// and goes with the session.
func (b *build) makeHome() error {
	dir := filepath.Join(b.v.s.layersDir(), b.v.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	b.v.push(func() error { return os.RemoveAll(dir) })
	b.homeDir = filepath.Join(dir, "home")
	if err := os.Mkdir(b.homeDir, 0o750); err != nil {
		return err
	}
	return os.Chown(b.homeDir, int(b.base)+b.uid, int(b.base)+b.gid)
}

// detach clones the object behind f for the jail.
func (b *build) detach(target string, fd int, a jail.Attach) error {
	m, err := jail.Detach(fd, a)
	if err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	b.files[target] = m
	return nil
}

// makeMounts compiles the mount plan and makes the detached mounts for it.
func (b *build) makeMounts() error {
	v := b.v
	defer func() { // after init has them, or never
		v.mu.Lock()
		for _, g := range v.given {
			_ = g.file.Close()
		}
		v.given = nil
		v.mu.Unlock()
	}()
	in := jail.Input{
		Session: v.id, Name: v.name, Build: v.s.build, UID: b.uid, GID: b.gid, User: userName(v.doc.Env), Home: v.res.Vars.Home,
		Private: scratch, Tmp: uint64(v.res.Resources.Tmp), OpenFiles: uint64(v.res.Resources.OpenFiles), HomeBind: true,
	}
	v.push(func() error {
		for _, f := range b.files {
			_ = f.Close()
		}
		return nil
	})
	system, err := v.s.ranges.System(b.base)
	if err != nil {
		return err
	}
	if err := b.systemMounts(&in); err != nil {
		return err
	}
	access := map[string]policy.Mount{}
	for _, e := range v.res.View() {
		access[e.Path] = e
	}
	for _, g := range v.given {
		d, err := describe(g)
		if err != nil {
			return err
		}
		e := access[g.path]
		d.ReadOnly, d.Exec = e.Access == policy.ReadOnly, e.Exec
		in.Given = append(in.Given, d)
		if d.Link != "" {
			continue
		}
		ids, err := b.idmapFor(g, system)
		if err != nil {
			return err
		}
		if err := b.show(g, d, ids, ids == system); err != nil {
			return err
		}
	}
	if v.owner.uid == 0 {
		in.Given, in.Covers = b.openWays(in)
	}
	spec, targets, err := jail.Compile(in)
	if err != nil {
		return err
	}
	b.spec = spec
	for _, t := range targets {
		f := b.files[t]
		if f == nil {
			return fmt.Errorf("no descriptor for %s", t)
		}
		b.parts.Mounts = append(b.parts.Mounts, f)
	}
	return nil
}

// show detaches what a user gave. What is the system's and read-only may lie on
// a file system that knows no id maps (sysfs): ids then show as nobody's, and
// nothing more is allowed. What can be written must be mapped.
func (b *build) show(g given, d jail.Given, ids *os.File, system bool) error {
	a := jail.Attach{ReadOnly: d.ReadOnly, NoExec: !d.Exec, IDMap: ids}
	err := b.detach(g.path, int(g.file.Fd()), a)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	if d.ReadOnly && system {
		a.IDMap = nil
		return b.detach(g.path, int(g.file.Fd()), a)
	}
	return &rpc.Error{Code: rpc.Unsupported, Step: "mounts", Text: fmt.Sprintf("%v: its file system cannot be idmapped", err), Hint: "keep the workspace on ext4, xfs, btrfs or tmpfs"}
}

// systemMounts adds what every jail has from the host whatever the policy says:
// devices and the home layer.
func (b *build) systemMounts(in *jail.Input) error {
	for _, d := range jail.Devices {
		if err := b.open("/dev/"+d, jail.Attach{}); err == nil {
			in.Devices = append(in.Devices, d)
		} else if !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	if b.v.s.kernel.enforces() {
		if err := b.detach(jail.CanaryPath, int(b.v.s.initFile.Fd()), jail.Attach{ReadOnly: true}); err != nil {
			return err
		}
		in.System = append(in.System, jail.Given{Path: jail.CanaryPath, ReadOnly: true, Exec: true})
	}
	fd, err := unix.Open(b.homeDir, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return b.detach(b.v.res.Vars.Home, fd, jail.Attach{})
}

// open detaches a path of ours, never of a user.
func (b *build) open(path string, a jail.Attach) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return b.detach(path, fd, a)
}

func (b *build) startInit() error {
	v := b.v
	b.spec.Process = jail.Process{Argv: v.doc.Argv, Env: v.doc.Env, Cwd: v.doc.Cwd}
	b.spec.Audit = v.res.Audit.Files
	b.spec.Broker = b.brokered()
	b.spec.Rules, b.spec.Unix = ruleTexts(v.res), v.res.Net.Unix
	b.spec.Canaries = canaries(v.res, b.rules, b.spec.Broker || v.s.kernel.enforces(), v.s.kernel.enforces())
	filter, err := seccomp.Memfd(b.filter)
	if err != nil {
		return err
	}
	defer filter.Close()
	rules, err := jail.Memfd("agentos-rules", b.rules.Bytes(), false)
	if err != nil {
		return err
	}
	defer rules.Close()
	b.parts.Spec, b.parts.Init, b.parts.Base, b.parts.Cgroup, b.parts.Filter, b.parts.Rules = b.spec, v.s.init, b.base, b.group.FD(), filter, rules
	b.parts.Enter = b.group.Enter
	j, err := jail.Start(b.parts)
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.jail = j
	v.initPid.Store(int32(j.Pid))
	v.mu.Unlock()
	pumps := v.attach(j, b.ready)
	v.push(func() error {
		killed := b.group.Kill() // everything at once, also what init could not reach
		err := j.Stop()
		if err == nil {
			<-pumps // every event that was sent is in the log
		}
		return errors.Join(killed, err, j.Close())
	})
	if err := v.s.kernel.trust(v.number, j.Pid); err != nil {
		return err
	}
	return j.Control.Send(jail.Message{Op: jail.OpGo})
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
	return nil
}

// receipt writes the first record: what was checked, on what, with which result.
func (b *build) receipt() (json.RawMessage, error) {
	v := b.v
	b.report.Tier = v.s.kernel.tier()
	for _, r := range v.res.Refused {
		b.report.Refused = append(b.report.Refused, r.String())
	}
	out, err := json.Marshal(map[string]any{
		"session": v.id, "name": v.name, "agent": v.doc.Agent, "uid": v.owner.uid, "workspace": v.res.Vars.Workspace,
		"policy": v.res.Name, "policy_sha256": v.res.Hash(), "filter_sha256": seccomp.Hash(b.filter), "kernel": kernelRelease(),
		"tier": b.report.Tier, "landlock_abi": b.answer.ABI, "enforced": b.report.Enforced, "missing": b.report.Missing,
		"refused": b.report.Refused, "build_steps": b.took, "steps": b.answer.Steps, "checks": b.answer.Checks, "build": v.s.build,
	})
	if err != nil {
		return nil, err
	}
	v.record.put(event.Event{Kind: event.Receipt, Verdict: event.Allow, Path: v.res.Vars.Workspace, Detail: string(out)})
	v.record.live.Store(time.Now().UnixNano())
	v.record.put(event.Event{Kind: event.Start, Verdict: event.Allow, Argv: v.doc.Argv, Path: v.doc.Argv[0], Detail: v.doc.Cwd})
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

// spawn starts a further process in a running jail.
func (c *conversation) spawn(m rpc.SpawnProc, fds []*os.File) (any, []*os.File, error) {
	v, err := c.live(m.Session)
	if err != nil {
		return nil, nil, err
	}
	if err := checkStdio(m.Terminal, fds); err != nil {
		return nil, nil, err
	}
	if err := checkCommand(m.Argv, m.Env); err != nil {
		return nil, nil, err
	}
	v.record.put(event.Event{Kind: event.Spawn, Verdict: event.Allow, Argv: m.Argv, Path: m.Argv[0], Detail: fmt.Sprintf("uid %d pid %d", c.peer.uid, c.peer.pid)})
	n, out, err := v.startProc(jail.Message{Op: jail.OpRun, Argv: m.Argv, Env: m.Env, Cwd: m.Cwd}, m.Terminal, fds)
	if err != nil {
		return nil, nil, err
	}
	return rpc.Spawned{Proc: n}, out, nil
}
