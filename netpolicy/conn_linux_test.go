package netpolicy_test

import (
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/netpolicy"
)

func pair(t testing.TB) (a, b *packet.Conn) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []**packet.Conn{&a, &b} {
		if *c, err = packet.New(p[i]); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func rules(n int) netpolicy.Rules {
	r := netpolicy.Rules{Layers: 1}
	for range n {
		r.Rules = append(r.Rules,
			netpolicy.Rule{Kind: netpolicy.Below, Name: "npmjs.org", Ports: []netpolicy.Ports{{Low: 443, High: 443}}, At: "p:1:1: net-allow *.npmjs.org:443"},
			netpolicy.Rule{Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("10.0.0.0/8"), Ports: []netpolicy.Ports{{Low: 1, High: 65535}}, At: "p:2:1"})
	}
	return r
}

// A request arrives as it was sent, with its sockets, in a datagram or in a memfd.
func TestRequestsArrive(t *testing.T) {
	for _, n := range []int{1, 2000} {
		a, b := pair(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		sent := netpolicy.Add{Jail: "j1", Generation: 3, Rules: rules(n), Limits: netpolicy.Limits{Connections: 7}}
		if err := netpolicy.Send(a, netpolicy.VerbAdd, 9, sent, int(r.Fd()), int(w.Fd())); err != nil {
			t.Fatal(err)
		}
		q, fds, err := netpolicy.Receive(b)
		if err != nil {
			t.Fatal(err)
		}
		defer packet.CloseAll(fds)
		if q.Verb != netpolicy.VerbAdd || q.ID != 9 || len(fds) != 2 {
			t.Errorf("%d rules: got %s %d with %d descriptors", n, q.Verb, q.ID, len(fds))
		}
		var got netpolicy.Add
		if err := netpolicy.Decode(q.Body, &got); err != nil || !reflect.DeepEqual(got, sent) {
			t.Errorf("%d rules: %v, or not what was sent", n, err)
		}
		if err := got.Rules.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	open, err := unix.MemfdCreate("x", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(open)
	if _, err := unix.Write(open, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, data string
		fds        []int
	}{
		{"unknown field", `{"verb":"add","id":1,"more":1}`, nil},
		{"large without a document", `{"verb":"add","id":1,"large":true}`, nil},
		{"large with a body too", `{"verb":"add","id":1,"large":true,"body":{}}`, []int{open}},
		{"a document that can still change", `{"verb":"add","id":1,"large":true}`, []int{open}},
		{"a document that is no memfd", `{"verb":"add","id":1,"large":true}`, []int{0}},
	} {
		a, b := pair(t)
		if err := a.SendBytes([]byte(tt.data), tt.fds...); err != nil {
			t.Fatal(err)
		}
		if _, _, err := netpolicy.Receive(b); !errors.Is(err, netpolicy.ErrProtocol) && !errors.Is(err, packet.ErrMalformed) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := netpolicy.Decode([]byte(`{"jail":"x","unknown":1}`), &netpolicy.Remove{}); !errors.Is(err, netpolicy.ErrProtocol) {
		t.Errorf("body with an unknown field: %v", err)
	}
}

func TestAnswers(t *testing.T) {
	a, b := pair(t)
	for data, want := range map[string]bool{
		`{"id":1}`:              true,
		`{"id":1,"error":"no"}`: true,
		`{"event":{"kind":"lost","time":"2026-01-02T03:04:05Z","jail":"j","count":3}}`: true,
		`{}`: false,
		`{"id":1,"event":{"kind":"lost","time":"2026-01-02T03:04:05Z","jail":"j"}}`: false,
	} {
		if err := a.SendBytes([]byte(data)); err != nil {
			t.Fatal(err)
		}
		if _, err := netpolicy.ReceiveAnswer(b); (err == nil) != want {
			t.Errorf("%s: %v", data, err)
		}
	}
}

func TestRulesThatDoNotHoldTogether(t *testing.T) {
	p := []netpolicy.Ports{{Low: 1, High: 2}}
	for name, r := range map[string]netpolicy.Rule{
		"no kind":              {Ports: p},
		"kind unknown":         {Kind: "all", Ports: p},
		"name missing":         {Kind: netpolicy.Name, Ports: p},
		"name too many":        {Kind: netpolicy.Any, Name: "x", Ports: p},
		"prefix missing":       {Kind: netpolicy.Prefix, Ports: p},
		"prefix not masked":    {Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("10.0.0.1/8"), Ports: p},
		"prefix mapped":        {Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix("::ffff:10.0.0.0/104"), Ports: p},
		"port 0":               {Kind: netpolicy.Any, Ports: []netpolicy.Ports{{Low: 0, High: 2}}},
		"ports turned":         {Kind: netpolicy.Any, Ports: []netpolicy.Ports{{Low: 3, High: 2}}},
		"layer out of bounds":  {Kind: netpolicy.Any, Layer: netpolicy.MaxLayers},
		"exception to nothing": {Kind: netpolicy.Any, Except: true},
		"opaque methods":       {Kind: netpolicy.Any, TLS: netpolicy.Opaque, Methods: []string{"GET"}},
		"path without slash":   {Kind: netpolicy.Any, Paths: []string{"x"}},
		"records":              {Kind: netpolicy.Any, Records: []string{"AXFR"}},
		"denial with methods":  {Kind: netpolicy.Any, Deny: true, Methods: []string{"GET"}},
		"long text":            {Kind: netpolicy.Any, At: strings.Repeat("x", netpolicy.MaxText+1)},
	} {
		if err := (&netpolicy.Rules{Layers: 1, Rules: []netpolicy.Rule{r}}).Check(); !errors.Is(err, netpolicy.ErrRules) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"verb":"add","id":1,"body":{"jail":"x","generation":1,"rules":{"layers":1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var q netpolicy.Request
		if packet.Unmarshal(data, &q) != nil {
			return
		}
		var add netpolicy.Add
		if netpolicy.Decode(q.Body, &add) == nil {
			_ = add.Rules.Check()
		}
	})
}
