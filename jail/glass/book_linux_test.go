package glass

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grants.json")
	open := func() *Book {
		b, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := open()
	if _, ok := b.Of(7); ok {
		t.Error("somebody has a grant of nobody")
	}
	g, err := b.Begin(Grant{ID: "a", UID: 7, Reason: "fire", Files: []string{"/x"}}, time.Hour)
	if err != nil || g.Until.Sub(g.From) != time.Hour {
		t.Fatal(g, err)
	}
	if _, ok := b.Of(8); ok {
		t.Error("another user has it")
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	again := open() // another helper
	if now, ok := again.Of(7); !ok || now.Reason != "fire" || !again.Holds(g) {
		t.Errorf("after a restart: %+v %t", now, ok)
	}
	second, err := again.Begin(Grant{ID: "b", UID: 7}, time.Minute)
	if err != nil || again.Holds(g) || !again.Holds(second) {
		t.Errorf("one in the place of the other: %v", err)
	}
	if _, was, err := again.End(7); !was || err != nil || again.Holds(second) {
		t.Errorf("ended: %t %v", was, err)
	}
	if _, ok := open().Of(7); ok {
		t.Error("what was ended comes back")
	}
}

// The wall clock does not count, the boot does.
func TestTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grants.json")
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	now := 5 * time.Hour
	b.now = func() time.Duration { return now }
	g, err := b.Begin(Grant{ID: "a", UID: 7}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	now += time.Minute - 1
	if !b.Holds(g) {
		t.Error("ends before its time")
	}
	now++
	if b.Holds(g) {
		t.Error("holds after its time")
	}
	now -= time.Second
	b.boot = "another"
	if b.Holds(g) {
		t.Error("holds in another boot")
	}
	b.boot = ""
	if _, err := b.Begin(Grant{UID: 7}, time.Minute); err == nil || b.Holds(Grant{UID: 7}) {
		t.Error("granted where boots cannot be told apart")
	}
}

// What cannot be read or kept grants nothing.
func TestBrokenBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grants.json")
	for _, text := range []string{"", "{", "[{\"uid\":7,\"ends\":9223372036854775807}", "{\"uid\":7}"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := Open(path)
		if err == nil {
			t.Errorf("%q is read", text)
		}
		if _, ok := b.Of(7); ok {
			t.Errorf("%q grants", text)
		}
	}
	b, _ := Open(filepath.Join(t.TempDir(), "missing", "grants.json"))
	if _, err := b.Begin(Grant{UID: 7}, time.Hour); err == nil {
		t.Error("granted without a disk")
	}
	if _, ok := b.Of(7); ok {
		t.Error("a grant that is on no disk holds")
	}
}
