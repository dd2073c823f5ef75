package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNetRule(t *testing.T) {
	for _, s := range []string{
		"a.example:443", "github.com:22,443", "a.example:80,8000-8100", "10.0.0.0/8:5432 udp", "db.internal:5432 tls=opaque",
		"a.example:80 methods=GET,HEAD paths=/v1/*,/health budget=50MB/day private records=TXT,SRV", "host:5432 budget=1GB", "*:443 budget=5MB/hour",
	} {
		if _, err := ParseNetRule(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{
		"a.example:443 ", "a.example:443  udp", "a.example:443 tcp", "a.example:443 tls=off", "a.example:443 udp udp", "a.example:443 records=A", "a.example:443 private=1", "a.example:443 tls=opaque paths=/x", "a.example:443 methods=", "a.example:443 methods=get", "a.example:443 paths=x",
		"a.example:443 paths=/*/x", "a.example:443 budget=", "a.example:443 budget=5MB/week", "a.example:443 budget=0MB", "a.example:443\tudp", "a:1,", "a:,1",
		"a:" + strings.Repeat("1,", 16) + "1",
	} {
		if r, err := ParseNetRule(s); err == nil {
			t.Errorf("%q: got %+v, want an error", s, r)
		}
	}
	r, err := ParseNetRule("github.com:22,443 budget=50MB/day")
	if err != nil || !r.Matches("github.com", 22) || !r.Matches("github.com", 443) || r.Matches("github.com", 80) || r.Budget != (Budget{50e6, 24 * time.Hour}) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// What a lower layer asks must be no more than what the rule above gives.
func TestNetRuleCovers(t *testing.T) {
	for _, c := range []struct {
		wide, narrow string
		want         bool
	}{
		{"*:*", "a.example:22,443", true},
		{"a.example:22,443", "a.example:443", true},
		{"a.example:443", "a.example:22,443", false},
		{"*:*", "a.example:53 udp", false},
		{"*:* udp", "a.example:53", true},
		{"*:*", "a.example:53 private", false},
		{"*:*", "a.example:53 records=TXT", false},
		{"*:* records=TXT,MX", "a.example:53 records=MX", true},
		{"a.example:53 udp", "a.example:53 udp", true},
		{"*:*", "a.example:443 tls=opaque", false},
		{"*:* tls=opaque", "a.example:443", true},
		{"a.example:80 methods=GET", "a.example:80", false},
		{"a.example:80", "a.example:80 methods=GET", true},
		{"a.example:80 methods=GET,HEAD", "a.example:80 methods=GET", true},
		{"a.example:80 methods=GET", "a.example:80 methods=GET,POST", false},
		{"a.example:80 paths=/v1/*", "a.example:80 paths=/v1/x", true},
		{"a.example:80 paths=/v1/*", "a.example:80 paths=/v2/x", false},
		{"a.example:80 paths=/v1/*", "a.example:80", false},
		{"a.example:80 paths=/v1/*", "a.example:80 paths=/v1/x/*", true},
		{"a.example:80 paths=/v1/x", "a.example:80 paths=/v1/*", false},
		{"a.example:80 budget=50MB/day", "a.example:80 budget=5MB/day", true},
		{"a.example:80 budget=50MB/day", "a.example:80 budget=5MB/hour", false},
		{"a.example:80 budget=50MB", "a.example:80", false},
	} {
		w, errW := ParseNetRule(c.wide)
		n, errN := ParseNetRule(c.narrow)
		if errW != nil || errN != nil {
			t.Fatal(errW, errN)
		}
		if got := w.covers(n); got != c.want {
			t.Errorf("%q covers %q: %v, want %v", c.wide, c.narrow, got, c.want)
		}
	}
}

func TestNetTables(t *testing.T) {
	const head = "version = 1\nname = \"x\"\n[net]\n"
	d, err := Parse("p", []byte(head+`ask = true
allow = [
  "a.example:443",
  {to = "b.example:80", methods = ["GET", "HEAD"], paths = ["/v1/*"], budget = "50MB/day"},
  {to = "c.example:5432", tls = "opaque"},
  {to = "10.0.0.0/8:123", udp = true},
  {to = "d.example:443", private = true, udp = false, records = ["TXT"]},
]
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, it := range d.Net.Allow {
		got = append(got, it.Text)
	}
	want := []string{"a.example:443", "b.example:80 methods=GET,HEAD paths=/v1/* budget=50MB/day", "c.example:5432 tls=opaque", "10.0.0.0/8:123 udp", "d.example:443 private records=TXT"}
	if !slices.Equal(got, want) || d.Net.Ask == nil || !*d.Net.Ask || d.Net.Allow[1].Line != 7 {
		t.Errorf("got %q, ask %v, line %d", got, d.Net.Ask, d.Net.Allow[1].Line)
	}
	for _, c := range []struct{ text, err string }{
		{`allow = [{to = "a.example:443", tsl = "opaque"}]`, `unknown key "tsl" in an entry of [net] allow`},
		{`allow = [{tls = "opaque"}]`, "an entry of net.allow has no destination"},
		{`allow = [{to = "a.example:443", udp = "yes"}]`, "wants true or false"},
		{`allow = [{to = "a.example:443", tls = "off"}]`, `option "tls=off"`},
		{`allow = [{to = "a.example:443", paths = ["/a b"]}]`, "percent-encoded"},
		{`deny = [{to = "a.example:443"}]`, "net.deny wants a list of strings"},
		{`deny = ["a.example:443 tls=opaque"]`, "options go into allow"},
		{`unix = [{to = "/run/x"}]`, "net.unix wants a list of strings"},
	} {
		if _, err := Parse("p", []byte(head+c.text)); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.text, err, c.err)
		}
	}
}

// A person says whether an unknown name may be asked for only where every layer lets it.
func TestAsk(t *testing.T) {
	doc := func(name, net string) *Document {
		d, err := Parse(name, []byte("version = 1\nname = \""+name+"\"\n[net]\n"+net))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		org, profile string
		want         bool
	}{{"", "", false}, {"", "ask = true", true}, {"ask = false", "ask = true", false}, {"ask = true", "", false}} {
		r := resolve(t, Vars{}, Layer{Org, doc("org", c.org)}, Layer{Profile, doc("mine", c.profile)})
		if r.Net.Ask != c.want {
			t.Errorf("org %q, profile %q: %v, want %v", c.org, c.profile, r.Net.Ask, c.want)
		}
	}
}

func TestExplainConnect(t *testing.T) {
	d, err := Parse("mine", []byte("version = 1\nname = \"mine\"\n[net]\nallow = [\"*.a.example:22,443\", \"10.0.0.0/8:53 udp\", \"host:5432\"]\ndeny = [\"bad.a.example:443\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := resolve(t, Vars{}, Layer{Profile, d})
	for arg, want := range map[string]bool{
		"x.a.example:22": true, "X.A.example:443": true, "a.example:443": false, "bad.a.example:443": false, "x.a.example:80": false,
		"10.1.2.3:53 udp": true, "10.1.2.3:53": true, "10.1.2.3:54 udp": false, "bad.a.example:443 udp": false, "host:5432": true, "127.0.0.1:5432": false, "x.a.example:443 udp": false,
	} {
		if v := r.Explain(OpConnect, arg); v.Allow != want {
			t.Errorf("%s: %+v, want allow %v", arg, v, want)
		}
	}
}
