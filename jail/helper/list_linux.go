package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/layer"
	"github.com/agentos/agentos/jail/network"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
)

// maxListed bounds the sessions of one answer, so that it fits a message.
const maxListed = 200

// list names the caller's sessions, running ones first, then by age. Those that
// have ended are read from the disk, and may be many.
func (c *conversation) list(m rpc.ListSessions) (any, []*os.File, error) {
	var out rpc.Sessions
	live := map[string]bool{} // also what has a log and is not there yet
	c.s.mu.Lock()
	for _, v := range c.s.sessions {
		live[v.id] = true
		if c.peer.mayUse(v.owner.uid) && v.record.Load() != nil {
			out.Sessions = append(out.Sessions, v.row())
		}
	}
	c.s.mu.Unlock()
	var past []about
	if m.All {
		var err error
		if past, err = c.s.past(c.peer); err != nil {
			return nil, nil, err
		}
		_, since := c.running("") // what has started meanwhile has a log there, and has not ended
		maps.Copy(live, since)
	}
	for _, a := range past {
		if !live[a.ID] {
			out.Sessions = append(out.Sessions, rpc.Session{
				ID: a.ID, Name: a.Name, Agent: a.Agent, Policy: a.Policy, Swaps: a.Swaps, Workspace: a.Workspace, UID: a.UID,
				State: "ended", Started: a.Started, Denied: a.Denied, Records: a.Records, Glass: a.Glass,
			})
		}
	}
	slices.SortStableFunc(out.Sessions, func(x, y rpc.Session) int {
		if (x.State == "ended") != (y.State == "ended") {
			if x.State == "ended" {
				return 1
			}
			return -1
		}
		return y.Started.Compare(x.Started)
	})
	if m.After != "" {
		i := slices.IndexFunc(out.Sessions, func(s rpc.Session) bool { return s.ID == m.After })
		if i < 0 {
			return nil, nil, &rpc.Error{Code: rpc.NotFound, Text: "no session " + m.After, Hint: "the sessions have changed; ask for all of them again"}
		}
		out.Sessions = out.Sessions[i+1:]
	}
	all := len(out.Sessions)
	out.Sessions = fit(out.Sessions)
	out.More = len(out.Sessions) < all
	return out, nil, nil
}

// fit drops the oldest rows until the answer fits a message.
func fit(rows []rpc.Session) []rpc.Session {
	rows = rows[:min(len(rows), maxListed)]
	for len(rows) > 0 {
		data, err := json.Marshal(rows)
		if err != nil || len(data) < 60<<10 {
			break
		}
		rows = rows[:len(rows)*3/4]
	}
	return rows
}

func (v *session) row() rpc.Session {
	a := v.record.Load().described()
	r := rpc.Session{
		ID: a.ID, Name: a.Name, Agent: a.Agent, Policy: a.Policy, Swaps: a.Swaps, Workspace: a.Workspace, UID: a.UID,
		State: v.state(), Started: a.Started, Denied: v.record.Load().denied.Load(), Records: v.record.Load().records.Load(),
		Glass: a.Glass,
	}
	v.mu.Lock()
	g := v.group
	v.mu.Unlock()
	if g != nil {
		st := g.Stats()
		r.Procs, r.Memory, r.CPU = int(st.Pids), uint64(st.Memory), st.CPU.Seconds()
	}
	return r
}

// state is the session's phase in a word. A session whose agent has exited ends
// as soon as its caller has read the rest.
func (v *session) state() string {
	switch p := v.now(); {
	case v.over():
		return "ending"
	case v.record.Load().holds.Load() != 0:
		return "held"
	case p == running:
		return "running"
	default:
		return "starting"
	}
}

// past reads what is known of the sessions whose logs are kept, newest first.
func (s *Server) past(p peer) ([]about, error) {
	entries, err := os.ReadDir(s.auditDir())
	if err != nil {
		return nil, err
	}
	var out []about
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(s.auditDir(), e.Name(), "session.json"))
		if err != nil {
			continue // no session, or one being made
		}
		var a about
		if json.Unmarshal(data, &a) == nil && a.ID == e.Name() && p.mayUse(a.UID) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(x, y about) int { return y.Started.Compare(x.Started) })
	return out, nil
}

// maxSegments leaves room for what else a message may carry.
const maxSegments = 15

// logs hands out the segments of a session, newest last. An empty session name
// is the caller's newest one.
func (c *conversation) logs(m rpc.LogRef) (any, []*os.File, error) {
	a, live, err := c.lookup(m.Session)
	if err != nil {
		return nil, nil, err
	}
	if live != nil {
		if live.now() == ended {
			<-live.done // its last records are being written
			live = nil
		} else if err := live.record.Load().w.Sync(); err != nil {
			c.s.log.Warn("sync log", "session", a.ID, "error", err)
		}
	}
	dir := filepath.Join(c.s.auditDir(), a.ID)
	names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(names)
	if m.Before != "" {
		names = slices.DeleteFunc(names, func(n string) bool { return filepath.Base(n) >= m.Before })
	}
	out := rpc.LogFiles{Session: a.ID, Name: a.Name, Public: c.s.key.Public(), Live: live != nil}
	if len(names) > maxSegments {
		names, out.More = names[len(names)-maxSegments:], true
	}
	var files []*os.File
	for _, n := range names {
		f, err := os.Open(n)
		if err != nil {
			for _, o := range files {
				_ = o.Close()
			}
			return nil, nil, err
		}
		files = append(files, f)
		out.Names = append(out.Names, filepath.Base(n))
	}
	return out, files, nil
}

// lookup finds the newest session of that id or name, or the newest of all, among
// the running and the past. One that still ends can be older than one that has ended.
func (c *conversation) lookup(ref string) (about, *session, error) {
	v, _ := c.running(ref)
	if v != nil && (v.id == ref || v.name == ref && !v.over()) { // nobody newer has its name
		return v.record.Load().described(), v, nil
	}
	past, err := c.s.past(c.peer)
	if err != nil {
		return about{}, nil, err
	}
	// Looked at once more after the directory: what starts meanwhile has a log
	// there, and has not ended.
	v, live := c.running(ref)
	for _, a := range past { // newest first
		if v != nil && !a.Started.After(v.made) {
			break
		}
		if !live[a.ID] && (ref == "" || a.ID == ref || a.Name == ref) {
			return a, nil, nil
		}
	}
	if v != nil {
		return v.record.Load().described(), v, nil
	}
	text := "no session with a record"
	if ref != "" {
		text = "no session " + ref
	}
	return about{}, nil, errors.Join(&rpc.Error{Code: rpc.NotFound, Text: text, Hint: "agentos ps --all lists them"})
}

// running returns the newest session with a record that ref means (any, if it is
// empty) and that has not ended, and the ids of all that have not.
func (c *conversation) running(ref string) (best *session, live map[string]bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	live = map[string]bool{}
	for _, v := range c.s.sessions {
		live[v.id] = true
		if !c.peer.mayUse(v.owner.uid) || v.record.Load() == nil {
			continue
		}
		if (v.id == ref || v.name == ref || ref == "") && (best == nil || v.made.After(best.made)) {
			best = v // a name can be taken again while its last session ends
		}
	}
	return best, live
}

// changes hands out what a running session has of its own in its home, to be read
// by the caller with the caller's rights: see package layer.
func (c *conversation) changes(m rpc.LayerRef) (any, []*os.File, error) {
	v, err := c.find(m.Session)
	if err == nil && v.now() != running {
		err = &rpc.Error{Code: rpc.NotFound, Text: fmt.Sprintf("session %q is not running", m.Session), Hint: "what a session makes in its home goes with it; agentos run --keep PATH keeps it at the end"}
	}
	if err != nil {
		return nil, nil, err
	}
	bars, err := json.Marshal(v.res.Bars())
	if err != nil {
		return nil, nil, err
	}
	f, err := jail.Memfd("agentos-bars", bars, false)
	if err != nil {
		return nil, nil, err
	}
	out, files := rpc.Layers{Session: v.id, Name: v.name, Home: v.res.Vars.Home}, []*os.File{f}
	uid, gid := agentIDs(v.owner)
	v.mu.Lock()
	base, trees := v.base, slices.Clone(v.trees)
	v.mu.Unlock()
	ids, err := c.s.ranges.Back(base, c.peer.uid, uid, c.peer.gid, gid)
	for _, t := range trees {
		if err == nil {
			f, err = c.handout(t.dir, ids)
		}
		if err != nil {
			packet.CloseAll(files)
			return nil, nil, err
		}
		files = append(files, f)
		out.Trees = append(out.Trees, rpc.LayerTree{Path: t.path, Overlay: t.overlay})
	}
	return out, files, nil
}

// state tells what a running jail of the caller has to do with the network now.
func (c *conversation) state(ctx context.Context, m rpc.SessionRef) (any, []*os.File, error) {
	v, err := c.live(m.Session)
	if err != nil {
		return nil, nil, err
	}
	out, err := v.network.State(ctx, v.id, v.name)
	if err != nil {
		return nil, nil, err
	}
	return handDocument("agentos-network", out)
}

// netRules tells the rules of [net] that hold for a running jail of the caller.
func (c *conversation) netRules(m rpc.SessionRef) (any, []*os.File, error) {
	v, err := c.live(m.Session)
	if err != nil {
		return nil, nil, err
	}
	return handDocument("agentos-rules", v.network.Rules(v.id, v.name, v.record.Load().rules.Now().Policy))
}

// grant lets a running jail of the caller reach more or less, or takes that back.
func (c *conversation) grant(m rpc.SetGrant) (any, []*os.File, error) {
	v, err := c.live(m.Session)
	if err != nil {
		return nil, nil, err
	}
	if v.network == nil {
		return nil, nil, &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("session %s was started without a network: its policy let it reach nothing", v.name), Hint: "start a new session under a policy whose [net] allows something"}
	}
	began := time.Now()
	grants, err := v.network.Grant(m, network.By{UID: c.peer.uid, PID: c.peer.pid})
	if err != nil {
		return nil, nil, err
	}
	return rpc.GrantSet{Session: v.name, Grants: grants, Took: time.Since(began).Microseconds()}, nil, nil
}

// handDocument answers with a sealed memfd, because what it holds may be larger than a message.
func handDocument(name string, v any) (any, []*os.File, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, nil, err
	}
	f, err := jail.Memfd(name, data, false)
	if err != nil {
		return nil, nil, err
	}
	return struct{}{}, []*os.File{f}, nil
}

// handout opens a directory of ours for the caller, with the ids that ids shows.
func (c *conversation) handout(dir string, ids *os.File) (*os.File, error) {
	f, err := layer.OpenPath(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out, err := jail.Handout(int(f.Fd()), ids)
	if errors.Is(err, unix.EINVAL) && ids != nil {
		if c.peer.uid == 0 { // may read it as it is
			return jail.Handout(int(f.Fd()), nil)
		}
		return nil, &rpc.Error{Code: rpc.Unsupported, Text: "the file system of the helper's state cannot be idmapped", Hint: "keep it (agentos-helper --state) on ext4, xfs, btrfs or tmpfs"}
	}
	return out, err
}

// maxAnswer leaves room in a message for what is around a list, in bytes.
const maxAnswer = 48 << 10

// kept hands out the directories that are kept for the caller (root: for anybody).
func (c *conversation) kept(m rpc.KeptRef) (any, []*os.File, error) {
	all, err := c.s.shared.List(c.whose())
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, func(a, b layer.Kept) int { return strings.Compare(a.ID, b.ID) })
	out := rpc.KeptTrees{Trees: []rpc.KeptTree{}}
	var files []*os.File
	size := 0
	for _, k := range all {
		if k.ID <= m.After {
			continue
		}
		if size += 8 * (len(k.Workspace) + len(k.Path)); len(files) == packet.MaxFDs || size > maxAnswer && len(files) > 0 {
			out.More = true
			break
		}
		f, err := c.handout(c.s.shared.Tree(k.ID), nil) // on disk they are the caller's
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			packet.CloseAll(files)
			return nil, nil, err
		}
		files = append(files, f)
		out.Trees = append(out.Trees, rpc.KeptTree{ID: k.ID, UID: k.UID, Workspace: k.Workspace, Path: k.Path, Made: k.Made, InUse: k.InUse})
	}
	return out, files, nil
}

// whose is whose kept directories the caller may see: -1 for everybody's.
func (c *conversation) whose() int {
	if c.peer.uid == 0 {
		return -1
	}
	return c.peer.uid
}

// drop removes a kept directory of the caller. A session whose run has returned may
// still be ending: that is waited for.
func (c *conversation) drop(ctx context.Context, m rpc.DropKept) (any, []*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	var err error
	for {
		ends := c.ends() // before: what ends meanwhile lets go of the directory first
		err = c.s.shared.Remove(m.ID, c.whose())
		if !errors.Is(err, layer.ErrInUse) || !ends || ctx.Err() != nil {
			break
		}
		time.Sleep(lull)
	}
	switch {
	case errors.Is(err, layer.ErrNotFound):
		err = &rpc.Error{Code: rpc.NotFound, Text: err.Error(), Hint: "agentos changes --persisted lists them"}
	case errors.Is(err, layer.ErrInUse):
		err = &rpc.Error{Code: rpc.Busy, Text: err.Error(), Hint: "agentos ps lists the sessions; end them first"}
	}
	return struct{}{}, nil, err
}

// ends reports whether a session of the caller is ending.
func (c *conversation) ends() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, v := range c.s.sessions {
		if c.peer.mayUse(v.owner.uid) && v.over() {
			return true
		}
	}
	return false
}
