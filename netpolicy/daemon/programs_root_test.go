//go:build root

package daemon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentos/agentos/netpolicy"
)

// Programs of the distribution, which know nothing of us: they only have a resolv.conf.
func TestPrograms(t *testing.T) {
	w := newWorld(t)
	w.record("web.example A", webAddr)
	w.add(t, netpolicy.Limits{}, named("web.example", 80, 443))
	go w.web(w.net.listen(t, webAddr+":443"), true)
	go w.web(w.net.listen(t, webAddr+":80"), false)
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+netpolicy.Resolver4.String()+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(script string) (string, error) {
		cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && { `+script+"\n}", resolv)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
		var out []byte
		var err error
		w.jail.in(func() { out, err = cmd.CombinedOutput() })
		return string(out), err
	}
	for _, tt := range []struct {
		program, script, want string
		ok                    bool
	}{
		{"curl", "curl -sS --max-time 10 -k https://web.example/a", "hello from web.example", true},
		{"curl", "curl -sS --max-time 10 http://web.example/a http://web.example/b", "hello from web.examplehello from web.example", true},
		{"curl", "curl -sS --max-time 10 -6 http://web.example/a", "hello from web.example", true},
		{"curl", "curl -sS --max-time 10 http://other.example/", "Could not resolve host", false},
		{"curl", "curl -sS --max-time 10 http://web.example:8080/", "", false},
		{"curl", "curl -sS --max-time 10 -k --resolve web.example:443:" + webAddr + " https://web.example/", "", false},
		{"curl", "curl -sS --max-time 10 -k --connect-to other.example:443:web.example:443 https://other.example/", "", false},
		{"curl", "curl -sS --max-time 10 -H 'Host: other.example' http://web.example/", "", false},
		{"git", "git ls-remote http://web.example/repo", "", true}, // the answer is an empty repository
		{"python3", `python3 -c 'import urllib.request; print(urllib.request.urlopen("http://web.example/", timeout=10).read().decode())'`, "hello from web.example", true},
	} {
		if _, err := exec.LookPath(tt.program); err != nil {
			t.Logf("%s: wanted %s, got none", tt.script, tt.program)
			continue
		}
		out, err := run(tt.script)
		if (err == nil) != tt.ok || !strings.Contains(out, tt.want) {
			t.Errorf("%s: %q, %v", tt.script, out, err)
		}
	}
	hits, _ := w.seen()
	for _, h := range hits {
		if !strings.Contains(h, " web.example ") {
			t.Errorf("reached the server: %s", h)
		}
	}
}
