package helper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/layer"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

func invalid(format string, a ...any) error {
	return &rpc.Error{Code: rpc.Invalid, Text: fmt.Sprintf(format, a...)}
}

// create opens the draft of this conversation from the document in f, a sealed
// memfd.
func (c *conversation) create(f *os.File) (any, []*os.File, error) {
	if c.draft != nil {
		return nil, nil, invalid("this conversation has a draft already")
	}
	doc, err := readDocument(f)
	if err != nil {
		return nil, nil, err
	}
	grant, _ := c.s.glass.Of(c.peer.uid)
	res, err := c.s.under(doc.Policy, &grant)
	if err != nil {
		return nil, nil, err
	}
	if err := checkDocument(doc, res.Vars); err != nil {
		return nil, nil, err
	}
	id, err := newID()
	if err != nil {
		return nil, nil, err
	}
	v := &session{
		s: c.s, id: id, policy: c.s.policies.get(res), owner: c.peer, doc: doc, res: res, glass: grant, made: time.Now(),
		procs: map[int]*proc{}, pending: map[uint64]chan initAnswer{}, wake: make(chan struct{}), done: make(chan struct{}),
	}
	if err := c.s.enter(v); err != nil {
		v.close()
		return nil, nil, err
	}
	if err := v.reserve(); err != nil {
		v.close()
		return nil, nil, err
	}
	c.draft = v
	c.mu.Lock()
	c.made = append(c.made, v)
	c.mu.Unlock()
	return rpc.Drafted{Session: v.id, Name: v.name}, nil, nil
}

// startDraft starts the draft. One that does not start is gone.
func (c *conversation) startDraft(ctx context.Context, draft *session, r rpc.Request, fds []*os.File) (any, []*os.File, error) {
	if draft == nil {
		return nil, nil, errNoDraft
	}
	body, out, err := with(r, func(m rpc.StartJail) (any, []*os.File, error) {
		m.Session = draft.id
		return c.start(ctx, m, fds)
	})
	if err != nil {
		draft.close()
	}
	return body, out, err
}

var errNoDraft = &rpc.Error{Code: rpc.Invalid, Text: "this conversation has no draft of a jail"}

// readDocument reads the whole document once. Only a sealed memfd is read: any
// other file could block, change or grow.
func readDocument(f *os.File) (doc rpc.Document, err error) {
	data, err := readSealed(f)
	if err != nil {
		return doc, err
	}
	return doc, packet.UnmarshalDocument(data, &doc)
}

func readSealed(f *os.File) ([]byte, error) {
	const sealed = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&sealed != sealed {
		return nil, invalid("the document must be a sealed memfd")
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > rpc.MaxDocument {
		return nil, &rpc.Error{Code: rpc.Invalid, Text: fmt.Sprintf("policy, arguments and environment take %d bytes; %d are the limit", st.Size(), rpc.MaxDocument)}
	}
	data := make([]byte, st.Size())
	if _, err := f.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read document: %w", err)
	}
	return data, nil
}

func checkDocument(doc rpc.Document, v policy.Vars) error {
	if doc.Name != "" && !nameRule.MatchString(doc.Name) {
		return invalid("session name %q: want a-z, 0-9, '.', '_', '-', at most 63 bytes", doc.Name)
	}
	if len(doc.Agent) > 64 || strings.ContainsFunc(doc.Agent, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return invalid("agent name %q", doc.Agent)
	}
	for what, p := range map[string]string{"workspace": v.Workspace, "home": v.Home, "working directory": doc.Cwd} {
		if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
			return invalid("%s %q is not an absolute clean path", what, p)
		}
	}
	return checkCommand(doc.Argv, doc.Env)
}

func checkCommand(argv, env []string) error {
	if len(argv) == 0 || !path.IsAbs(argv[0]) {
		return invalid("the command must be an absolute path")
	}
	size := 0
	for _, list := range [][]string{argv, env} {
		for _, s := range list {
			if strings.ContainsRune(s, 0) {
				return invalid("an argument or variable contains a NUL byte")
			}
			if size += len(s) + 9; len(s) >= 128<<10 { // MAX_ARG_STRLEN, execve(2)
				return invalid("an argument or variable of %d bytes is longer than the kernel takes (128 KiB)", len(s))
			}
		}
	}
	if size > rpc.MaxArgs {
		return invalid("arguments and environment take %d bytes; %d are the limit", size, rpc.MaxArgs)
	}
	for _, e := range env {
		if k, _, ok := strings.Cut(e, "="); !ok || k == "" {
			return invalid("environment entry %q is not NAME=VALUE", e)
		}
	}
	return nil
}

// enter names the session and adds it to the table, within the user's limits.
func (s *Server) enter(v *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	names := map[string]bool{}
	for _, o := range s.sessions {
		if o.owner.uid == v.owner.uid {
			n++
			names[o.name] = names[o.name] || !o.over()
		}
	}
	if n >= maxSessions {
		return &rpc.Error{Code: rpc.Busy, Text: fmt.Sprintf("you have %d sessions, the limit", n), Hint: "end one with agentos kill"}
	}
	if v.name = v.doc.Name; v.name == "" {
		base := strings.Trim(strings.Map(nameRune, strings.ToLower(v.doc.Agent)), "-.")
		if base == "" {
			base = "run"
		}
		base = base[:min(len(base), 48)] + "-"
		if v.name = base + v.id[:4]; names[v.name] {
			v.name = base + v.id
		}
	}
	if names[v.name] {
		return &rpc.Error{Code: rpc.Busy, Text: fmt.Sprintf("a session named %q is running", v.name), Hint: "choose another --name"}
	}
	s.sessions[v.id] = v
	return nil
}

func nameRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
		return r
	}
	return '-'
}

// give takes descriptors of the draft. Each must be what its label says: the
// kernel names the object, and the policy's view must name that path.
func (c *conversation) give(m rpc.GiveItems, fds []*os.File) (any, []*os.File, error) {
	v := c.draft
	if v == nil {
		return nil, nil, errNoDraft
	}
	if len(m.Paths) != len(fds) {
		return nil, nil, invalid("%d paths for %d descriptors", len(m.Paths), len(fds))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.phase != draft {
		return nil, nil, invalid("session %s is no draft any more", v.name) // it was killed
	}
	if len(v.given)+len(fds) > maxGiven {
		return nil, nil, invalid("more than %d paths in one view", maxGiven)
	}
	for i, f := range fds {
		p := m.Paths[i]
		if _, shown := v.policy.view[p]; !shown {
			return nil, nil, &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("%s is not in the policy's view", p)}
		}
		name, err := c.s.kernelName(int(f.Fd()))
		if err != nil {
			return nil, nil, fmt.Errorf("name descriptor: %w", err)
		}
		if name != p {
			return nil, nil, &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("the descriptor given for %s is %s", p, name), Hint: "a path of the view was swapped or leads through a symlink"}
		}
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_PATH == 0 {
			return nil, nil, invalid("%s was not opened with O_PATH", p)
		}
		v.given = append(v.given, given{p, f})
		fds[i] = nil // the draft's now
	}
	return struct{}{}, nil, nil
}

// kernelName is the path of what fd refers to, as the kernel knows it.
func (s *Server) kernelName(fd int) (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(int(s.fds.Fd()), strconv.Itoa(fd), buf[:])
	if err != nil {
		return "", err
	}
	if n == len(buf) {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

// nobodys is the id of root's agent inside: one that systems give to no user, so
// that no file of the host that a view shows is the agent's by chance
// (systemd.io/UIDS-GIDS).
const nobodys = 65533

// agentIDs are the ids of the agent inside: the caller's where they are those of
// an ordinary user, else one that is nobody's.
func agentIDs(p peer) (uid, gid int) {
	ordinary := func(id int) int {
		if id > 0 && id < 65534 {
			return id
		}
		return nobodys
	}
	return ordinary(p.uid), ordinary(p.gid)
}

// describe reads what a given descriptor is.
func describe(g given, st *unix.Statx_t) (jail.Given, error) {
	out := jail.Given{Path: g.path}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		out.Dir = true
	case unix.S_IFLNK:
		buf := make([]byte, 4096)
		n, err := unix.Readlinkat(int(g.file.Fd()), "", buf)
		if err != nil || n == 0 || n == len(buf) {
			return out, fmt.Errorf("read link %s: %w", g.path, err)
		}
		out.Link = string(buf[:n])
	case unix.S_IFREG, unix.S_IFSOCK:
	default:
		return out, &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("%s is neither file, directory, link nor socket", g.path)}
	}
	return out, nil
}

// owned are the host's ids of a tree that is the caller's.
type owned struct{ uid, gid int }

// idsFor chooses whose ids a tree is shown with: its owner's for what is the
// caller's by its role, the system's (nil) for the rest.
func (b *build) idsFor(g given) (*owned, error) {
	// A caller with an ordinary uid has it inside too, and the system's map shows
	// it. Others (root) get the map that makes what is theirs the agent's.
	top := b.ownedTree(g.path)
	if b.uid == b.owner.uid && b.gid == b.owner.gid || top == "" {
		return nil, nil
	}
	return b.treeOwner(top)
}

// treeOwner answers whose files the agent works on and makes below top: the
// caller's, except that root may work on another user's workspace, whose files
// stay that user's.
func (b *build) treeOwner(top string) (*owned, error) {
	caller := &owned{b.owner.uid, b.owner.gid}
	if b.owner.uid != 0 || top != b.res.Vars.Workspace && !slices.Contains(b.res.Vars.Git, top) {
		return caller, nil
	}
	for _, g := range b.given {
		if g.path != top {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(g.file.Fd()), &st); err != nil {
			return nil, fmt.Errorf("owner of %s: %w", top, err)
		}
		return &owned{int(st.Uid), int(st.Gid)}, nil
	}
	return caller, nil
}

// ownedTree returns the tree that makes a path the caller's by its role, ""
// if none does: the workspace or its repository, a state directory, the home.
func (p *prepared) ownedTree(path string) string {
	for _, top := range p.tops {
		if path == top || strings.HasPrefix(path, strings.TrimSuffix(top, "/")+"/") {
			return top
		}
	}
	return ""
}

// openWays makes ways to what is root's by its role. The agent of root has an
// ordinary uid, so a directory that only root or its owner may search would bar
// it from a workspace below. The topmost such directory, of which the agent could
// see nothing anyway, is covered: only what is mounted below it shows. It returns
// in.Given without what is covered itself, and the covers.
func (b *build) openWays(in jail.Input) (given []jail.Given, covers []string) {
	shown := map[string]bool{in.Home: false} // whether a mount is the host's own directory
	for _, p := range in.Private {
		shown[p] = false
	}
	for _, g := range in.Given {
		if g.Link == "" && g.Path != in.Home {
			shown[g.Path] = g.Dir
		}
	}
	for _, g := range append([]jail.Given{{Path: in.Home}}, in.Given...) {
		if g.Link != "" || b.ownedTree(g.Path) == "" {
			continue
		}
		for _, dir := range ancestors(g.Path) {
			if hostDir(shown, dir) && !b.searchable(dir) {
				covers = append(covers, dir)
				shown[dir] = false
			}
		}
	}
	given = slices.DeleteFunc(slices.Clone(in.Given), func(g jail.Given) bool { return slices.Contains(covers, g.Path) })
	return given, covers
}

// ancestors are the directories above an absolute clean path, / left out.
func ancestors(p string) []string {
	var out []string
	for p = path.Dir(p); p != "/"; p = path.Dir(p) {
		out = append(out, p)
	}
	slices.Reverse(out)
	return out
}

// hostDir reports whether the nearest mount at or above dir shows the host's own.
func hostDir(shown map[string]bool, dir string) bool {
	for ; dir != "/"; dir = path.Dir(dir) {
		if host, mounted := shown[dir]; mounted {
			return host
		}
	}
	return false
}

// searchable reports whether the agent's ids may search a directory of the host.
// A path suffices: the caller is root, and the answer gives no right.
func (b *build) searchable(dir string) bool {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return true // nothing to cover
	}
	switch {
	case int(st.Uid) == b.uid:
		return st.Mode&0o100 != 0
	case int(st.Gid) == b.gid:
		return st.Mode&0o010 != 0
	}
	return st.Mode&0o001 != 0
}

// makeHome makes the jail's home layer: what the agent installs stays there
// and goes with the jail.
func (b *build) makeHome() error {
	var err error
	b.layer, err = layer.Make(filepath.Join(b.s.layersDir(), b.sp.id), int(b.sp.base)+b.uid, int(b.sp.base)+b.gid)
	if b.layer != nil {
		b.push(b.layer.Remove)
		b.trees = append(b.trees, ownTree{b.res.Vars.Home, b.layer.Home(), false})
	}
	return err
}

// layOver prepares an overlay: d is the user's directory.
func (b *build) layOver(d jail.Given) error {
	if !d.Dir {
		return &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("overlay %s: it is not a directory", d.Path)}
	}
	m, err := mountBelow(d.Path)
	if err != nil {
		return fmt.Errorf("overlay %s: %w", d.Path, err)
	}
	if m != "" { // overlayfs would show what that mount hides
		return &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("overlay %s: something is mounted in it, at %s", d.Path, m), Hint: "name the directories beside it"}
	}
	dir, err := b.layer.Overlay(os.FileMode(b.sources[d.Path].st.Mode))
	if err != nil {
		return fmt.Errorf("overlay %s: %w", d.Path, err)
	}
	b.trees = append(b.trees, ownTree{d.Path, filepath.Join(dir, layer.Upper), true})
	return b.open(jail.Upper(d.Path), dir)
}

// mountBelow names a mount of the host below dir, "" if there is none. It asks for
// the mounts of this thread: no thread that has others runs any goroutine of ours
// but its own.
func mountBelow(dir string) (string, error) {
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return "", err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`) // proc_pid_mountinfo(5)
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		if p := unescape.Replace(f[4]); strings.HasPrefix(p, dir+"/") {
			return p, nil
		}
	}
	return "", nil
}

// shareTrees adds the directories that the sessions of this user and workspace
// share. The workspace is the object that was given, so that another one that is
// put at its path has none of its directories.
func (b *build) shareTrees() error {
	if len(b.res.Home.Persist) == 0 {
		return nil
	}
	i := slices.IndexFunc(b.given, func(g given) bool { return g.path == b.res.Vars.Workspace })
	if i < 0 {
		return &rpc.Error{Code: rpc.Refused, Text: "the policy keeps directories for a workspace that it does not show"}
	}
	identity, err := layer.Identify(int(b.given[i].file.Fd()))
	if err != nil {
		return err
	}
	for _, p := range b.res.Home.Persist {
		own := layer.Owner{UID: b.owner.uid, Workspace: b.res.Vars.Workspace, Identity: identity, Path: strings.TrimPrefix(p, b.res.Vars.Home+"/")}
		tree, release, err := b.s.shared.Take(own, b.owner.gid)
		if errors.Is(err, layer.ErrMany) {
			return &rpc.Error{Code: rpc.Busy, Text: fmt.Sprintf("keep %s: %v", p, err), Hint: "agentos changes --persisted --remove removes those that you name"}
		}
		if err != nil {
			return fmt.Errorf("keep %s: %w", p, err)
		}
		b.push(func() error { release(); return nil })
		f, err := layer.OpenPath(tree)
		if err != nil {
			return err
		}
		src := source{file: f, own: true, mapped: true, ids: &owned{b.owner.uid, b.owner.gid}}
		err = src.stat()
		b.sources[p] = src // closed with the rest
		if err != nil {
			return err
		}
		b.in.System = append(b.in.System, jail.Given{Path: p, Dir: true, Exec: true, Own: true, Room: true})
	}
	return nil
}
