package reach_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/agentos/agentos/jail/reach"
	"github.com/agentos/agentos/policy"
)

// A grant adds what the user's own lists do not have, never what the organisation's do not, and lifts no denial. What
// CheckGrant lets pass is what then is allowed.
func TestGrants(t *testing.T) {
	own := "[net]\nallow = [\"github.com:443\"]\ndeny = [\"bad.example:*\", \"*.evil.example:*\", \"!good.evil.example:*\"]\n"
	hosts := []string{"github.com", "x.npmjs.org", "10.1.2.3", "11.2.3.4", "host", "good.evil.example", "a.evil.example", "bad.example", "docs.example"}
	for _, o := range []string{"", "[net]\nallow = [\"*.npmjs.org:443\", \"github.com:22-443\", \"*.evil.example:443\", \"bad.example:443\", \"10.0.0.0/8:443\"]\n", "[net]\nallow = []\n"} {
		r := resolve(t, layer(t, policy.Org, "org", o), layer(t, policy.User, "user", "[net]\nallow = [\"github.com:443\"]\n"), layer(t, policy.Profile, "mine", own))
		before, err := reach.Rules(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range hosts {
			for _, port := range []uint16{22, 443, 5432} {
				entry := host + ":" + strconv.Itoa(int(port))
				by, err := r.CheckGrant(entry)
				if err != nil {
					t.Fatal(err)
				}
				rules, err := reach.Rules(r, reach.Grant{ID: 1, UID: 7, Entry: entry})
				if err != nil {
					t.Fatal(err)
				}
				if got := allows(rules, host, port); got != (by == "") {
					t.Errorf("org %q, grant %s: allowed %v, refused by %q", o, entry, got, by)
				}
				for _, other := range hosts {
					for _, p := range []uint16{22, 443, 5432} {
						if (other != host || p != port) && allows(rules, other, p) != allows(before, other, p) {
							t.Errorf("org %q: grant %s changes %s:%d", o, entry, other, p)
						}
					}
				}
				denied, err := reach.Rules(r, reach.Grant{ID: 1, Entry: entry}, reach.Grant{ID: 2, Deny: true, Entry: host + ":*"})
				if err != nil || allows(denied, host, port) {
					t.Errorf("org %q: %s is allowed though it was denied (%v)", o, entry, err)
				}
			}
		}
	}
	r := resolve(t, layer(t, policy.Profile, "mine", own))
	rules, err := reach.Rules(r, reach.Grant{ID: 3, UID: 7, Entry: "a.example:1"})
	if err != nil || rules.Rules[len(rules.Rules)-1].At != "grant 3 of uid 7: net-allow a.example:1" {
		t.Errorf("%v %+v", err, rules)
	}
	if _, err := reach.Rules(r, reach.Grant{ID: 3, Entry: "nonsense"}); err == nil || !strings.Contains(err.Error(), "grant 3") {
		t.Errorf("an entry that does not parse: %v", err)
	}
}

func TestGrantEnds(t *testing.T) {
	for _, row := range []struct {
		ends, now uint64
		over      bool
	}{{0, 1 << 60, false}, {10, 9, false}, {10, 10, true}, {10, 11, true}} {
		g := reach.Grant{Ends: row.ends}
		if g.Over(row.now) != row.over {
			t.Errorf("%+v", row)
		}
	}
}
