package address

import (
	"net"
	"net/netip"
	"testing"
)

func TestOwn(t *testing.T) {
	r, err := OpenRoutes()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := map[netip.Addr]bool{
		netip.MustParseAddr("127.0.0.1"):        true,
		netip.MustParseAddr("127.9.9.9"):        true,
		netip.MustParseAddr("::ffff:127.0.0.1"): true,
		netip.MustParseAddr("8.8.8.8"):          false,
		netip.MustParseAddr("2606:4700::1"):     false,
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			want[p.Addr()] = true
		}
	}
	for a, own := range want {
		if got, err := r.Own(a); err != nil || got != own {
			t.Errorf("%s: got %v, %v; want %v", a, got, err, own)
		}
	}
	r.Close()
	if _, err := r.Own(netip.MustParseAddr("8.8.8.8")); err == nil {
		t.Error("a closed socket answers")
	}
}
