package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// bare is a server without a machine: enough for everything before a start.
func bare(t testing.TB) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{
		opt: Options{State: dir, Org: dir + "/none"}, build: "test", log: slog.New(slog.DiscardHandler), ranges: jail.NewRanges("test"),
		sessions: map[string]*session{}, byNumber: map[uint32]*spare{}, conns: map[int]int{}, kernel: &kernel{},
	}
	if err := s.makeDirsForTest(dir); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Server) makeDirsForTest(dir string) (err error) {
	if err = os.MkdirAll(dir+"/audit", 0o700); err == nil {
		err = errors.Join(s.openOrganisation(), s.openShared(), s.openDescriptors())
	}
	return err
}

// talk serves one end of a pair and returns the other.
func talk(t testing.TB, s *Server) (raw *packet.Conn, ended <-chan error) {
	t.Helper()
	conn, f, err := packet.Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = packet.New(fd); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), conn) }()
	t.Cleanup(func() { raw.Close(); conn.Close() })
	return raw, done
}

func TestHelloComesFirst(t *testing.T) {
	raw, _ := talk(t, bare(t))
	if err := raw.Send(rpc.Request{Verb: rpc.List, ID: 1, Body: json.RawMessage("{}")}); err != nil {
		t.Fatal(err)
	}
	var r rpc.Reply
	if _, err := raw.Receive(&r); err != nil || r.Error == nil || r.Error.Code != rpc.Invalid {
		t.Errorf("list before hello: %+v, %v", r, err)
	}
}

func TestDescriptorsAreCountedByVerb(t *testing.T) {
	s := bare(t)
	conn, _ := talk(t, s)
	c, err := rpc.NewClient(conn, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tt := range []struct {
		verb rpc.Verb
		fds  []int
	}{{rpc.Create, nil}, {rpc.List, []int{int(f.Fd())}}, {rpc.Give, nil}} {
		if err := c.Call(context.Background(), tt.verb, struct{}{}, nil, tt.fds...); err == nil {
			t.Errorf("%s with %d descriptors was taken", tt.verb, len(tt.fds))
		}
	}
	if len(s.sessions) != 0 {
		t.Errorf("%d sessions were made", len(s.sessions))
	}
}

func TestCreateWantsASealedDocument(t *testing.T) {
	s := bare(t)
	conn, _ := talk(t, s)
	c, err := rpc.NewClient(conn, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fd, err := unix.MemfdCreate("doc", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := c.Call(context.Background(), rpc.Create, struct{}{}, nil, fd); err == nil {
		t.Error("an unsealed memfd was taken: its content could change after the check")
	}
}

// FuzzConversation throws datagrams at the gate. None may crash it, make a
// session, or leave it without an answer to a sound request on a new
// connection.
func FuzzConversation(f *testing.F) {
	f.Add([]byte(`{"verb":"hello","id":1,"body":{"protocol":4,"build":"x"}}`), []byte(`{"verb":"create","id":2,"body":{}}`))
	f.Add([]byte(`{"verb":"hello","id":1,"body":{"protocol":4,"build":"x"}}`), []byte(`{"verb":"start","id":2,"body":{"session":"x"}}`))
	f.Add([]byte(`{"verb":"hello","id":1,"body":{"protocol":4,"build":"x"}}`), []byte(`{"verb":"drop","id":2,"body":{"id":"../audit"}}`))
	f.Add([]byte(`{"verb":"hello","id":1,"body":{"protocol":4,"build":"x"}}`), []byte(`{"verb":"kept","id":2,"body":{"after":"0"}}`))
	f.Add([]byte(`{`), []byte(``))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		s := bare(t)
		raw, done := talk(t, s)
		for _, d := range [][]byte{one, two} {
			if len(d) == 0 || len(d) > packet.MaxSize {
				continue
			}
			if raw.SendBytes(d) != nil {
				break
			}
		}
		raw.Close()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("the conversation does not end")
		}
		if len(s.sessions) != 0 {
			t.Errorf("%d sessions were made", len(s.sessions))
		}
	})
}

func TestCheckCommand(t *testing.T) {
	long := make([]byte, 128<<10)
	for i := range long {
		long[i] = 'x'
	}
	var many []string
	for range 40 {
		many = append(many, string(long[:100<<10]))
	}
	for name, tt := range map[string]struct {
		argv, env []string
		ok        bool
	}{
		"plain":          {[]string{"/bin/true", "a b", "é\n"}, []string{"A=b", "C="}, true},
		"relative":       {[]string{"bin/true"}, nil, false},
		"none":           {nil, nil, false},
		"nul":            {[]string{"/bin/true", "a\x00b"}, nil, false},
		"no value":       {[]string{"/bin/true"}, []string{"A"}, false},
		"no name":        {[]string{"/bin/true"}, []string{"=A"}, false},
		"one too long":   {[]string{"/bin/true", string(long)}, nil, false},
		"all too long":   {append([]string{"/bin/true"}, many...), nil, false},
		"directory path": {[]string{"/bin"}, nil, true},
	} {
		if err := checkCommand(tt.argv, tt.env); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// document is a sealed memfd with what create wants, under a policy of the test's.
func document(t testing.TB, change func(*rpc.Document, *policy.PolicyDocument)) int {
	t.Helper()
	ref, err := policy.BuiltinReference("strict")
	if err != nil {
		t.Fatal(err)
	}
	stack := policy.PolicyDocument{
		Layers: []policy.Layer{{Kind: policy.Profile, Doc: ref}}, Vars: policy.Vars{Workspace: "/srv/w", Home: "/home/u"}, Builtins: policy.BuiltinDigest(),
	}
	doc := rpc.Document{Agent: "true", Argv: []string{"/bin/true"}, Cwd: "/srv/w"}
	if change != nil {
		change(&doc, &stack)
	}
	if doc.Policy, err = json.Marshal(stack); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	f, err := jail.Memfd("document", data, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

// pathFD opens a path as the caller of the gate does.
func pathFD(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// Requests are sent without waiting, so whatever fails must take down what was
// sent behind it: never may a jail start without what it was to be made of.
func TestWhatFailsEndsTheDraft(t *testing.T) {
	usr, etc := pathFD(t, "/usr"), pathFD(t, "/etc")
	for name, tt := range map[string]struct {
		ask  func(c *rpc.Client) []*rpc.Asked
		fail int // the first that must fail; all behind it must too
		text string
	}{
		"no document": {func(c *rpc.Client) []*rpc.Asked {
			return ask(t, c, rpc.Create, struct{}{}, []int{usr}, rpc.Give, rpc.GiveItems{Paths: []string{"/usr"}}, []int{usr}, rpc.Start, rpc.StartJail{Terminal: &rpc.Terminal{}}, []int(nil))
		}, 0, "sealed memfd"},
		"path outside of the view": {func(c *rpc.Client) []*rpc.Asked {
			return ask(t, c, rpc.Create, struct{}{}, []int{document(t, nil)}, rpc.Give, rpc.GiveItems{Paths: []string{"/usr"}}, []int{usr}, rpc.Give, rpc.GiveItems{Paths: []string{"/etc"}}, []int{etc}, rpc.Start, rpc.StartJail{Terminal: &rpc.Terminal{}}, []int(nil))
		}, 2, "not in the policy's view"},
		"another object than its label": {func(c *rpc.Client) []*rpc.Asked {
			return ask(t, c, rpc.Create, struct{}{}, []int{document(t, nil)}, rpc.Give, rpc.GiveItems{Paths: []string{"/usr"}}, []int{etc}, rpc.Start, rpc.StartJail{Terminal: &rpc.Terminal{}}, []int(nil))
		}, 1, "the descriptor given for /usr is /etc"},
		"a give without descriptors": {func(c *rpc.Client) []*rpc.Asked {
			return ask(t, c, rpc.Create, struct{}{}, []int{document(t, nil)}, rpc.Give, rpc.GiveItems{}, []int(nil), rpc.Start, rpc.StartJail{Terminal: &rpc.Terminal{}}, []int(nil))
		}, 1, "takes 1 to"},
		"a give of another shape": {func(c *rpc.Client) []*rpc.Asked {
			return ask(t, c, rpc.Create, struct{}{}, []int{document(t, nil)}, rpc.Give, map[string]any{"paths": []string{"/usr"}, "session": "x"}, []int{usr}, rpc.Start, rpc.StartJail{Terminal: &rpc.Terminal{}}, []int(nil))
		}, 1, "unknown field"},
		"a second draft": {func(c *rpc.Client) []*rpc.Asked {
			return ask(t, c, rpc.Create, struct{}{}, []int{document(t, nil)}, rpc.Create, struct{}{}, []int{document(t, nil)}, rpc.Start, rpc.StartJail{Terminal: &rpc.Terminal{}}, []int(nil))
		}, 1, "has a draft already"},
		"builtins of another build": {func(c *rpc.Client) []*rpc.Asked {
			doc := document(t, func(_ *rpc.Document, s *policy.PolicyDocument) { s.Builtins = "" })
			return ask(t, c, rpc.Create, struct{}{}, []int{doc}, rpc.Start, rpc.StartJail{Terminal: &rpc.Terminal{}}, []int(nil))
		}, 0, "builtin policies"},
		"start of nothing": {func(c *rpc.Client) []*rpc.Asked {
			return ask(t, c, rpc.Start, rpc.StartJail{Terminal: &rpc.Terminal{}}, []int(nil))
		}, 0, "no draft"},
	} {
		t.Run(name, func(t *testing.T) {
			s := bare(t)
			conn, _ := talk(t, s)
			c, err := rpc.NewClient(conn, "test")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for i, a := range tt.ask(c) {
				_, err := a.Answer(t.Context(), nil)
				if failed := err != nil; failed != (i >= tt.fail) {
					t.Errorf("request %d: %v", i, err)
				}
				if i == tt.fail && (err == nil || !strings.Contains(err.Error(), tt.text)) {
					t.Errorf("request %d: got %v, want it to say %q", i, err, tt.text)
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.sessions) != 0 {
				t.Errorf("%d sessions are left", len(s.sessions))
			}
		})
	}
}

// ask sends triples of verb, body and descriptors without waiting.
func ask(t testing.TB, c *rpc.Client, triples ...any) (out []*rpc.Asked) {
	t.Helper()
	for i := 0; i < len(triples); i += 3 {
		a, err := c.Ask(triples[i].(rpc.Verb), triples[i+1], triples[i+2].([]int)...)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// What was resolved once is used again for the same document under the same
// organisation, and only then.
func TestResolvedIsKept(t *testing.T) {
	if uid := os.Geteuid(); uid != 0 {
		t.Skipf("wanted root, whose the organisation's files must be; got user %d", uid)
	}
	s := bare(t)
	s.opt.Org = t.TempDir()
	if err := os.Chmod(s.opt.Org, 0o755); err != nil { // whatever the umask
		t.Fatal(err)
	}
	if err := s.openOrganisation(); err != nil {
		t.Fatal(err)
	}
	draftOf := func(fd int) *session {
		t.Helper()
		conn, _ := talk(t, s)
		c, err := rpc.NewClient(conn, "test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		var d rpc.Drafted
		if err := c.Call(t.Context(), rpc.Create, struct{}{}, &d, fd); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.sessions[d.Session]
	}
	denies := func(v *session) bool { return !v.res.Explain(policy.OpRead, "/usr/share/x").Allow }
	first, second := draftOf(document(t, nil)), draftOf(document(t, nil))
	if first.res != second.res || denies(first) {
		t.Errorf("the same policy was resolved twice, or denies what it should not")
	}
	other := draftOf(document(t, func(_ *rpc.Document, p *policy.PolicyDocument) { p.Vars.Workspace = "/srv/v" }))
	if other.res == first.res || other.res.Vars.Workspace != "/srv/v" {
		t.Errorf("another workspace got the policy of %s", other.res.Vars.Workspace)
	}
	org := filepath.Join(s.opt.Org, "a.toml")
	if err := os.WriteFile(org, []byte("version = 1\nname = \"org\"\n[files]\ndeny = [\"/usr/share/**\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if v := draftOf(document(t, nil)); !denies(v) {
		t.Error("a new policy of the organisation does not hold")
	}
	if err := os.WriteFile(org, []byte("version = 1\nname = \"org\"\n[files]\ndeny = [\"/usr/shore/**\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if v := draftOf(document(t, nil)); denies(v) {
		t.Error("an old policy of the organisation still holds")
	}
	if err := os.WriteFile(org, []byte("version = 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	conn, _ := talk(t, s)
	c, err := rpc.NewClient(conn, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Call(t.Context(), rpc.Create, struct{}{}, nil, document(t, nil)); err == nil || !strings.Contains(err.Error(), "organisation policy") {
		t.Errorf("with a broken policy of the organisation: %v", err)
	}
	if err := os.Remove(org); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxKept {
		draftOf(document(t, func(_ *rpc.Document, p *policy.PolicyDocument) { p.Vars.Home = fmt.Sprintf("/home/%d", i) }))
	}
	if n := len(s.resolved.list); n != maxKept {
		t.Errorf("%d policies are kept, want %d", n, maxKept)
	}
}
