//go:build root

package daemon_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy"
)

// echoWorld has an echo server behind two names, with room for three connections; b.example has a budget of 1 MiB.
func echoWorld(t *testing.T) (w *world, a, b string) {
	t.Helper()
	w = newWorld(t)
	w.record("a.example A", webAddr)
	w.record("b.example A", webAddr)
	budget := named("b.example", 7000)
	budget.Budget = netpolicy.Budget{Bytes: 1 << 20}
	w.add(t, netpolicy.Limits{Connections: 3}, named("a.example", 7000), budget)
	l := w.net.listen(t, webAddr+":7000")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { n, _ := io.Copy(c, c); w.hit(fmt.Sprint(n)); c.Close() }()
		}
	}()
	return w, w.address(t, "a.example") + ":7000", w.address(t, "b.example") + ":7000"
}

// echo says s and waits for it.
func echo(c net.Conn, s string) error {
	if _, err := io.WriteString(c, s); err != nil {
		return err
	}
	b := make([]byte, len(s))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != s {
		return fmt.Errorf("%q, %v", b, err)
	}
	return nil
}

func TestBudget(t *testing.T) {
	w, _, b := echoWorld(t)
	two, err := w.jail.dial(b)
	if err != nil {
		t.Fatal(err)
	}
	// The budget: what is over it does not arrive.
	_, _ = two.Write(bytes.Repeat([]byte("x"), 2<<20))
	if _, err := io.Copy(io.Discard, two); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("over the budget: %v", err)
	}
	two.Close()
	w.event(t, "cut", func(e netpolicy.Event) bool { return e.Kind == netpolicy.Cut && strings.Contains(e.Why, "rule 1") })
	if three, err := w.jail.dial(b); err == nil {
		if err := echo(three, "x"); err == nil {
			t.Error("a spent budget lets bytes pass")
		}
		three.Close()
	}
}

func TestLiveRules(t *testing.T) {
	w, a, b := echoWorld(t)
	one, err := w.jail.dial(a)
	if err == nil {
		err = echo(one, "hello")
	}
	two, err2 := w.jail.dial(b)
	if err2 == nil {
		err2 = echo(two, "hello")
	}
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	var list netpolicy.Connections
	if err := netpolicy.Decode(w.ask(t, netpolicy.VerbConnections, netpolicy.Of{Jail: "j"}).Body, &list); err != nil || len(list.Connections) != 2 {
		t.Fatalf("connections: %+v, %v", list, err)
	}
	if c := list.Connections[0]; c.Name != "a.example" || c.Sent != 5 || c.Received != 5 || c.Dialled.String() != webAddr+":7000" {
		t.Errorf("connection %+v", c)
	}
	// Rules that do not hold together leave those that hold; so does an old generation.
	bad := numbered([]netpolicy.Rule{{Kind: netpolicy.Name, Name: "UPPER", Ports: []netpolicy.Ports{{Low: 1, High: 2}}}})
	if _, err := w.try(netpolicy.VerbSet, netpolicy.Set{Jail: "j", Generation: 2, Rules: bad}); err == nil {
		t.Error("bad rules were taken")
	}
	if _, err := w.try(netpolicy.VerbSet, netpolicy.Set{Jail: "j", Generation: 1, Rules: netpolicy.Rules{}}); err == nil {
		t.Error("an old generation was taken")
	}
	if err := echo(one, "still"); err != nil {
		t.Errorf("after refused rules: %v", err)
	}
	other := prefixed("9.9.9.9/32", 7000)
	other.Deny = true
	set := func(generation uint64, rules ...netpolicy.Rule) {
		w.ask(t, netpolicy.VerbSet, netpolicy.Set{Jail: "j", Generation: generation, Rules: numbered(rules)})
	}
	set(2, named("a.example", 7000), named("b.example", 7000), other)
	if err := echo(one, "still"); err != nil {
		t.Errorf("after rules about others: %v", err)
	}
	two, err = w.jail.dial(b)
	if err == nil {
		err = echo(two, "x")
	}
	if err != nil {
		t.Fatal(err)
	}
	other.Prefix = prefixed(webAddr+"/32", 1).Prefix // denied, by the address that the name had
	set(3, named("a.example", 7000), named("b.example", 7000), other)
	if err := echo(two, "x"); err == nil {
		t.Error("a connection outlives the denial of its address")
	}
	if c, err := w.jail.dial(b); refused(c, err, "x") != nil {
		t.Error("a name leads to a denied address")
	}
	set(4, named("a.example", 7000))
	if one, err = w.jail.dial(a); err == nil {
		err = echo(one, "x")
	}
	if err != nil {
		t.Fatal(err)
	}
	set(5, named("b.example", 7000))
	if err := echo(one, "x"); err == nil {
		t.Error("a connection outlives its rule")
	}
	if c, err := w.jail.dial(a); refused(c, err, "x") != nil {
		t.Error("a removed rule lets a connection pass")
	}
}

func TestLimitAndEnd(t *testing.T) {
	w, a, _ := echoWorld(t)
	var open []net.Conn
	for range 3 {
		c, err := w.jail.dial(a)
		if err == nil {
			err = echo(c, "y")
		}
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if c, err := w.jail.dial(a); refused(c, err, "y") != nil {
		t.Error("more connections than the limit")
	}
	// The end: connections are cut, and the last event comes before the reply.
	w.ask(t, netpolicy.VerbRemove, netpolicy.Remove{Jail: "j"})
	closed := 0
	w.mu.Lock()
	for _, e := range w.events {
		if e.Kind == netpolicy.Closed && e.Why == "the jail has ended" {
			closed++
		}
	}
	w.mu.Unlock()
	if closed != 3 {
		t.Errorf("%d connections were told as closed", closed)
	}
	for _, c := range open {
		if err := echo(c, "z"); err == nil {
			t.Error("a connection outlives its jail")
		}
		c.Close()
	}
}
