package tests

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
	"testing"
)

// side says who runs a package's code. Root side and user side meet only in packages that are on both.
type side int

const (
	both side = iota
	rootSide
	userSide
	netSide // netd: what parses bytes from the network, with no privilege; neither root nor the user links it
)

// floors is the whole map of the tree: imports go strictly down, and two packages on one floor never meet (whoever needs both
// sits higher). A package that is not here fails the test, so that nobody adds a floor by accident.
var floors = []struct {
	floor int
	side  side
	path  string
	why   string
}{
	{0, both, "audit/event", "what happened: the word that every process of ours shares"},
	{0, both, "bpf", "generated loaders of the kernel objects: data, no decisions"},
	{1, rootSide, "bpf/selftest", "kernel programs for the tests of bpf's headers; nothing but tests imports it"},
	{0, both, "jail/dirent", "entries of directories as the kernel writes them, for broker and opens; knows no rule"},
	{0, rootSide, "jail/quiet", "memory that a resident program gives back; knows nothing of jails"},
	{0, rootSide, "jail/job", "the parent of a command on a further terminal, inside the jail; knows nothing else"},
	{0, both, "jail/packet", "one SEQPACKET datagram with descriptors; knows no verb"},
	{0, both, "jail/seccomp/install", "loads filter bytes into threads without cgo, so that init and netd can"},
	{0, netSide, "netpolicy/address", "what an IP address is; knows no rule's text and dials nothing"},
	{0, netSide, "netpolicy/name", "the one normal form of host names; knows no rule"},
	{0, both, "policy/corpus", "policies and questions as text, for the tests of all evaluators; nothing but tests and benchmarks imports it"},
	{0, both, "policy/glob", "the automaton, also walked in C: must depend on nothing"},

	{1, rootSide, "audit/hook", "loads the programs and reads the rings; knows events, not logs"},
	{1, both, "audit/segment", "the log's format: written by root, read and verified by anyone"},
	{1, rootSide, "cgroup", "limits by descriptor; knows no jail"},
	{1, rootSide, "jail/opens", "fanotify permission events: marks by the helper, answers by the jail's init; knows rules, no jail"},
	{1, rootSide, "jail/broker", "answers notified syscalls from the automaton, inside the jail's init"},
	{1, both, "jail/rpc", "the gate: the verbs, where root side and user side meet"},
	{1, rootSide, "jail/layer", "what jails write besides the workspace, on disk: made and removed by root, read by its owner; knows no jail"},
	{1, rootSide, "jail/meter", "counts bytes written, by ids and a group's descriptor; knows no jail"},
	{1, rootSide, "jail/posture", "reads the confinement of a live process from /proc, for init's own check and for tests"},
	{1, userSide, "orchestrator/repo", "reads git repositories without running git; knows no session"},
	{1, userSide, "orchestrator/terminal", "the user's terminal: raw mode, what an agent's output may do to it"},
	{1, both, "jail/seccomp", "policy words to filter bytes; the only package with libseccomp, and only with cgo; users are told what its table says"},
	{1, both, "netpolicy", "rules of a jail's network and the verbs between helper and netd, as data; decides nothing"},
	{1, both, "policy", "the document; resolved by the caller and again by root"},

	{0, netSide, "netpolicy/relay", "bytes between two connections; knows neither jail nor rule"},
	{0, netSide, "netpolicy/sniff", "what a ClientHello or an HTTP head says; pure"},
	{1, netSide, "netpolicy/confine", "takes from netd what it does not need"},
	{2, netSide, "netpolicy/upstream", "the host's resolvers, its proxy, and dialling; knows no rule"},
	{2, netSide, "netpolicy/ruleset", "what a jail's rules say about a name, a destination, an address; pure"},
	{2, netSide, "netpolicy/synthetic", "addresses that stand for names in one jail; knows no packet and no rule"},
	{2, rootSide, "jail", "blueprint to live jail: gets a cgroup descriptor and filter bytes, knows neither package"},
	{2, rootSide, "jail/generation", "which rules of a running jail judged an event, and what a running jail can take; pure"},
	{2, rootSide, "jail/reach", "what a policy lets a jail reach, as netd reads it; pure"},
	{2, rootSide, "jail/steer", "a jail's connections to netd: its network namespace, the sockets in it, and netd itself; knows no policy"},
	{0, both, "policy/minisign", "verifies signatures; knows no policy and no file"},
	{0, both, "policy/source", "TOML with places; knows no key of a policy"},

	{2, userSide, "policy/lint", "what is probably not meant in a document; judges no act"},
	{2, both, "jail/why", "a denial in words, and what would allow it: for a jail's own questions and for its user"},
	{2, both, "jail/organisation", "the organisation's policy files: read by root for each decision, by users to see what holds"},
	{2, userSide, "audit/view", "records as people and programs read them: table, JSON lines, summary"},
	{2, userSide, "audit/query", "which records: the filter language, from text to a decision; prints nothing"},
	{2, userSide, "audit/timeline", "several logs as one, in the order of time; opens nothing itself"},
	{2, userSide, "orchestrator/changes", "what sessions made in their homes, read with the user's rights from descriptors of the helper"},
	{2, userSide, "orchestrator/network", "the network of a running session, asked for and changed through the helper"},
	{2, userSide, "orchestrator/machine", "what this machine can enforce, asked without privilege and of the helper"},
	{2, userSide, "orchestrator/trust", "what a session left that others run: the record against the disk and the repository; reaches no helper"},
	{2, userSide, "orchestrator/plugin", "how an agent is installed and run: the user's files, never root's business"},

	{3, userSide, "audit/tree", "processes of a session and what each did, laid out as view lays out records"},
	{3, netSide, "netpolicy/ledger", "what netd knows of one jail at a moment; moves no byte"},
	{4, netSide, "netpolicy/proxy", "the TCP connections of a jail"},
	{4, netSide, "netpolicy/resolver", "the DNS questions of a jail"},
	{5, netSide, "netpolicy/daemon", "netd without its process: composes its side"},
	{6, netSide, "cmd/agentos-netd", "wires netd"},

	{3, rootSide, "jail/network", "the network of one running jail: rules, grants, what netd tells; judges no connection"},
	{3, rootSide, "jail/glass", "who may do without files of the organisation, why and until when; knows no jail"},
	{4, rootSide, "jail/helper", "the root server: composes everything on its side"},
	{3, rootSide, "jail/inside", "what runs as pid 1: executes jail's blueprint with the broker's help"},
	{3, userSide, "orchestrator", "sessions of one user; reaches root through the gate only"},

	{4, userSide, "orchestrator/records", "the logs of a user's sessions, found, opened and followed; decides nothing about records"},

	{5, userSide, "cmd/agentos", "the command line"},
	{5, rootSide, "cmd/agentos-helper", "wires jail/helper"},
	{4, rootSide, "cmd/agentos-init", "wires jail's init"},
	{4, userSide, "tests/agents/model", "the scripted model that real agents talk to in their tests"},
	{4, userSide, "tests/leak", "counts what jails leave behind, from outside"},
	{4, rootSide, "tests/kernel/count", "measures what the kernel programs cost, in a machine of its own"},
	{4, userSide, "tests/bench", "measures the built programs from outside"},
}

// bans: what a program must not link, and why. A ban names an import path; everything below it is banned as well.
var bans = []struct {
	program string
	env     []string
	deny    map[string]string
}{
	{"cmd/agentos-helper", []string{"CGO_ENABLED=1"}, map[string]string{
		"net/http":                        "root serves one unix socket; a web server or client in it is attack surface",
		"crypto/tls":                      "bytes from the network are parsed in netd, never by root",
		"github.com/hashicorp/yamux":      "streams of untrusted clients end in agentosd",
		"database/sql":                    "indexes are made by the user side from the segments",
		"modernc.org/sqlite":              "indexes are made by the user side from the segments",
		"github.com/spf13/cobra":          "root has four flags; a command framework brings templates and reflection for nothing",
		module + "/orchestrator":          "the user's side",
		"github.com/invopop/jsonschema":   "a build-time tool",
		"text/template":                   "executes data",
		"github.com/pb33f/ordered-map":    "only the schema generator needs it",
		"go.yaml.in/yaml":                 "root reads TOML and JSON",
		"golang.org/x/tools":              "a build-time tool",
		"honnef.co/go/tools":              "a build-time tool",
		"github.com/rogpeppe/go-internal": "a test tool",
	}},
	{"cmd/agentos-init", []string{"CGO_ENABLED=0"}, map[string]string{
		"runtime/cgo":                          "syscall.AllThreadsSyscall refuses in cgo programs, and pid 1 must be static",
		"C":                                    "as runtime/cgo",
		"net/http":                             "pid 1 of a jail talks to the helper and to the kernel",
		"crypto/tls":                           "pid 1 of a jail talks to the helper and to the kernel",
		"encoding/gob":                         "the spec is JSON in a sealed memfd; one decoder is enough (encoding/json is allowed for that)",
		"encoding/xml":                         "as encoding/gob",
		"text/template":                        "executes data",
		"github.com/cilium/ebpf":               "the programs are loaded by the helper; a jail has no bpf(2)",
		"github.com/vishvananda/netlink":       "loopback is one ioctl",
		"github.com/seccomp/libseccomp-golang": "the filter comes as bytes in a descriptor",
		"github.com/containerd/cgroups":        "init is born in its cgroup and never sees it",
		"github.com/spf13/cobra":               "init has no command line",
		"github.com/BurntSushi/toml":           "init gets a resolved spec, never a document",
		"github.com/pelletier/go-toml":         "init gets a resolved spec, never a document",
		"github.com/klauspost/compress":        "init sends events, the helper stores them",
		module + "/jail/rpc":                   "the gate's verbs are for the helper and its callers",
		module + "/orchestrator":               "the user's side",
	}},
	{"cmd/agentos-netd", []string{"CGO_ENABLED=0"}, map[string]string{
		"runtime/cgo":                          "one static file, whose threads are all the runtime's",
		"os/exec":                              "netd starts no program",
		"net/http":                             "netd reads heads of requests with a parser that refuses what servers differ about; it serves and fetches nothing",
		"encoding/gob":                         "messages are JSON",
		"text/template":                        "executes data",
		"github.com/cilium/ebpf":               "only root loads programs",
		"github.com/seccomp/libseccomp-golang": "only root builds filters",
		"github.com/vishvananda/netlink":       "one question to the routing table is 60 lines",
		"github.com/pelletier/go-toml":         "netd gets rules as data, never a document",
		"github.com/spf13/cobra":               "netd has no command line",
		module + "/policy":                     "netd gets rules as data, never a document",
		module + "/jail/rpc":                   "the gate is between users and the helper",
		module + "/orchestrator":               "the user's side",
	}},
	{"cmd/agentos", []string{"CGO_ENABLED=0"}, map[string]string{
		"runtime/cgo":                          "the command line is one static file",
		"github.com/cilium/ebpf":               "only root loads programs",
		"github.com/seccomp/libseccomp-golang": "only root builds filters",
		"github.com/containerd/cgroups":        "only root makes cgroups",
		"github.com/vishvananda/netlink":       "only root makes networks",
		"database/sql":                         "start in milliseconds: indexes live in agentosd",
		"modernc.org/sqlite":                   "start in milliseconds: indexes live in agentosd",
		"net/http":                             "start in milliseconds, and nothing here speaks to the network",
	}},
}

// badNames are packages that collect what nobody wanted to name.
var badNames = []string{
	"util", "utils", "common", "helpers", "misc", "types", "shared", "lib", "base", "core", "manager", "controller", "sandbox", "container",
}

// stdNames are standard names that a package of ours may have all the same.
var stdNames = map[string]string{
	"plugin": "std plugin loads .so files; no static program of ours can, so nobody reads it as that one",
	"rpc":    "net/rpc is frozen and nothing here uses it",
}

func TestFloors(t *testing.T) {
	for _, p := range checkFloors(own(t)) {
		t.Error(p)
	}
}

func TestNames(t *testing.T) {
	var std []string
	for _, p := range list(t, nil, "std") {
		if !strings.Contains(p.ImportPath, "internal") && !strings.HasPrefix(p.ImportPath, "vendor/") {
			std = append(std, path.Base(p.ImportPath))
		}
	}
	for _, p := range checkNames(own(t), std) {
		t.Error(p)
	}
}

func TestBans(t *testing.T) {
	exists := map[string]bool{}
	for _, p := range own(t) {
		exists[short(p.ImportPath)] = true
	}
	for _, b := range bans {
		t.Run(path.Base(b.program), func(t *testing.T) {
			if !exists[b.program] {
				t.Skipf("wanted package %s, got none in this tree", b.program)
			}
			deps := list(t, append([]string{"GOOS=linux"}, b.env...), "-deps", "./"+b.program)
			for _, p := range checkBans(deps, b.deny) {
				t.Errorf("%s: %s", b.program, p)
			}
		})
	}
}

// checkFloors answers one sentence for each import that does not go strictly down or that crosses from one side to the other.
func checkFloors(all []listed) []string {
	type place struct {
		floor int
		side  side
	}
	at := map[string]place{}
	for _, f := range floors {
		at[f.path] = place{f.floor, f.side}
	}
	var bad []string
	for _, p := range all {
		from, ok := at[short(p.ImportPath)]
		if !ok {
			bad = append(bad, fmt.Sprintf("%s has no floor: give it one in tests/layers_test.go, with why", short(p.ImportPath)))
			continue
		}
		for _, i := range p.Imports {
			if i != module && !strings.HasPrefix(i, module+"/") {
				continue
			}
			to, ok := at[short(i)]
			switch {
			case !ok:
				bad = append(bad, fmt.Sprintf("%s imports %s, which has no floor", short(p.ImportPath), short(i)))
			case to.floor >= from.floor:
				bad = append(bad, fmt.Sprintf("%s (floor %d) imports %s (floor %d): imports go strictly down; move what both need lower, or the caller higher",
					short(p.ImportPath), from.floor, short(i), to.floor))
			case from.side != to.side && to.side != both:
				bad = append(bad, fmt.Sprintf("%s imports %s across the gate: root side and user side meet in jail/rpc and in packages on both sides",
					short(p.ImportPath), short(i)))
			}
		}
	}
	return bad
}

func checkNames(all []listed, std []string) []string {
	var bad []string
	for _, p := range all {
		name := path.Base(p.ImportPath)
		if slices.Contains(badNames, name) {
			bad = append(bad, fmt.Sprintf("%s: %q says nothing about what is inside; name the noun", short(p.ImportPath), name))
		}
		if p.Name != "main" && slices.Contains(std, name) && stdNames[name] == "" {
			bad = append(bad, fmt.Sprintf("%s: callers already have a standard package %q", short(p.ImportPath), name))
		}
	}
	return bad
}

// checkBans answers one sentence for each banned package among deps, with the packages of ours or nearest that brought it in.
func checkBans(deps []listed, deny map[string]string) []string {
	var bad []string
	for _, p := range deps {
		for ban, why := range deny {
			if p.ImportPath != ban && !strings.HasPrefix(p.ImportPath, ban+"/") {
				continue
			}
			var by []string
			for _, q := range deps {
				if slices.Contains(q.Imports, p.ImportPath) && !strings.HasPrefix(q.ImportPath, ban) {
					by = append(by, q.ImportPath)
				}
			}
			if len(by) > 0 {
				bad = append(bad, fmt.Sprintf("links %s (by %s): %s", p.ImportPath, strings.Join(by, ", "), why))
			}
		}
	}
	sort.Strings(bad)
	return bad
}

// The checks above are only worth something when they fail: each row breaks one rule on purpose.
func TestLayerChecksFail(t *testing.T) {
	pkg := func(path, name string, imports ...string) listed {
		p := listed{ImportPath: module + "/" + path, Name: name, GoFiles: []string{"x.go"}}
		for _, i := range imports {
			if strings.HasPrefix(i, "!") {
				p.Imports = append(p.Imports, i[1:])
			} else {
				p.Imports = append(p.Imports, module+"/"+i)
			}
		}
		return p
	}
	rows := []struct {
		name string
		got  []string
		want string
	}{
		{"upwards", checkFloors([]listed{pkg("policy", "policy", "jail")}), "strictly down"},
		{"sideways", checkFloors([]listed{pkg("cgroup", "cgroup", "policy")}), "strictly down"},
		{"across the gate", checkFloors([]listed{pkg("orchestrator", "orchestrator", "cgroup")}), "across the gate"},
		{"unknown package", checkFloors([]listed{pkg("jail/stuff", "stuff")}), "has no floor"},
		{"import of an unknown package", checkFloors([]listed{pkg("jail", "jail", "jail/stuff")}), "has no floor"},
		{"junk drawer", checkNames([]listed{pkg("jail/util", "util")}, nil), "name the noun"},
		{"standard name", checkNames([]listed{pkg("jail/time", "time")}, []string{"time"}), "already have"},
		{"banned link", checkBans([]listed{pkg("jail/helper", "helper", "!net/http"), {ImportPath: "net/http"}}, bans[0].deny), "attack surface"},
		{"banned link below", checkBans([]listed{pkg("jail", "jail", "!github.com/cilium/ebpf/link"), {ImportPath: "github.com/cilium/ebpf/link"}}, bans[1].deny), "bpf(2)"},
	}
	for _, r := range rows {
		if len(r.got) != 1 || !strings.Contains(r.got[0], r.want) {
			t.Errorf("%s: got %q, want one sentence with %q", r.name, r.got, r.want)
		}
	}
	good := []listed{pkg("jail/helper", "helper", "jail", "cgroup", "jail/rpc", "policy"), pkg("orchestrator", "orchestrator", "jail/rpc", "policy", "orchestrator/plugin")}
	if bad := checkFloors(good); len(bad) > 0 {
		t.Errorf("a tree that is right: %q", bad)
	}
}
