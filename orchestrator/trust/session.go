package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentos/agentos/orchestrator/repo"
)

// Session is what must be known from before an agent runs.
type Session struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Began     time.Time `json:"began"`
	Workspace string    `json:"workspace"`      // absolute, real
	Roots     []string  `json:"roots"`          // what the session can write of the host: the workspace, and what else the policy shows
	Git       string    `json:"git,omitzero"`   // common git directory of the workspace, "" if there is none
	Own       string    `json:"own,omitzero"`   // git directory with HEAD; Git unless the workspace is a linked worktree
	Head      string    `json:"head,omitzero"`  // commit that HEAD stood for
	Hooks     string    `json:"hooks,omitzero"` // core.hooksPath of the repository, absolute
	// What the agent keeps in the home (its sessions, caches, backups), and what of that starts programs or gives permissions.
	State    []string `json:"state,omitzero"`
	Settings []string `json:"settings,omitzero"`
	// What git keeps of nothing: its own configuration and hooks, as they were.
	Before map[string]Held `json:"before,omitzero"`
	Silent bool            `json:"silent,omitzero"` // the record does not say which files were written: look at change times instead
}

// Held is a small file as it was.
type Held struct {
	Exec bool   `json:"exec,omitzero"`
	Data []byte `json:"data"`
}

// What is held of a git directory at most.
const (
	maxHeld  = 256 << 10 // bytes of a file
	maxHooks = 64
)

// Begin notes how a workspace is. git and own are its git directories outside of
// it, "" when it has its own or none; roots are the directories and files of the
// host that the session may write.
func Begin(workspace, git, own string, roots []string) Session {
	s := Session{Workspace: workspace, Roots: roots, Git: git, Own: own, Began: time.Now()}
	if s.Git == "" {
		dot := filepath.Join(workspace, ".git")
		if st, err := os.Lstat(dot); err != nil || !st.IsDir() {
			return s
		}
		s.Git, s.Own = dot, dot
	}
	if s.Own == "" {
		s.Own = s.Git
	}
	s.Head, _ = repo.Head(s.Own, s.Git)
	for _, f := range []string{filepath.Join(s.Git, "config"), filepath.Join(s.Own, "config.worktree")} {
		if dir, ok := repo.Last(repo.Settings(f), "core", "hookspath"); ok && dir != "" && !strings.HasPrefix(dir, "~") {
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(workspace, dir)
			}
			s.Hooks = filepath.Clean(dir)
		}
	}
	s.hold()
	return s
}

// hold notes the files of the git directory that git obeys.
func (s *Session) hold() {
	s.Before = map[string]Held{}
	files := []string{filepath.Join(s.Own, "config.worktree"), filepath.Join(s.Own, "commondir"), filepath.Join(s.Own, "gitdir")}
	for _, n := range []string{"config", "config.worktree", "info/attributes", "objects/info/alternates"} {
		files = append(files, filepath.Join(s.Git, n))
	}
	hooks, _ := os.ReadDir(filepath.Join(s.Git, "hooks"))
	for _, e := range hooks {
		if n := e.Name(); !strings.HasSuffix(n, ".sample") && len(files) < maxHooks {
			files = append(files, filepath.Join(s.Git, "hooks", n))
		}
	}
	dir, err := openBeneath(s.Git)
	if err != nil {
		return
	}
	defer dir.close()
	for _, f := range files {
		name, ok := cut(f, s.Git)
		if !ok {
			continue
		}
		if o, err := dir.look(name, maxHeld); err == nil && o.mode.IsRegular() && o.unread == "" {
			s.Before[f] = Held{Exec: o.mode&0o111 != 0, Data: o.data}
		}
	}
}

// keepSessions is how many sessions are remembered.
const keepSessions = 1000

// Store is the user's directory for all of this, private to the user.
type Store struct{ dir string }

// In returns the store below the user's directory for state: $XDG_STATE_HOME, or
// ~/.local/state (XDG Base Directory Specification).
func In(home, xdg string) Store {
	if !filepath.IsAbs(xdg) {
		xdg = filepath.Join(home, ".local", "state")
	}
	return Store{filepath.Join(xdg, "agentos", "trust")}
}

// Save remembers a session, and forgets the oldest beyond the last 1,000.
func (t Store) Save(s Session) error {
	if !plain(s.ID) {
		return fmt.Errorf("session id %q", s.ID)
	}
	if err := t.write(filepath.Join("sessions", s.ID+".json"), s); err != nil {
		return err
	}
	list, err := os.ReadDir(filepath.Join(t.dir, "sessions"))
	if err != nil || len(list) <= keepSessions {
		return nil
	}
	when := func(e os.DirEntry) int64 {
		if st, err := e.Info(); err == nil {
			return st.ModTime().UnixNano()
		}
		return 0
	}
	slices.SortFunc(list, func(a, b os.DirEntry) int { return int(when(a)>>10 - when(b)>>10) })
	for _, e := range list[:len(list)-keepSessions] {
		_ = os.Remove(filepath.Join(t.dir, "sessions", e.Name()))
	}
	return nil
}

// ErrUnknown says that nothing is known of how a session began.
var ErrUnknown = errors.New("how the workspace was when the session began is not known")

// Load returns a session by its id.
func (t Store) Load(id string) (Session, error) {
	var s Session
	if !plain(id) {
		return s, ErrUnknown
	}
	err := t.read(filepath.Join("sessions", id+".json"), &s)
	if errors.Is(err, os.ErrNotExist) {
		return s, ErrUnknown
	}
	return s, err
}

// plain reports whether an id can be a file's name.
func plain(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// maxState bounds a file of the store.
const maxState = 64 << 20

func (t Store) read(name string, v any) error {
	f, err := os.Open(filepath.Join(t.dir, name))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > maxState {
		return fmt.Errorf("%s: no file of ours", f.Name())
	}
	if err := json.NewDecoder(f).Decode(v); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return nil
}

// write replaces a file of the store as a whole.
func (t Store) write(name string, v any) error {
	name = filepath.Join(t.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
