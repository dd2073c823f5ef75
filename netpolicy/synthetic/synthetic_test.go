package synthetic

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/agentos/agentos/netpolicy"
)

func TestNamesKeepTheirAddress(t *testing.T) {
	now := time.Now()
	a, b := New(2000), New(2000)
	seen := map[netip.Addr]string{}
	for i := range 2000 {
		name := fmt.Sprintf("n%d.example", i)
		v4, v6, ok := a.Address(name, now)
		if !ok || !netpolicy.Synthetic4.Contains(v4) || !netpolicy.Synthetic6.Contains(v6) || v4 == netpolicy.Resolver4 {
			t.Fatalf("%s: %s, %s, %v", name, v4, v6, ok)
		}
		if other := seen[v4]; other != "" {
			t.Fatalf("%s and %s share %s", name, other, v4)
		}
		seen[v4] = name
		for _, addr := range []netip.Addr{v4, v6, netip.AddrFrom16(v4.As16())} {
			if got := a.Name(addr, now); got != name {
				t.Errorf("%s is %q, want %q", addr, got, name)
			}
		}
		if again, _, _ := b.Address(name, now); again != v4 { // another netd, asked in the same order
			t.Errorf("%s: %s, then %s", name, v4, again)
		}
	}
	if _, _, ok := a.Address("one.more", now.Add(Keep/2)); ok {
		t.Error("a full table took one more")
	}
	first, _, _ := a.Address("n0.example", now.Add(Keep+1)) // used: must stay
	if _, _, ok := a.Address("one.more", now.Add(Keep+1)); !ok {
		t.Error("nothing was dropped for a new name")
	}
	if got := a.Name(first, now.Add(Keep+1)); got != "n0.example" {
		t.Errorf("%s became %q", first, got)
	}
	if got, _, _ := a.Address("n1.example", now.Add(2*Keep)); a.Name(got, now) != "n1.example" {
		t.Error("a dropped name did not come back")
	}
}

func TestAddressesOfNobody(t *testing.T) {
	a := New(10)
	_, v6, _ := a.Address("x.example", time.Now())
	wrong := v6.As16()
	wrong[8] = 1
	for _, addr := range []netip.Addr{
		{},
		netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("198.18.0.0"), netpolicy.Resolver4, netpolicy.Resolver6,
		netip.AddrFrom16(wrong), netip.MustParseAddr("fd5b:a70e:1c9d::808:808"),
	} {
		if got := a.Name(addr, time.Now()); got != "" {
			t.Errorf("%s is %q", addr, got)
		}
	}
}
