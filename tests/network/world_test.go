//go:build root && linux

// Package network runs whole sessions against an "internet" that it makes itself: a network
// namespace with servers at public and private addresses, and a DNS server.
package network

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Addresses of the world. 11.0.0.0/8 is public in everybody's eyes and routed to nobody here.
const (
	hostSide  = "11.22.33.1"  // an address of this host
	outside   = "11.22.33.44" // a server
	lan       = "10.99.99.44" // another, at a private address
	nameServe = "127.0.0.77"
)

// TestMain is three programs: the tests, what they run in jails, and the servers outside.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "act":
		act(os.Args[2:])
	case len(os.Args) == 2 && os.Args[1] == "act":
		each()
	case len(os.Args) > 1 && os.Args[1] == "serve":
		serve()
	default:
		os.Exit(m.Run())
	}
}

// serve answers at every address of its namespace and prints a line for all that it hears.
func serve() {
	pair, err := tls.LoadX509KeyPair("cert.pem", "key.pem")
	fail(err)
	big := make([]byte, 8<<20)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("http %s %s %s\n", r.Host, r.Method, r.URL.Path)
		if r.URL.Path == "/big" {
			_, _ = w.Write(big)
			return
		}
		fmt.Fprintln(w, "hello")
	})
	listen := func(port string) net.Listener {
		l, err := net.Listen("tcp", port)
		fail(err)
		return l
	}
	secure := tls.NewListener(listen(":443"), &tls.Config{Certificates: []tls.Certificate{pair}})
	for _, l := range []net.Listener{listen(":80"), listen(":8080"), secure} {
		go func() { fail(http.Serve(l, handler)) }()
	}
	c, err := net.ListenPacket("udp", ":443")
	fail(err)
	go func() {
		for b := make([]byte, 1500); ; {
			n, _, err := c.ReadFrom(b)
			fail(err)
			fmt.Printf("udp %q\n", b[:n])
		}
	}()
	proxies(listen)
	l := listen(":5432")
	go func() { // whoever sends a line gets it back behind all that was heard before
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println(lines.Text())
		}
	}()
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		fail(err)
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				fmt.Printf("tcp %s\n", lines.Text())
				fmt.Fprintf(c, "echo %s\n", lines.Text())
			}
		}()
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// worlds counts them.
var worlds rune

// world is what is around the jails of one test.
type world struct {
	t      *testing.T
	bin    string // of the built programs
	root   string
	helper *exec.Cmd
	local  int // port of a server on the host's loopback

	servers io.Writer     // their standard input: a line of it comes back behind what they heard
	marked  chan struct{} // it has

	mu    sync.Mutex
	heard bytes.Buffer // of all servers
}

func (w *world) say(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.heard, format+"\n", a...)
}

// hears returns what the servers heard since the last call, up to now.
func (w *world) hears() string {
	w.t.Helper()
	if _, err := io.WriteString(w.servers, mark+"\n"); err != nil {
		w.t.Fatal(err)
	}
	select {
	case <-w.marked:
	case <-time.After(time.Minute):
		w.t.Fatal("the servers do not answer")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.heard.String()
	w.heard.Reset()
	return s
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, "")
}

// newWorldWith is newWorld whose helper has upstream as its file of that; "" for none.
func newWorldWith(t *testing.T, upstream string) *world {
	t.Helper()
	bin, err := filepath.Abs(first(os.Getenv("AGENTOS_BIN"), "../../bin"))
	check(t, err)
	check(t, os.MkdirAll("/srv", 0o755))
	root, err := os.MkdirTemp("/srv", "agentos-network.")
	check(t, err)
	w := &world{t: t, bin: bin, root: root}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	check(t, os.Chmod(root, 0o755))
	for _, d := range []string{"home", "ws", "run", "state", "org", "servers"} {
		check(t, os.Mkdir(filepath.Join(root, d), 0o755))
	}
	w.certificates()
	self, err := os.ReadFile("/proc/self/exe")
	check(t, err)
	check(t, os.WriteFile(filepath.Join(root, "ws", "netact"), self, 0o755))
	w.internet()
	w.names()
	w.loopback()
	if upstream != "" {
		check(t, os.WriteFile(filepath.Join(root, "network.toml"), []byte(upstream), 0o600))
	}
	w.startHelper()
	return w
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) certificates() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(w.t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"ok.example.org", "other.example.org"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	check(w.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(w.t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	check(w.t, os.WriteFile(filepath.Join(w.root, "ws", "cert.pem"), cert, 0o644))
	check(w.t, os.WriteFile(filepath.Join(w.root, "servers", "cert.pem"), cert, 0o644))
	check(w.t, os.WriteFile(filepath.Join(w.root, "servers", "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// internet makes the namespace with the servers, one hop away.
func (w *world) internet() {
	worlds++ // the kernel takes its time to remove the last one's devices
	tag := fmt.Sprintf("%d%c", os.Getpid(), 'a'+worlds)
	ns, here, there := "agentos-net-"+tag, "an"+tag+"0", "an"+tag+"1"
	ip := func(args ...string) {
		w.t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			w.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	ip("netns", "add", ns)
	w.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() }) // the pair goes with it
	ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", ns)
	ip("addr", "add", hostSide+"/24", "dev", here)
	ip("addr", "add", "10.99.99.1/24", "dev", here)
	ip("link", "set", here, "up")
	ip("-n", ns, "addr", "add", outside+"/24", "dev", there)
	ip("-n", ns, "addr", "add", lan+"/24", "dev", there)
	ip("-n", ns, "link", "set", there, "up")
	ip("-n", ns, "link", "set", "lo", "up")

	self, err := os.Executable()
	check(w.t, err)
	c := exec.Command("ip", "netns", "exec", ns, self, "serve")
	c.Dir = filepath.Join(w.root, "servers")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	check(w.t, err)
	w.servers, err = c.StdinPipe()
	check(w.t, err)
	check(w.t, c.Start())
	w.t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	w.marked = make(chan struct{}, 1)
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		w.t.Fatal("the servers do not start")
	}
	go func() { // ends with the servers
		for lines.Scan() {
			if lines.Text() == mark {
				w.marked <- struct{}{}
				continue
			}
			w.say("%s", lines.Text())
		}
	}()
}

// mark is a line that no server prints of what it hears.
const mark = "that was all"

var zone = map[string]string{
	"ok.example.org.": outside, "other.example.org.": outside, "db.example.org.": outside,
	"loop.example.org.": "127.0.0.1", "meta.example.org.": "169.254.169.254", "own.example.org.": hostSide, "lan.example.org.": lan, "lanok.example.org.": lan,
}

// names serves the zone at a loopback address of its own, over UDP and TCP.
func (w *world) names() {
	handler := dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		for _, question := range q.Question {
			name := strings.ToLower(question.Name) // the case may be drawn (dns0x20)
			w.say("dns %s %s", dns.TypeToString[question.Qtype], name)
			if ip := zone[name]; ip == "" {
				m.Rcode = dns.RcodeNameError
			} else if question.Qtype == dns.TypeA {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(ip)})
			}
		}
		_ = rw.WriteMsg(m)
	})
	for _, network := range []string{"udp", "tcp"} {
		started := make(chan struct{})
		s := &dns.Server{Addr: nameServe + ":53", Net: network, Handler: handler, NotifyStartedFunc: func() { close(started) }}
		failed := make(chan error, 1)
		go func() { failed <- s.ListenAndServe() }() // ends with Shutdown
		select {
		case <-started:
		case err := <-failed:
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = s.Shutdown() })
	}
	check(w.t, os.WriteFile(filepath.Join(w.root, "resolv.conf"), []byte("nameserver "+nameServe+"\n"), 0o644))
	check(w.t, os.WriteFile(filepath.Join(w.root, "hosts"), []byte("127.0.0.1 localhost\n"), 0o644))
}

// loopback is a server of the host's that nobody else should reach; it also has the host's outer address.
func (w *world) loopback() {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	check(w.t, err)
	w.local = l.Addr().(*net.TCPAddr).Port
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.say("host %s %s", r.Host, r.URL.Path)
		fmt.Fprintln(rw, "local")
	})}
	go func() { _ = s.Serve(l) }() // ends with Close
	w.t.Cleanup(func() { _ = s.Close() })
}

func (w *world) startHelper() {
	var log bytes.Buffer
	dir := func(name string) string { return filepath.Join(w.root, name) }
	c := exec.Command(filepath.Join(w.bin, "agentos-helper"), "--foreground", "--socket", dir("run/helper.sock"), "--run", dir("run"), "--state", dir("state"),
		"--org", dir("org"), "--group", "agentos-network", "--resolv", dir("resolv.conf"), "--hosts", dir("hosts"), "--upstream", dir("network.toml"), "--log", "info")
	c.Stdout, c.Stderr = &log, &log
	check(w.t, c.Start())
	w.helper = c
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	w.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			w.t.Error("the helper did not end within 30 s of SIGTERM")
			_ = c.Process.Kill()
			<-ended
		}
		if w.t.Failed() {
			w.t.Logf("helper's log:\n%s", log.String())
		}
	})
	for range 2400 { // an emulated machine loads the kernel programs for long
		if conn, err := net.Dial("unixpacket", dir("run/helper.sock")); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			w.t.Fatalf("helper: %v\n%s", err, log.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	w.t.Fatal("the helper does not listen")
}

// agentos is a command of the user's.
func (w *world) agentos(args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(w.bin, "agentos"), args...)
	c.Dir = filepath.Join(w.root, "ws")
	c.Env = []string{"PATH=" + w.bin + ":/usr/bin:/bin", "HOME=" + filepath.Join(w.root, "home"), "AGENTOS_SOCKET=" + filepath.Join(w.root, "run", "helper.sock"), "AGENTOS_LIBEXEC=" + w.bin, "TERM=dumb"}
	return c
}

// policy writes one down; net is its [net] section.
func (w *world) policy(name, net string) string {
	w.t.Helper()
	path := filepath.Join(w.root, name+".toml")
	check(w.t, os.WriteFile(path, []byte("version = 1\nname = \""+name+"\"\nextends = [\"builtin:base\"]\n[files]\nread = [\"${workspace}/**\"]\nwrite = [\"${workspace}/**\"]\nexec = [\"${workspace}/**\", \"/usr/**\", \"/bin/**\"]\ndeny = [\"**/.env\"]\n[net]\n"+net), 0o644))
	return path
}

// jail runs attempts in a jail under the policy file, one after another: the answer takes an attempt and
// returns what the program in the jail said about it.
func (w *world) jail(policy string) func(args ...string) string {
	w.t.Helper()
	c := w.agentos("run", "--policy", policy, "--", filepath.Join(w.root, "ws", "netact"), "act")
	var said bytes.Buffer
	c.Stderr = &said
	in, err := c.StdinPipe()
	check(w.t, err)
	out, err := c.StdoutPipe()
	check(w.t, err)
	check(w.t, c.Start())
	lines := bufio.NewScanner(out)
	w.t.Cleanup(func() { // before the helper's
		_ = in.Close()
		if err := c.Wait(); err != nil {
			w.t.Errorf("the jail: %v: %s", err, said.String())
		}
	})
	return func(args ...string) string {
		w.t.Helper()
		if _, err := fmt.Fprintln(in, strings.Join(args, " ")); err != nil || !lines.Scan() {
			w.t.Fatalf("%s: the jail does not answer: %v", strings.Join(args, " "), errors.Join(err, lines.Err()))
		}
		return lines.Text()
	}
}
