package helper

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
)

// bare is a server without a machine: enough for everything before a start.
func bare(t testing.TB) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{
		opt: Options{State: dir, Org: dir + "/none"}, build: "test", log: slog.New(slog.DiscardHandler), ranges: jail.NewRanges("test"),
		sessions: map[string]*session{}, byNumber: map[uint32]*session{}, conns: map[int]int{}, kernel: &kernel{},
	}
	if err := s.makeDirsForTest(dir); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Server) makeDirsForTest(dir string) error { return os.MkdirAll(dir+"/audit", 0o700) }

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
	f.Add([]byte(`{"verb":"hello","id":1,"body":{"protocol":2,"build":"x"}}`), []byte(`{"verb":"create","id":2,"body":{}}`))
	f.Add([]byte(`{"verb":"hello","id":1,"body":{"protocol":2,"build":"x"}}`), []byte(`{"verb":"start","id":2,"body":{"session":"x"}}`))
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
		case <-time.After(10 * time.Second):
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
