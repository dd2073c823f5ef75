//go:build root

package daemon_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/seccomp"
	"github.com/agentos/agentos/netpolicy"
)

// The world of these tests: a jail in which every address is local, a host that has the netd under test, and a network
// behind the host. Each is a network namespace; nothing of the real host's network is touched.
//
//	jail (lo) --- sockets ---> netd in host --- veth --- net: servers, resolver, metadata, LAN
const (
	hostAddr  = "93.184.216.1"
	webAddr   = "93.184.216.34" // public
	dnsAddr   = "93.184.216.53"
	lanAddr   = "192.168.77.2"
	metaAddr  = "169.254.169.254"
	web6Addr  = "2a00:1450:4001::34"
	host6Addr = "2a00:1450:4001::1"
)

// zone is a network namespace.
type zone struct{ fd *os.File }

func newZone(t testing.TB) *zone {
	t.Helper()
	z := &zone{}
	errs := make(chan error, 1)
	go func() { // the thread stays locked and ends with the goroutine
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			z.fd, err = os.Open("/proc/thread-self/ns/net")
		}
		errs <- err
	}()
	if err := <-errs; err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { z.fd.Close() })
	z.ip(t, "link set lo up")
	return z
}

// in runs f on a thread in the namespace. f must not start goroutines that use the network.
func (z *zone) in(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Setns(int(z.fd.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
		f()
	}()
	<-done
}

func (z *zone) ip(t testing.TB, args string) {
	t.Helper()
	z.in(func() {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Errorf("ip %s: %v: %s", args, err, out)
		}
	})
}

func (z *zone) listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	z.in(func() {
		lc := net.ListenConfig{}
		lc.SetMultipathTCP(false)
		l, err = lc.Listen(context.Background(), "tcp", addr)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (z *zone) dial(addr string) (c net.Conn, err error) {
	z.in(func() {
		d := net.Dialer{Timeout: 30 * time.Second}
		d.SetMultipathTCP(false)
		c, err = d.Dial("tcp", addr)
	})
	if err == nil {
		err = c.SetDeadline(time.Now().Add(time.Minute))
	}
	return c, err
}

// world is everything that a test talks to.
type world struct {
	jail, host, net *zone
	roots           *x509.CertPool
	cert            tls.Certificate
	netd            *exec.Cmd
	conn            *packet.Conn
	replies         chan netpolicy.Answer
	id              uint64
	sockets         []*os.File

	mu      sync.Mutex
	events  []netpolicy.Event
	queries []string            // what reached the resolver outside
	hits    []string            // what reached a server outside
	ttl     int                 // of the resolver's answers, in seconds
	records map[string][]string // of the resolver: "name type" to records
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{jail: newZone(t), host: newZone(t), net: newZone(t), replies: make(chan netpolicy.Answer, 16), records: map[string][]string{}}
	w.jail.ip(t, "route add local 0.0.0.0/0 dev lo")
	w.jail.ip(t, "-6 route add local ::/0 dev lo")
	w.host.in(func() {
		z, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", w.net.fd.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		cmd := exec.Command("ip", "link", "add", "out", "type", "veth", "peer", "name", "in", "netns", "/proc/self/fd/3")
		cmd.ExtraFiles = []*os.File{z}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ip link: %v: %s", err, out)
		}
	})
	for _, a := range []string{hostAddr + "/24", "192.168.77.1/24"} {
		w.host.ip(t, "addr add "+a+" dev out")
	}
	w.host.ip(t, "addr add "+host6Addr+"/64 dev out nodad")
	w.host.ip(t, "link set out up")
	for _, a := range []string{webAddr + "/24", dnsAddr + "/24", lanAddr + "/24", metaAddr + "/32"} {
		w.net.ip(t, "addr add "+a+" dev in")
	}
	w.net.ip(t, "addr add "+web6Addr+"/64 dev in nodad")
	w.net.ip(t, "link set in up")
	w.host.ip(t, "route add "+metaAddr+"/32 dev out")
	w.certificate(t)
	w.resolver(t)
	w.start(t)
	return w
}

func (w *world) certificate(t testing.TB) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"web.example", "other.example"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := x509.ParseCertificate(der)
	w.roots = x509.NewCertPool()
	w.roots.AddCert(leaf)
	w.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// resolver serves w.records at dnsAddr.
func (w *world) resolver(t testing.TB) {
	var pc net.PacketConn
	var err error
	w.net.in(func() { pc, err = net.ListenPacket("udp", dnsAddr+":53") })
	if err != nil {
		t.Fatal(err)
	}
	l := w.net.listen(t, dnsAddr+":53")
	handler := dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		n, kind := strings.TrimSuffix(strings.ToLower(q.Question[0].Name), "."), dns.TypeToString[q.Question[0].Qtype]
		w.mu.Lock()
		w.queries = append(w.queries, n+" "+kind)
		found := false
		for k, rrs := range w.records {
			found = found || strings.HasPrefix(k, n+" ")
			if k != n+" "+kind {
				continue
			}
			for _, r := range rrs {
				rr, err := dns.NewRR(fmt.Sprintf("%s. %d IN %s %s", n, w.ttl, kind, r))
				if err != nil {
					panic(err)
				}
				m.Answer = append(m.Answer, rr)
			}
		}
		w.mu.Unlock()
		if !found {
			m.Rcode = dns.RcodeNameError
		}
		_ = rw.WriteMsg(m)
	})
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: handler}, {Listener: l, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
}

func (w *world) record(key string, values ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records[key] = values
}

var buildNetd = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("AGENTOS_BIN"); dir != "" {
		return filepath.Join(dir, "agentos-netd"), nil
	}
	dir, err := os.MkdirTemp("", "netd")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-ldflags", "-X github.com/agentos/agentos/jail/packet.build=test", "-o", dir+"/agentos-netd", "../../cmd/agentos-netd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir + "/agentos-netd", nil
})

// start runs the real program in the host's namespace as nobody, and greets it.
func (w *world) start(t testing.TB) {
	t.Helper()
	path, err := buildNetd()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Open(path) // the directory may be closed to nobody
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	conn, theirs, err := packet.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	code, err := seccomp.BuildNetd()
	if err != nil {
		t.Fatal(err)
	}
	filter, err := seccomp.Memfd(code)
	if err != nil {
		t.Fatal(err)
	}
	defer filter.Close()
	w.netd = exec.Command("/proc/self/fd/5")
	w.netd.Args = []string{"agentos-netd"}
	w.netd.Env = []string{"GOTRACEBACK=single"}
	w.netd.Dir = "/"
	w.netd.Stderr = os.Stderr
	w.netd.ExtraFiles = []*os.File{theirs, filter, program}
	w.netd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	w.host.in(func() { err = w.netd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	w.conn = conn
	t.Cleanup(func() { conn.Close(); _ = w.netd.Process.Kill(); _ = w.netd.Wait() })
	replies := w.replies // of this netd, not of the next
	go func() {
		for {
			a, err := netpolicy.ReceiveAnswer(conn)
			if err != nil {
				close(replies)
				return
			}
			if a.Event == nil {
				replies <- a
				continue
			}
			w.mu.Lock()
			w.events = append(w.events, *a.Event)
			w.mu.Unlock()
		}
	}()
	w.ask(t, netpolicy.VerbHello, netpolicy.Hello{Protocol: netpolicy.Protocol, Build: netdBuild(t)})
	w.ask(t, netpolicy.VerbConfigure, netpolicy.Configure{Resolv: "nameserver " + dnsAddr + "\noptions timeout:2 attempts:1\n", Hosts: "127.0.0.1 localhost\n" + webAddr + " filed.example\n"})
}

// netdBuild is what the program calls itself: a greeting of another build is refused with it.
func netdBuild(t testing.TB) string {
	t.Helper()
	if os.Getenv("AGENTOS_BIN") == "" {
		return "test"
	}
	out, err := exec.Command(filepath.Join(os.Getenv("AGENTOS_BIN"), "agentos"), "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(out))
	return f[1]
}

func (w *world) try(verb netpolicy.Verb, body any, fds ...int) (netpolicy.Answer, error) {
	w.id++
	if err := netpolicy.Send(w.conn, verb, w.id, body, fds...); err != nil {
		return netpolicy.Answer{}, err
	}
	select {
	case a, ok := <-w.replies:
		if !ok {
			return a, io.EOF
		}
		if a.Error != "" {
			return a, fmt.Errorf("%s: %s", verb, a.Error)
		}
		return a, nil
	case <-time.After(time.Minute):
		return netpolicy.Answer{}, os.ErrDeadlineExceeded
	}
}

func (w *world) ask(t testing.TB, verb netpolicy.Verb, body any, fds ...int) netpolicy.Answer {
	t.Helper()
	a, err := w.try(verb, body, fds...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// add has netd serve the jail by rules, each "NAME:PORT" or "CIDR:PORT".
func (w *world) add(t testing.TB, limits netpolicy.Limits, rules ...netpolicy.Rule) {
	t.Helper()
	w.ask(t, netpolicy.VerbAdd, netpolicy.Add{Jail: "j", Generation: 1, Rules: numbered(rules), Limits: limits}, w.steer(t)...)
}

func numbered(rules []netpolicy.Rule) netpolicy.Rules {
	out := netpolicy.Rules{Layers: 1, Rules: rules}
	for i := range rules {
		rules[i].At = fmt.Sprintf("rule %d", i)
	}
	return out
}

func named(n string, ports ...uint16) netpolicy.Rule {
	r := netpolicy.Rule{Kind: netpolicy.Name, Name: n}
	if rest, ok := strings.CutPrefix(n, "*."); ok {
		r.Kind, r.Name = netpolicy.Below, rest
	}
	for _, p := range ports {
		r.Ports = append(r.Ports, netpolicy.Ports{Low: p, High: p})
	}
	return r
}

func prefixed(p string, port uint16) netpolicy.Rule {
	return netpolicy.Rule{Kind: netpolicy.Prefix, Prefix: netip.MustParsePrefix(p), Ports: []netpolicy.Ports{{Low: port, High: port}}}
}

// query asks a resolver address in the jail.
func (w *world) query(t testing.TB, network, resolver, n string, kind uint16) *dns.Msg {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(n), kind)
	var m *dns.Msg
	var c net.Conn
	var err error
	w.jail.in(func() { c, err = net.Dial(network, net.JoinHostPort(resolver, "53")) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client := dns.Client{Timeout: 30 * time.Second, Net: network}
	if m, _, err = client.ExchangeWithConn(q, &dns.Conn{Conn: c}); err != nil {
		t.Fatalf("%s to %s for %s: %v", network, resolver, n, err)
	}
	return m
}

// address is what n stands for in the jail.
func (w *world) address(t testing.TB, n string) string {
	t.Helper()
	m := w.query(t, "udp", netpolicy.Resolver4.String(), n, dns.TypeA)
	if len(m.Answer) != 1 {
		t.Fatalf("%s: %s with %d answers", n, dns.RcodeToString[m.Rcode], len(m.Answer))
	}
	return m.Answer[0].(*dns.A).A.String()
}

// web serves HTTP on l, with TLS if it is to; it notes each request as "METHOD host path".
func (w *world) web(l net.Listener, secure bool) {
	if secure {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{w.cert}})
	}
	_ = http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.hit(r.Method + " " + r.Host + " " + r.URL.Path)
		_, _ = io.WriteString(rw, "hello from "+r.Host)
	}))
}

func (w *world) hit(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hits = append(w.hits, s)
}

// seen returns and forgets what reached servers and the resolver.
func (w *world) seen() (hits, queries []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	hits, queries, w.hits, w.queries = w.hits, w.queries, nil, nil
	return hits, queries
}

// event waits for one that f takes.
func (w *world) event(t testing.TB, what string, f func(netpolicy.Event) bool) netpolicy.Event {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		for i, e := range w.events {
			if f(e) {
				w.events = append(w.events[:i:i], w.events[i+1:]...)
				w.mu.Unlock()
				return e
			}
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Fatalf("no event: %s; there are %+v", what, w.events)
	return netpolicy.Event{}
}
