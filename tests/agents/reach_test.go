//go:build root

package agents

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// The gateway: where a company would have its own way to a model. 11.0.0.0/8 is public in everybody's eyes and routed to nobody here.
const (
	gateway    = "model.example.org"
	gatewayIP  = "11.22.34.44"
	hostIP     = "11.22.34.1"
	nameServer = "127.0.0.78"
)

// reaching are agents whose model is behind the gateway, by TLS. What they are told is what their users tell them.
var reaching = []struct {
	agent
	fails string // what it says when the gateway is not allowed; it may go on trying
}{
	{
		agent: agent{
			name: "claude", api: "anthropic", files: all[0].files, args: all[0].args, stdin: all[0].stdin,
			env: []string{"ANTHROPIC_BASE_URL=https://" + gateway, "ANTHROPIC_API_KEY=" + key, "CLAUDE_CODE_MAX_RETRIES=1"},
		},
		fails: "Unable to connect",
	},
	{
		agent: agent{
			name: "codex", api: "openai", args: all[1].args, stdin: all[1].stdin, other: all[1].other,
			env: []string{"OPENAI_API_KEY=" + key},
			flags: []string{
				"-c", "model_provider=scripted",
				"-c", `model_providers.scripted={name="scripted", base_url="https://` + gateway + `/v1", wire_api="responses", env_key="OPENAI_API_KEY", request_max_retries=1, stream_max_retries=1}`,
			},
		},
		fails: "waiting for network",
	},
}

// TestReach: an agent whose model is elsewhere on the network works as in TestAgents where the policy allows the model's name. Where it does not, the agent
// says that it cannot connect, nothing reaches the model, and the record has the name.
func TestReach(t *testing.T) {
	dir := t.TempDir()
	ns := internet(t)
	certify(t, dir)
	names(t, dir)
	s := newStage(t, "--resolv", filepath.Join(dir, "resolv.conf"), "--hosts", filepath.Join(dir, "hosts"))
	for _, a := range reaching {
		for _, allowed := range []bool{true, false} {
			how, policy := "allowed", filepath.Join(s.root, "gateway.toml")
			if !allowed {
				how, policy = "refused", "strict"
			}
			t.Run(a.name+"/"+how, func(t *testing.T) {
				must(t, os.RemoveAll(filepath.Join(s.root, a.name)))
				d := s.newDesk(t, a.name)
				d.trust(dir)
				must(t, os.WriteFile(filepath.Join(s.root, "gateway.toml"),
					[]byte("version = 1\nname = \"gateway\"\nextends = [\"builtin:strict\"]\n[net]\nallow = [\""+gateway+":443\"]\n"), 0o644))
				d.sit(a.agent)
				before := d.look()
				m := d.serveModel(ns, dir, a.api)
				m.awaitReady()
				until := ""
				if !allowed {
					until = a.fails
				}
				out, err := d.session(a.agent, policy, m, until)
				if allowed {
					if err != nil {
						t.Errorf("%v\n%s", err, out)
					}
					d.judge(a.agent, m, out, before)
					d.reached("allow")
					return
				}
				if err == nil || !strings.Contains(out, a.fails) {
					t.Errorf("%v; want it to end with an error and say %q:\n%s", err, a.fails, out)
				}
				if got := m.requests(); len(got) != 0 {
					t.Errorf("the model was reached: %+v", got)
				}
				d.reached("deny")
				if why := d.output("agentos", "why", a.name); !strings.Contains(why, gateway) {
					t.Errorf("agentos why does not name %s:\n%s", gateway, why)
				}
			})
		}
	}
}

// reached: the record has this verdict, and no other, on the gateway's name.
func (d *desk) reached(verdict string) {
	d.t.Helper()
	list := d.events(filepath.Base(filepath.Dir(d.home)), "--kind", "net")
	at := func(e event) bool { return strings.TrimSuffix(e.Name, ":443") == gateway }
	if !slices.ContainsFunc(list, at) || slices.ContainsFunc(list, func(e event) bool { return at(e) && e.Verdict != verdict }) {
		d.t.Errorf("the record of %s: %+v; want all of it %q", gateway, list, verdict)
	}
}

// trust makes the gateway's certificate known to the user's programs, by the variables that these have for it.
func (d *desk) trust(dir string) {
	d.t.Helper()
	cert, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	must(d.t, err)
	d.put(d.ws, ".model/ca.crt", string(cert), 0o644) // ignored by git, and shown in the jail
	ca := filepath.Join(d.ws, ".model/ca.crt")
	d.env = append(d.env, "NODE_EXTRA_CA_CERTS="+ca, "SSL_CERT_FILE="+ca)
}

// serveModel starts the model behind the gateway. It ends with the test.
func (d *desk) serveModel(ns, dir, api string) *model {
	d.t.Helper()
	m := &model{t: d.t, ready: make(chan struct{}), ended: make(chan struct{})}
	cmd := exec.Command("ip", "netns", "exec", ns, filepath.Join(d.bin, "model"), "-api", api, "-script", filepath.Join(d.ws, ".model/script.toml"),
		"-workspace", d.ws, "-listen", gatewayIP+":443", "-cert", filepath.Join(dir, "pair.pem"))
	go func() {
		defer close(m.ended)
		m.follow(cmd)
	}()
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill() // ip has become the model
		<-m.ended
	})
	return m
}

// internet makes a namespace one hop away, for the gateway, and returns its name.
func internet(t *testing.T) string {
	t.Helper()
	tag := fmt.Sprint(os.Getpid())
	ns, here, there := "agentos-agents-"+tag, "ag"+tag+"0", "ag"+tag+"1"
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	ip("netns", "add", ns)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() }) // the pair goes with it
	ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", ns)
	ip("addr", "add", hostIP+"/24", "dev", here)
	ip("link", "set", here, "up")
	ip("-n", ns, "addr", "add", gatewayIP+"/24", "dev", there)
	ip("-n", ns, "link", "set", there, "up")
	ip("-n", ns, "link", "set", "lo", "up")
	return ns
}

// certify makes the gateway's certificate, and that of the company which signed it.
func certify(t *testing.T, dir string) {
	t.Helper()
	now := time.Now()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a company"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: gateway}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		DNSNames: []string{gateway}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	sign := func(c *x509.Certificate, of *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, root, &of.PublicKey, rootKey)
		must(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	private, err := x509.MarshalPKCS8PrivateKey(leafKey)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), sign(root, rootKey), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "pair.pem"), append(sign(leaf, leafKey), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), 0o600))
}

// names is a DNS server that knows the gateway's name and no other.
func names(t *testing.T, dir string) {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		for _, question := range q.Question {
			switch known := strings.EqualFold(question.Name, gateway+"."); {
			case !known:
				m.Rcode = dns.RcodeNameError
			case question.Qtype == dns.TypeA:
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(gatewayIP)})
			}
		}
		_ = w.WriteMsg(m)
	})
	conn, err := net.ListenPacket("udp", nameServer+":53")
	must(t, err)
	server := &dns.Server{PacketConn: conn, Handler: handler}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	must(t, os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte("nameserver "+nameServer+"\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "hosts"), []byte("127.0.0.1 localhost\n"), 0o644))
}
