//go:build root

package agents

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// address is where the model listens: the loopback of the jail, which is the jail's own.
const address = "127.0.0.1:18080"

// request is a line of the model's record (tests/agents/model).
type request struct {
	Kind   string      `json:"kind"`
	Method string      `json:"method"`
	URL    string      `json:"url"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
	Answer string      `json:"answer"`
	Newest string      `json:"newest"`
	Why    string      `json:"why"`
}

// model is the scripted model at work in a session's jail.
type model struct {
	t     testing.TB
	ready chan struct{}
	ended chan struct{}

	mu   sync.Mutex
	said []request
}

// startModel starts the model in a session's jail as soon as there is one, by agentos exec, whose output is the record.
func (d *desk) startModel(session, api string) *model {
	m := &model{t: d.t, ready: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && d.t.Context().Err() == nil; time.Sleep(20 * time.Millisecond) {
			cmd := d.command("agentos", "exec", session, "--", ".model/model", "-api", api, "-script", ".model/script.toml", "-listen", address)
			if m.follow(cmd) {
				return
			}
		}
	}()
	return m
}

// follow runs the model and reads its record. It says whether the model came up.
func (m *model) follow(cmd *exec.Cmd) bool {
	var errs lines
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return false
	}
	up := false
	scan := bufio.NewScanner(out)
	scan.Buffer(nil, 64<<20)
	for scan.Scan() {
		var r request
		if err := json.Unmarshal(scan.Bytes(), &r); err != nil {
			m.t.Errorf("the model's record: %v: %.200s", err, scan.Text())
			continue
		}
		if r.Kind == "ready" {
			up = true
			close(m.ready)
			continue
		}
		m.mu.Lock()
		m.said = append(m.said, r)
		m.mu.Unlock()
	}
	_ = cmd.Wait() // it is killed with its jail
	if e := errs.String(); strings.Contains(e, "model:") {
		m.t.Errorf("the model: %s", e)
	}
	return up
}

// awaitReady waits until the model listens.
func (m *model) awaitReady() {
	m.t.Helper()
	select {
	case <-m.ready:
	case <-m.ended:
		m.t.Fatal("the model did not come up in the jail")
	case <-m.t.Context().Done():
		m.t.Fatal("out of time")
	}
}

// requests are what the agent asked so far.
func (m *model) requests() []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]request(nil), m.said...)
}

// told is what the agent told the model when it got the answer, "" when it never did.
func (m *model) told(answer string) string {
	for _, r := range m.requests() {
		if r.Answer == answer {
			return r.Newest
		}
	}
	return ""
}

// judge fails the test for requests that the script did not expect, and unless the answers were these, in this order. A request
// may come twice.
func (m *model) judge(answers ...string) {
	m.t.Helper()
	var got []string
	for _, r := range m.requests() {
		switch {
		case r.Kind != "request":
			m.t.Errorf("an unexpected request: %s\n%s %s\n%v\n%.4000s", r.Why, r.Method, r.URL, r.Header, r.Body)
		case r.Answer == "aside" || r.Answer == "fetch":
		case len(got) == 0 || got[len(got)-1] != r.Answer:
			got = append(got, r.Answer)
		}
	}
	if a, b := strings.Join(got, " "), strings.Join(answers, " "); a != b {
		m.t.Errorf("the model was asked for %q, want %q", a, b)
	}
}
