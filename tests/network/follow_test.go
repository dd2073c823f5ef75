//go:build root && linux

package network

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
)

// heap is a writer that may be read meanwhile.
type heap struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heap) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(p)
}

func (h *heap) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

// --follow prints what happens from then on, one line each, and on a terminal draws a table that fits it, on a screen of its own; both
// end with the session.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	p := w.policy("follow", "allow = [\"ok.example.org:80\", \"db.example.org:5432\"]\n")
	bin := filepath.Join(w.root, "ws", "netact")
	w.session("follow", p, bin+" act get http://ok.example.org/before; touch ready; until [ -e go ]; do sleep 0.05; done; "+
		bin+" act get http://ok.example.org/after; "+bin+" act dial ok.example.org:8080 x; exec "+bin+" act drip db.example.org:5432")
	in := func(name string) string { return filepath.Join(w.root, "ws", name) }
	await(t, "the first connection's end", func() bool {
		_, err := os.Stat(in("ready"))
		return err == nil && strings.Contains(w.says(0, "audit", "show", "follow", "--kind", "disconnect"), "ok.example.org")
	})

	var lines, records heap
	follow := w.agentos("net", "follow", "--follow")
	follow.Stdout, follow.Stderr = &lines, &lines
	check(t, follow.Start())
	asJSON := w.agentos("net", "follow", "--follow", "--json")
	asJSON.Stdout, asJSON.Stderr = &records, &records
	check(t, asJSON.Start())
	screen := w.agentos("net", "follow", "--follow")
	screen.Env = append(screen.Env, "TERM=xterm")
	terminal, err := pty.StartWithSize(screen, &pty.Winsize{Rows: 12, Cols: 70})
	check(t, err)
	defer terminal.Close()
	var drawn heap
	read := make(chan struct{})
	go func() { // ends with the program
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := terminal.Read(b)
			_, _ = drawn.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	await(t, "a first table", func() bool { return strings.Contains(drawn.String(), "DESTINATION") })
	await(t, "both to follow", func() bool { // they tell what happens after they were called
		w.says(0, "net", "allow", "follow", "other.example.org:443")
		return strings.Contains(lines.String(), "uid 0 made grant") && strings.Contains(records.String(), `"kind":"grant"`)
	})
	check(t, os.WriteFile(in("go"), nil, 0o644))
	await(t, "the open connection on the screen", func() bool { return strings.Contains(drawn.String(), "db.example.org:5432") })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the lines:\n%s\nthe records:\n%s\nthe screen: %q", lines.String(), records.String(), drawn.String())
		}
	})
	await(t, "lines", func() bool {
		return strings.Contains(lines.String(), "db.example.org") && strings.Contains(records.String(), `"name":"db.example.org"`)
	})
	w.says(0, "kill", "follow")
	for _, c := range []func() error{follow.Wait, asJSON.Wait, screen.Wait} {
		if err := c(); err != nil {
			t.Errorf("it ends with the session: %v", err)
		}
	}
	<-read
	for _, want := range []string{"connect", "disconnect", "deny", "ok.example.org"} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("no %q in the lines:\n%s", want, lines.String())
		}
	}
	if n := strings.Count(records.String(), `"kind":"disconnect"`); n != 2 { // after, and db; not the one from before
		t.Errorf("%d connections ended:\n%s", n, records.String())
	}
	out := drawn.String()
	if !strings.HasPrefix(out, "\x1b[?1049h") || !strings.HasSuffix(out, "\x1b[?1049l") {
		t.Errorf("the screen is not given back: %q ... %q", out[:min(40, len(out))], out[max(0, len(out)-40):])
	}
	sequences := regexp.MustCompile("\x1b\\[[0-9?;]*[a-zA-Z]")
	for _, frame := range strings.Split(out, "\x1b[H") {
		rows := strings.Split(strings.TrimSuffix(sequences.ReplaceAllString(frame, ""), "\r\n"), "\r\n")
		for _, r := range rows {
			if len(r) > 70 || len(rows) > 12 {
				t.Fatalf("a frame of %d rows, %d wide: %q", len(rows), len(r), frame)
			}
		}
	}
}
