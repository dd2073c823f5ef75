package reach_test

import (
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agentos/agentos/jail/reach"
	"github.com/agentos/agentos/netpolicy"
	"github.com/agentos/agentos/policy"
)

var update = flag.Bool("update", false, "write golden files")

func layer(t *testing.T, kind policy.LayerKind, name, net string) policy.Layer {
	t.Helper()
	d, err := policy.Parse(name, []byte("version = 1\nname = \""+name+"\"\n"+net))
	if err != nil {
		t.Fatal(err)
	}
	return policy.Layer{Kind: kind, Doc: d}
}

func resolve(t *testing.T, layers ...policy.Layer) *policy.Resolved {
	t.Helper()
	r, err := policy.Resolve(layers, policy.Vars{Home: "/home/u", Workspace: "/home/u/w", Hosts: []string{"api.agent.example:443"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	org     = "[net]\nallow = [\"*:*\", \"10.0.0.0/8:*\", \"host:*\"]\ndeny = [\"*.evil.example:*\", \"!good.evil.example:443\"]\n"
	user    = "[net]\ndeny = [\"bad.example:*\"]\n"
	profile = "[net]\nallow = [\"${agent.hosts}\", \"github.com:22,443\", \"*.npmjs.org:443\", \"10.1.0.0/16:5432\", \"host:5432\", \"good.evil.example:443\", \"a.evil.example:443\", \"bad.example:443\",\n" +
		"{to = \"docs.example:80\", methods = [\"GET\"], paths = [\"/v1/*\"], budget = \"50MB/day\", private = true, records = [\"TXT\"]}]\n"
)

func TestGolden(t *testing.T) {
	r := resolve(t, layer(t, policy.Org, "org", org), layer(t, policy.User, "user", user), layer(t, policy.Profile, "mine", profile))
	rules, err := reach.Rules(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(rules, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", "layers.json")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != string(got) {
		t.Errorf("%s differs (%v); run go test ./jail/reach -update\n%s", file, err, got)
	}
}

// allows is what netpolicy's documentation says of rules, in the plainest words.
func allows(r netpolicy.Rules, host string, port uint16) bool {
	match := func(rule netpolicy.Rule) bool {
		if !slices.ContainsFunc(rule.Ports, func(p netpolicy.Ports) bool { return p.Low <= port && port <= p.High }) {
			return false
		}
		addr, err := netip.ParseAddr(host)
		switch rule.Kind {
		case netpolicy.Host:
			return host == "host"
		case netpolicy.Prefix:
			return err == nil && rule.Prefix.Contains(addr)
		case netpolicy.Any:
			return err != nil && host != "host"
		case netpolicy.Below:
			return strings.HasSuffix(host, "."+rule.Name)
		}
		return host == rule.Name
	}
	allowed := map[int]bool{}
	denied := map[int]bool{}
	for _, rule := range r.Rules {
		switch {
		case !match(rule):
		case rule.Deny:
			denied[rule.Layer] = !rule.Except
		default:
			allowed[rule.Layer] = true
		}
	}
	for _, d := range denied {
		if d {
			return false
		}
	}
	for l := range r.Layers {
		if !allowed[l] {
			return false
		}
	}
	return r.Layers > 0
}

// The policy and what netd gets agree about every destination.
func TestAgreesWithExplain(t *testing.T) {
	orgs := []string{"", org, "[net]\nallow = [\"github.com:443\"]\n", "[net]\nallow = []\n", user}
	profiles := []string{"", profile, "[net]\nallow = [\"*:*\"]\n", "[net]\nallow = [\"*:443\"]\ndeny = [\"github.com:*\"]\n"}
	hosts := []string{"github.com", "x.npmjs.org", "npmjs.org", "10.1.2.3", "10.2.0.1", "host", "good.evil.example", "a.evil.example", "bad.example", "docs.example", "api.agent.example", "8.8.8.8", "xgithub.com"}
	for _, o := range orgs {
		for _, p := range profiles {
			r := resolve(t, layer(t, policy.Org, "org", o), layer(t, policy.Profile, "mine", p))
			rules, err := reach.Rules(r)
			if err != nil {
				t.Fatal(err)
			}
			some := false
			for _, host := range hosts {
				for _, port := range []uint16{22, 80, 443, 5432} {
					ask := host + ":" + strconv.Itoa(int(port))
					want := r.Explain(policy.OpConnect, ask).Allow
					if got := allows(rules, host, port); got != want {
						t.Errorf("org %q, profile %q: %s is %v, want %v", o, p, ask, got, want)
					}
					some = some || want
				}
			}
			if some && !reach.Wanted(r) {
				t.Errorf("org %q, profile %q: something is allowed, and no network wanted", o, p)
			}
		}
	}
}

func TestNothingAllowed(t *testing.T) {
	for _, p := range []string{"", "[net]\nallow = []\n", "[net]\ndeny = [\"a.example:*\"]\n"} {
		r := resolve(t, layer(t, policy.Profile, "mine", p))
		if reach.Wanted(r) {
			t.Errorf("%q wants a network", p)
		}
	}
	if r := resolve(t, layer(t, policy.Org, "org", "[net]\nallow = []\n"), layer(t, policy.Profile, "mine", profile)); reach.Wanted(r) {
		t.Error("an organisation that allows nothing wants a network")
	}
}

func TestUnserved(t *testing.T) {
	r := resolve(t, layer(t, policy.Profile, "mine", "[net]\nallow = [\"10.0.0.0/8:123 udp\"]\n"))
	if _, err := reach.Rules(r); !errors.Is(err, reach.ErrUnserved) || !strings.Contains(err.Error(), "mine:4:10") {
		t.Errorf("got %v, want %v at its place", err, reach.ErrUnserved)
	}
}
