//go:build root && linux

package network

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Ports of the proxies outside. Both want the user me with the password secret.
const (
	connectPort = ":3128"
	socksPort   = ":1080"
)

// proxies are a company's: they know every name, which is a server of this namespace.
func proxies(listen func(string) net.Listener) {
	serve := func(l net.Listener, port string, one func(net.Conn, *bufio.Reader) (to, problem string)) {
		for {
			c, err := l.Accept()
			fail(err)
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				to, problem := one(c, r)
				fmt.Printf("proxy%s %s %s\n", port, to, problem)
				_, p, err := net.SplitHostPort(to)
				if problem != "" || err != nil {
					return
				}
				s, err := net.Dial("tcp", "127.0.0.1:"+p)
				if err != nil {
					return
				}
				defer s.Close()
				go func() { _, _ = io.Copy(s, r); _ = s.(*net.TCPConn).CloseWrite() }() // ends with the client
				_, _ = io.Copy(c, s)
			}()
		}
	}
	go serve(listen(connectPort), connectPort, connectOnce)
	go serve(listen(socksPort), socksPort, socksOnce)
}

func connectOnce(c net.Conn, r *bufio.Reader) (to, problem string) {
	q, err := http.ReadRequest(r)
	if err != nil || q.Method != http.MethodConnect {
		return "", "no CONNECT"
	}
	if q.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("me:secret")) {
		_, _ = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n\r\n")
		return q.Host, "407"
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	return q.Host, ""
}

// socksOnce speaks RFC 1928 with RFC 1929.
func socksOnce(c net.Conn, r *bufio.Reader) (to, problem string) {
	take := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(r, b)
		return b
	}
	if h := take(2); h[0] != 5 || !strings.Contains(string(take(int(h[1]))), "\x02") {
		_, _ = c.Write([]byte{5, 0xff})
		return "", "no password offered"
	}
	_, _ = c.Write([]byte{5, 2})
	user := string(take(int(take(2)[1])))
	password := string(take(int(take(1)[0])))
	if user != "me" || password != "secret" {
		_, _ = c.Write([]byte{1, 1})
		return "", "wrong password"
	}
	_, _ = c.Write([]byte{1, 0})
	if q := take(4); q[1] != 1 || q[3] != 3 {
		_, _ = c.Write([]byte{5, 8, 0, 1, 0, 0, 0, 0, 0, 0})
		return "", "not a name"
	}
	name := string(take(int(take(1)[0])))
	port := binary.BigEndian.Uint16(take(2))
	_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return fmt.Sprintf("%s:%d", name, port), ""
}

// Connections leave through the proxy that root's file names, as names that nobody here resolves; what a user's or the agent's
// environment says about proxies counts for nothing. The file is read again while a session runs, and one that makes no
// sense leaves what held.
func TestUpstreamProxy(t *testing.T) {
	w := newWorldWith(t, "[upstream]\nproxy = \"http://me:secret@"+outside+connectPort+"\"\ndirect = [\"other.example.org\"]\n")
	p := w.policy("proxied", "allow = [\"ok.example.org:80,443\", \"other.example.org:443\", \"lan.example.org:80\", \"10.99.99.0/24:80\", \"secret.corp.example:80\"]\n")
	act := w.jail(p)
	for _, c := range []struct{ act, want, heard, not string }{
		{"get https://ok.example.org/", "ok", "proxy:3128 ok.example.org:443", "dns "},
		{"get http://ok.example.org/", "ok", "http ok.example.org GET /", "dns "},
		{"get http://secret.corp.example/", "ok", "proxy:3128 secret.corp.example:80", "dns "}, // no resolver of this host knows it
		{"get https://other.example.org/", "ok", "dns A other.example.org.", "proxy"},
		{"get http://" + lan + "/", "ok", "http " + lan + " GET /", "proxy"},
		{"tls ok.example.org:443 evil.example.org", "", "", "http"},
		{"get http://no.example.org/", "NXDOMAIN", "", "no.example"},
	} {
		w.hears()
		out := act(strings.Fields(c.act)...)
		heard := w.hears()
		word, _, _ := strings.Cut(out, " ")
		if c.want != "" && word != c.want || c.want == "" && word == "ok" || !strings.Contains(heard, c.heard) || strings.Contains(heard, c.not) {
			t.Errorf("%s: %s\nwant %q; heard %q", c.act, out, c.want, heard)
		}
	}
	if out := w.says(0, "doctor"); !strings.Contains(out, "names go to the proxy http://"+outside+connectPort) || strings.Contains(out, "secret") {
		t.Errorf("doctor: %s", out)
	}

	// A user's environment is not asked.
	run := w.agentos("run", "--policy", p, "--", filepath.Join(w.root, "ws", "netact"), "act", "get", "http://ok.example.org/env")
	run.Env = append(run.Env, "HTTP_PROXY=http://"+lan+":8080", "ALL_PROXY=socks5://"+lan+":8080")
	w.hears()
	out, err := run.CombinedOutput()
	if heard := w.hears(); err != nil || !strings.Contains(heard, "proxy:3128 ok.example.org:80") || !strings.Contains(heard, "/env") {
		t.Errorf("with variables: %v: %s\nheard %q", err, out, heard)
	}

	// While a session runs: a password that is wrong, a file that makes no sense, the other kind of proxy.
	w.session("proxied", p, w.probeGet("http://ok.example.org/"))
	if got := w.answers(); got != "yes" {
		t.Fatalf("through the proxy: %s", got)
	}
	file := filepath.Join(w.root, "network.toml")
	say := func(text string) { check(t, os.WriteFile(file, []byte(text), 0o600)) }
	say("[upstream]\nproxy = \"http://me:wrong@" + outside + connectPort + "\"\n")
	await(t, "a refusal", func() bool { return strings.Contains(w.hears(), "ok.example.org:80 407") })
	if got := w.answers(); got != "no" {
		t.Errorf("with a wrong password: %s", got)
	}
	if record := w.says(0, "audit", "show", "proxied", "--kind", "connect"); !strings.Contains(record, "407") || strings.Contains(record, "wrong@") {
		t.Errorf("the record of a refusal: %s", record)
	}
	say("[upstream]\nproxy = \"socks5://me:secret@" + outside + socksPort + "\"\n")
	await(t, "SOCKS", func() bool { return strings.Contains(w.hears(), "proxy:1080 ok.example.org:80") })
	if got := w.answers(); got != "yes" {
		t.Errorf("through SOCKS: %s", got)
	}
	say("[upstream]\nproxy = \"carrier pigeon\"\n")
	await(t, "word of it", func() bool { return strings.Contains(w.says(0, "doctor"), "its newest upstream is not used") })
	w.hears()
	if got, heard := w.answers(), w.hears(); got != "yes" || !strings.Contains(heard, "proxy:1080") {
		t.Errorf("with a file that makes no sense: %s, heard %q", got, heard)
	}
	check(t, os.Remove(file))
	await(t, "a direct connection", func() bool { return strings.Contains(w.hears(), "dns A ok.example.org.") })
}
