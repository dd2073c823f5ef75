package name

import (
	"net/netip"
	"strings"
	"testing"
)

func TestNormal(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]string{
		"example.com":             "example.com",
		"Example.COM.":            "example.com",
		"xn--bcher-kva.example":   "xn--bcher-kva.example",
		"_dmarc.example.com":      "_dmarc.example.com",
		"a_b.example":             "a_b.example",
		"host":                    "host",
		"1.example":               "1.example",
		"3com":                    "3com",
		long + ".com":             long + ".com",
		"":                        "",
		".":                       "",
		"a..b":                    "",
		"a.b..":                   "",
		".a":                      "",
		"-a.com":                  "",
		"a-.com":                  "",
		"a.com-":                  "",
		long + "a.com":            "",
		strings.Repeat("a.", 128): "",
		"evil.com\x00.ok.com":     "",
		"evil.com%00.ok.com":      "",
		"evil.com\r\n.ok.com":     "",
		"evil.com#.ok.com":        "",
		"evil.com/.ok.com":        "",
		"user@ok.com":             "",
		"ok.com:443":              "",
		"ok com":                  "",
		"bücher.example":          "",
		"ok\u3002com":             "", // ideographic full stop
		"\uff11\uff12\uff17.1":    "", // full-width digits
		"127.0.0.1":               "",
		"127.1":                   "",
		"2130706433":              "",
		"0x7f.1":                  "",
		"0x7f000001":              "",
		"1.0x7f":                  "",
		"1.0X7F":                  "",
		"0177.0.0.01":             "",
		"ok.com.1":                "",
		"[::1]":                   "",
		"::1":                     "",
		"*.ok.com":                "",
		"1-2.3_4":                 "",
	} {
		got, err := Normal(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, tt := range []struct {
		name, parent string
		want         bool
	}{
		{"a.ok.com", "ok.com", true},
		{"a.b.ok.com", "ok.com", true},
		{"ok.com", "ok.com", false},
		{"evilok.com", "ok.com", false},
		{".ok.com", "ok.com", false},
		{"ok.com.evil.com", "ok.com", false},
		{"com", "ok.com", false},
	} {
		if got := Below(tt.name, tt.parent); got != tt.want {
			t.Errorf("%s below %s: got %v", tt.name, tt.parent, got)
		}
	}
	if got := Service("_mongodb._tcp.db.example"); got != "db.example" {
		t.Errorf("service: %q", got)
	}
}

// What is accepted is its own normal form, is no address to any reader, and has the bytes of what was given.
func FuzzNormal(f *testing.F) {
	for _, s := range []string{"Example.com.", "0x7f.1", "a\x00b.c", "xn--a", "1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Normal(s)
		if err != nil {
			return
		}
		if again, err := Normal(got); err != nil || again != got {
			t.Errorf("%q: normal form %q is not normal: %q, %v", s, got, again, err)
		}
		if !strings.EqualFold(strings.TrimSuffix(s, "."), got) || len(got) > 253 {
			t.Errorf("%q became %q", s, got)
		}
		if _, err := netip.ParseAddr(got); err == nil {
			t.Errorf("%q is an address", got)
		}
		for i := range len(got) {
			if c := got[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("%/\\@:#?*[]", c) >= 0 {
				t.Errorf("%q has byte %#x", got, c)
			}
		}
	})
}
