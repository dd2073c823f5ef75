package helper

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentos/agentos/jail/rpc"
)

// maxListed bounds the sessions of one answer, so that it fits a message.
const maxListed = 200

// list names the caller's sessions, running ones first, then by age. Those that
// have ended are read from the disk, and may be many.
func (c *conversation) list(m rpc.ListSessions) (any, []*os.File, error) {
	var out rpc.Sessions
	c.s.mu.Lock()
	live := map[string]bool{} // also what has a log and is not there yet
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
	}
	for _, a := range past {
		if !live[a.ID] {
			out.Sessions = append(out.Sessions, rpc.Session{
				ID: a.ID, Name: a.Name, Agent: a.Agent, Policy: a.Policy, Workspace: a.Workspace, UID: a.UID,
				State: "ended", Started: a.Started, Denied: a.Denied, Records: a.Records,
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
	out.Sessions = fit(out.Sessions)
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
	a := v.record.Load().about
	r := rpc.Session{
		ID: a.ID, Name: a.Name, Agent: a.Agent, Policy: a.Policy, Workspace: a.Workspace, UID: a.UID,
		State: v.state(), Started: a.Started, Denied: v.record.Load().denied.Load(), Records: v.record.Load().records.Load(),
	}
	if v.group != nil {
		st := v.group.Stats()
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

// lookup finds a session by id or name among the running and the past.
func (c *conversation) lookup(ref string) (about, *session, error) {
	c.s.mu.Lock()
	var best *session
	live := map[string]bool{}
	for _, v := range c.s.sessions {
		live[v.id] = true
		if !c.peer.mayUse(v.owner.uid) || v.record.Load() == nil {
			continue
		}
		if (v.id == ref || v.name == ref || ref == "") && (best == nil || v.made.After(best.made)) {
			best = v // a name can be taken again while its last session ends
		}
	}
	c.s.mu.Unlock()
	if best != nil {
		return best.record.Load().about, best, nil
	}
	past, err := c.s.past(c.peer)
	if err != nil {
		return about{}, nil, err
	}
	for _, a := range past {
		if live[a.ID] { // it starts, and has a log already
			continue
		}
		if ref == "" || a.ID == ref || a.Name == ref {
			return a, nil, nil
		}
	}
	text := "no session with a record"
	if ref != "" {
		text = "no session " + ref
	}
	return about{}, nil, errors.Join(&rpc.Error{Code: rpc.NotFound, Text: text, Hint: "agentos ps --all lists them"})
}
