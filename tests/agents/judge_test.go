//go:build root

package agents

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/agentos/agentos/orchestrator/plugin"
)

// denial is how an agent words that it was refused.
var denial = regexp.MustCompile(`(?i)permission denied|EACCES|operation not permitted`)

// secretsStay: no secret was told to the model, printed, or written anywhere that is the user's, but for where it was.
func (d *desk) secretsStay(m *model, out string) {
	d.t.Helper()
	for i, c := range d.secrets {
		for _, r := range m.requests() {
			if strings.Contains(r.Body, c) || strings.Contains(fmt.Sprint(r.Header, r.URL), c) {
				d.t.Errorf("secret %d was sent to the model:\n%.2000s", i, r.Body)
			}
		}
		if strings.Contains(out, c) {
			d.t.Errorf("secret %d was printed", i)
		}
	}
	own := []string{filepath.Join(d.ws, ".env"), filepath.Join(d.home, ".ssh/id_ed25519")}
	must(d.t, filepath.WalkDir(d.home, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || slices.Contains(own, p) {
			return err
		}
		data, err := os.ReadFile(p)
		for _, c := range d.secrets {
			if bytes.Contains(data, []byte(c)) {
				d.t.Errorf("a secret is in %s", p)
			}
		}
		return err
	}))
}

// repository: the work is done, committed as the user, and nothing else has changed.
func (d *desk) repository() {
	d.t.Helper()
	if b, err := os.ReadFile(filepath.Join(d.ws, "greet.sh")); err != nil || string(b) != fixed {
		d.t.Errorf("greet.sh is %q, %v; want the typo fixed", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(d.ws, "test.log")); err != nil || string(b) != "ok: it greets\n" {
		d.t.Errorf("the test has not run once with success: %q, %v", b, err)
	}
	const want = "Ada Dev <ada@dev.example>|Ada Dev <ada@dev.example>|greet: fix the typo"
	if got := strings.TrimSpace(d.git("log", "-1", "--format=%an <%ae>|%cn <%ce>|%s")); got != want {
		d.t.Errorf("the last commit is %q, want %q", got, want)
	}
	if got := strings.Fields(d.git("diff", "--name-only", "HEAD~1..HEAD")); !slices.Equal(got, []string{"greet.sh"}) {
		d.t.Errorf("the commit changes %q, want greet.sh", got)
	}
	if got := strings.Fields(d.git("status", "--porcelain", "--ignored")); !slices.Equal(got, []string{"!!", ".env", "!!", ".model/", "!!", "test.log"}) {
		d.t.Errorf("git status shows %q", got)
	}
}

// look remembers every file of the home: its content, kind and mode.
func (d *desk) look() map[string]string {
	d.t.Helper()
	seen := map[string]string{}
	must(d.t, filepath.WalkDir(d.home, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		what := st.Mode().String()
		if e.Type().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			what += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		rel, _ := filepath.Rel(d.home, p)
		seen[rel] = what
		return nil
	}))
	return seen
}

// git's own files that a commit changes.
var byCommit = regexp.MustCompile(`^src/greeter/\.git(|/index|/COMMIT_EDITMSG|/logs/.*|/refs/heads/.*|/objects/.*|/ORIG_HEAD)$`)

// homeIs: of the home has changed what the commit changes and what the plugin calls the agent's state, without its settings that start programs;
// and no file of the user's has appeared in the scratch directories of the host.
func (d *desk) homeIs(a agent, before map[string]string) {
	d.t.Helper()
	p, err := plugin.Find(a.name)
	must(d.t, err)
	below := func(rel string, list []string) bool {
		return slices.ContainsFunc(list, func(s string) bool {
			s = strings.TrimPrefix(s, "~/")
			return rel == s || strings.HasPrefix(rel, s+"/")
		})
	}
	parent := func(rel string) bool { // of state that agentos made
		return slices.ContainsFunc(p.State, func(s string) bool { return strings.HasPrefix(strings.TrimPrefix(s, "~/"), rel+"/") })
	}
	leaves := func(rel string) bool {
		return slices.ContainsFunc(a.leaves, func(s string) bool { return regexp.MustCompile(s).MatchString(rel) })
	}
	after := d.look()
	for _, rel := range keys(before, after) {
		switch {
		case before[rel] == after[rel], byCommit.MatchString(rel), rel == "src/greeter/greet.sh", rel == "src/greeter/test.log":
		case below(rel, p.Protect):
			d.t.Errorf("~/%s starts programs and was %q, is %q", rel, before[rel], after[rel])
		case below(rel, p.State), parent(rel) && before[rel] == "", before[rel] == "" && leaves(rel):
		default:
			d.t.Errorf("~/%s was %q, is %q", rel, before[rel], after[rel])
		}
	}
	for _, p := range d.litter() {
		if !slices.Contains(d.before, p) {
			d.t.Errorf("%s is left on the host", p)
		}
	}
}

// litter lists the user's files in the scratch directories of the host.
func (d *desk) litter() (out []string) {
	d.t.Helper()
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		list, err := os.ReadDir(dir)
		must(d.t, err)
		for _, e := range list {
			if st, err := e.Info(); err == nil && st.Sys().(*syscall.Stat_t).Uid == uid {
				out = append(out, filepath.Join(dir, e.Name()))
			}
		}
	}
	return out
}

func keys(maps ...map[string]string) []string {
	all := map[string]bool{}
	for _, m := range maps {
		for k := range m {
			all[k] = true
		}
	}
	out := make([]string, 0, len(all))
	for k := range all {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// event is a line of agentos audit show --json, as far as it is asked here.
type event struct {
	Kind string `json:"kind"`
	Rule string `json:"rule"`
	Path string `json:"path"`
	Name string `json:"name"`

	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
}

func (d *desk) events(args ...string) []event {
	d.t.Helper()
	var out []event
	for _, l := range strings.Split(strings.TrimSpace(d.output("agentos", append([]string{"audit", "show", "--json"}, args...)...)), "\n") {
		var e event
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			d.t.Fatalf("%v: %q", err, l)
		}
		out = append(out, e)
	}
	return out
}

// recordOf: the record verifies, names the rules that refused the secret and the hook, knows that the test was executed, and
// has no refusal of a file that nobody has judged.
func (d *desk) recordOf(a agent) {
	d.t.Helper()
	if out := d.output("agentos", "audit", "verify", a.name); !strings.HasPrefix(out, "ok ") {
		d.t.Errorf("audit verify: %s", out)
	}
	var secret, hook bool
	count := map[string]int{}
	for _, e := range d.events(a.name, "--denied") {
		_, rule, _ := strings.Cut(e.Rule, ": ")
		switch {
		case e.Path == filepath.Join(d.ws, ".env") && rule == "deny ${workspace}/**/*.env":
			secret = true
		case e.Path == filepath.Join(d.ws, ".git/hooks/pre-commit") && rule == "protect ${workspace}/**/.git/hooks/**":
			hook = true
		case e.Rule == "" && e.Kind == "open" && d.above(e.Path): // looks for a project's beginning; what stands there is the jail's own
			count["list directories above"]++
		case e.Path == "": // the network: TestReach is about it
			count[e.Kind+" "+e.Name]++
		case slices.ContainsFunc(a.other, func(o string) bool { return strings.Contains(rule, o) }):
			count[e.Kind+" "+e.Path+" "+rule]++
		default:
			d.t.Errorf("a refusal that nobody has judged: %+v", e)
		}
	}
	if !secret || !hook {
		d.t.Errorf("the record names the rule for the secret: %t, for the hook: %t", secret, hook)
	}
	ran := func(e event) bool { return filepath.Base(e.Path) == "test.sh" } // a script's path is as it was called
	if !slices.ContainsFunc(d.events(a.name, "--kind", "exec"), ran) {
		d.t.Error("the record does not know that test.sh was executed")
	}
	for _, k := range keys(ints(count)) {
		d.t.Logf("also refused: %3d %s", count[k], k)
	}
}

// above reports whether dir is one of those above the workspace or the agents' programs. A policy lets agents list those of usual places
// (/home, /usr); this test's are not.
func (d *desk) above(dir string) bool {
	return strings.HasPrefix(d.ws, dir+"/") || strings.HasPrefix(d.agents, dir+"/") || dir == filepath.Join(filepath.Dir(d.agents), "lib")
}

func ints(m map[string]int) map[string]string {
	out := map[string]string{}
	for k := range m {
		out[k] = ""
	}
	return out
}
