package policy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

const orgText = `version = 1
name = "house"

[files]
deny = ["**/customers/**"]

[org]
signed = "require"
expires = "2031-01-01"
forbid_backends = ["docker", "none"]
sharing = "deny"
audit_to = ["syslog", "file:/srv/worm/agentos", "https://siem.example/in"]
keep = "90d"
remove_after = "400d"

[org.break_glass]
longest = "1h"
groups = ["oncall"]

[[tests]]
want = "deny"
rule = "deny **/customers/**"
read = ["/srv/customers/a"]

[[tests]]
want = "allow"
read = ["/etc/passwd", "${workspace}/x"]
connect = ["example.com:443", "10.0.0.1:22", "[2001:db8::1]:80", "host:5432"]
env = ["ANYTHING"]
`

func TestOrgSection(t *testing.T) {
	d, err := Parse("house.toml", []byte(orgText))
	if err != nil {
		t.Fatal(err)
	}
	second := parse(t, "second.toml", "[org]\nexpires = \"2030-06-01T12:00:00+02:00\"\nforbid_backends = [\"native\"]\nkeep = \"91d\"\n")
	prof := parse(t, "p", "[files]\nread = [\"/**\"]\n")
	r := resolve(t, Vars{}, Layer{Org, d}, Layer{Org, second}, Layer{Profile, prof})
	o := r.Org
	if !o.Signed || !o.NoSharing || o.Expires != "2030-06-01T12:00:00+02:00" || o.Keep.String() != "13w" || o.RemoveAfter.String() != "400d" {
		t.Errorf("%+v", o)
	}
	var rules []string
	for _, x := range o.Rules {
		rules = append(rules, x.String())
	}
	want := "house.toml:12:13: audit-to syslog|house.toml:12:23: audit-to file:/srv/worm/agentos|house.toml:12:49: audit-to https://siem.example/in|" +
		"house.toml:10:20: forbid-backend docker|house.toml:10:30: forbid-backend none|second.toml:5:20: forbid-backend native"
	if got := strings.Join(rules, "|"); got != want {
		t.Errorf("rules %s", got)
	}
	for key, want := range map[string]string{"org.signed": "house.toml:8:10", "org.expires": "second.toml:4:11", "org.keep": "second.toml:6:8", "org.remove_after": "house.toml:14:16"} {
		if r.Where[key] != want {
			t.Errorf("%s stands at %s, want %s", key, r.Where[key], want)
		}
	}
	data, err := json.Marshal(Layer{Org, d}) // as it crosses the gate
	var back Layer
	if err != nil || json.Unmarshal(data, &back) != nil || back.Doc.Org.Keep != d.Org.Keep || back.Doc.Org.BreakGlass.Longest != Span(time.Hour) || len(back.Doc.Org.AuditTo) != 3 {
		t.Errorf("%s, %v", data, err)
	}
}

func TestOrgSectionElsewhere(t *testing.T) {
	d := parse(t, "mine.toml", "[org]\nsharing = \"deny\"\n")
	prof := parse(t, "p", "")
	for _, kind := range []LayerKind{User, Project, Profile} {
		layers := []Layer{{kind, d}, {Profile, prof}}
		if kind == Profile {
			layers = layers[:1]
		}
		_, err := Resolve(layers, SampleVars())
		if err == nil || !strings.Contains(err.Error(), "mine.toml:3:2: a "+kind.String()+" policy has no [org] section") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	long, short := parse(t, "a", "[org]\nkeep = \"90d\"\n"), parse(t, "b", "[org]\nremove_after = \"30d\"\n")
	if _, err := Resolve([]Layer{{Org, long}, {Org, short}, {Profile, prof}}, SampleVars()); err == nil {
		t.Error("records are kept and removed")
	}
}

func TestOrgMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`signed = "maybe"`:                                   "4:10",
		`signed = true`:                                      "4:10",
		`expires = "soon"`:                                   "4:11",
		`expires = 2031-01-01`:                               "a date or time",
		`expires = "2031-02-30"`:                             "4:11",
		`forbid_backends = ["dokcer"]`:                       `4:20`,
		`audit_to = ["http://siem.example"]`:                 "4:13",
		`audit_to = ["https://me:pw@siem.example"]`:          "4:13",
		`audit_to = ["file:relative"]`:                       "4:13",
		`audit_to = ["file:/a/../b"]`:                        "4:13",
		`keep = "5 years"`:                                   "4:8",
		`keep = "0d"`:                                        "4:8",
		`keep = "99999999w"`:                                 "4:8",
		"keep = \"2d\"\nremove_after = \"1d\"":               "5:16",
		`break_glass = { groups = ["a"] }`:                   "longest",
		`break_glass = { longest = "8d" }`:                   "at most 7d",
		`break_glass = { longest = "1h", users = [] }`:       `unknown key "users"`,
		`break_glass = { longest = "1h", groups = ["a b"] }`: "not the name of a unix group",
		`sign = "require"`:                                   "did you mean",
	} {
		_, err := Parse("f", []byte("version = 1\nname = \"x\"\n[org]\n"+text+"\n"))
		e, ok := err.(*Error) //nolint:errorlint // Parse answers nothing else
		if !ok || !strings.Contains(e.Error()+e.Hint, want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestDeadline(t *testing.T) {
	for text, want := range map[string]string{"2031-01-01": "2031-01-02T00:00:00Z", "2031-01-01T12:00:00+01:00": "2031-01-01T11:00:00Z"} {
		got, ok := (&OrgSection{Expires: text}).Deadline()
		if !ok || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	if _, ok := (&OrgSection{}).Deadline(); ok {
		t.Error("nothing said is a deadline")
	}
}

// Tests of an organisation's file are about what it takes away, and can name the rule.
func TestCheckOrg(t *testing.T) {
	d, err := Parse("house.toml", []byte(orgText))
	if err != nil {
		t.Fatal(err)
	}
	results, err := Check(d, Vars{})
	if err != nil || len(results) != 8 {
		t.Fatal(len(results), err)
	}
	for _, r := range results {
		if !r.OK {
			t.Errorf("%+v", r)
		}
	}
	wrong, err := Parse("w", []byte(strings.Replace(orgText, `rule = "deny **/customers/**"`, `rule = "deny **/clients/**"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if results, err = Check(wrong, Vars{}); err != nil || results[0].OK || !results[1].OK {
		t.Errorf("another rule decides: %+v %v", results[0], err)
	}
}

func FuzzSpan(f *testing.F) {
	for _, s := range []string{"30m", "12h", "400d", "1w", "0s", "-1d", "1.5h", "9999999999w"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseSpan(s)
		if err != nil {
			return
		}
		if back, err := ParseSpan(v.String()); err != nil || back != v || v <= 0 || v > maxSpan {
			t.Errorf("%q is %d, and that is %q", s, v, v)
		}
	})
}
