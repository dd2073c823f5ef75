package posture

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const status = `Name:	node
Umask:	0022
State:	S (sleeping)
Tgid:	77
Pid:	77
PPid:	1
TracerPid:	0
Uid:	101000	101000	101000	101000
Gid:	101000	101001	101002	101003
FDSize:	64
Groups:	10 20 
NStgid:	77	3
CapInh:	0000000000000000
CapPrm:	00000000a80425fb
CapEff:	0000000000000001
CapBnd:	000001ffffffffff
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
Seccomp_filters:	3
`

func TestStatus(t *testing.T) {
	var got Posture
	if err := got.parseStatus([]byte(status)); err != nil {
		t.Fatal(err)
	}
	want := Posture{
		Pid: 77, Name: "node",
		UIDs: [4]uint32{101000, 101000, 101000, 101000}, GIDs: [4]uint32{101000, 101001, 101002, 101003},
		Groups: []uint32{10, 20}, Caps: Caps{Permitted: 0xa80425fb, Effective: 1, Bounding: 0x1ffffffffff},
		NoNewPrivs: true, Seccomp: 2, Filters: 3,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"Uid:\t1 2 3\n", "CapEff:\txyz\n", "Pid:\t\n", "Groups:\ta\n"} {
		if err := new(Posture).parseStatus([]byte(bad)); err == nil {
			t.Errorf("%q parsed", bad)
		}
	}
}

func TestMaps(t *testing.T) {
	got, err := parseMap([]byte("         0     100000      65536\n     70000          5          1\n"))
	if d := cmp.Diff([]IDRange{{0, 100000, 65536}, {70000, 5, 1}}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if _, err := parseMap([]byte("1 2\n")); !errors.Is(err, errLine) {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	got, err := parseLimits([]byte("" +
		"Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max core file size        0                    unlimited            bytes     \n" +
		"Max open files            1024                 4096                 files     \n" +
		"Max nice priority         0                    0                    \n"))
	want := map[string]Limit{
		"Max core file size": {0, Unlimited}, "Max open files": {1024, 4096}, "Max nice priority": {},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, bad := range []string{"short\n", "Max open files            1024\n", "Max open files            a b\n"} {
		if _, err := parseLimits([]byte(bad)); err == nil {
			t.Errorf("%q parsed", bad)
		}
	}
}

func TestMounts(t *testing.T) {
	got, err := parseMounts([]byte(
		`36 35 98:0 /mnt1 /a\040b rw,nosuid master:1 - ext3 /dev/root rw,errors=continue` + "\n" +
			`40 36 0:5 / / ro - tmpfs  ro` + "\n"))
	want := []Mount{
		{Root: "/mnt1", Point: "/a b", Options: []string{"rw", "nosuid"}, Type: "ext3", Source: "/dev/root", Super: []string{"rw", "errors=continue"}},
		{Root: "/", Point: "/", Options: []string{"ro"}, Type: "tmpfs", Source: "", Super: []string{"ro"}},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if _, err := parseMounts([]byte("nonsense\n")); !errors.Is(err, errLine) {
		t.Error(err)
	}
}

func TestSmall(t *testing.T) {
	if n, err := parseNamespace("mnt:[4026531841]"); n != 4026531841 || err != nil {
		t.Error(n, err)
	}
	if _, err := parseNamespace("mnt:4026531841"); err == nil {
		t.Error("no brackets, no error")
	}
	if !parseCloexec([]byte("pos:\t0\nflags:\t02100002\nmnt_id:\t9\n")) || parseCloexec([]byte("flags:\t0100002\n")) {
		t.Error("close-on-exec")
	}
	want := map[string]string{"memory": "/a:b", "cpu": "/", "cpuacct": "/", "": "/x"}
	if d := cmp.Diff(want, parseCgroups([]byte("4:memory:/a:b\n2:cpu,cpuacct:/\n0::/x\n"))); d != "" {
		t.Error(d)
	}
}

// good is a jailed process and what is expected of it.
func good() (Posture, Expect) {
	all := func(n uint64) Namespaces {
		out := Namespaces{}
		for i, name := range separate() {
			out[name] = n + uint64(i)
		}
		return out
	}
	p := Posture{
		UIDs: [4]uint32{101000, 101000, 101000, 101000}, GIDs: [4]uint32{101000, 101000, 101000, 101000},
		UIDMap: []IDRange{{0, 100000, 65536}}, GIDMap: []IDRange{{0, 100000, 65536}},
		NoNewPrivs: true, Seccomp: 2, Filters: 1, Namespaces: all(100), Owner: 100000,
		FDs:     []FD{{0, "/dev/pts/0", true}, {1, "/dev/pts/0", true}, {2, "/dev/pts/0", true}},
		Limits:  map[string]Limit{"Max open files": {1024, 4096}},
		Cgroups: map[string]string{"": "/agentos/a", "memory": "/agentos/a"},
		Mounts: []Mount{
			{Point: "/", Options: []string{"ro", "nosuid", "nodev"}},
			{Point: "/work", Options: []string{"rw", "nosuid", "nodev"}},
			{Point: "/dev", Options: []string{"ro", "nosuid"}},
		},
		OOMScoreAdj: 500,
	}
	want := Expect{
		UID: 101000, GID: 101000, IDs: IDRange{0, 100000, 65536}, Host: all(1), Cgroup: "/agentos/a",
		Controllers: []string{"memory"}, Writable: []string{"/work"}, Devices: []string{"/dev"}, OOMScoreAdj: 500,
		Limits: map[string]Limit{"Max open files": {4096, 4096}},
	}
	return p, want
}

func TestCheck(t *testing.T) {
	p, want := good()
	if got := Check(p, want); len(got) != 0 {
		t.Fatalf("a good posture: %q", got)
	}
	for name, c := range map[string]struct {
		change func(*Posture, *Expect)
		want   []string
	}{
		"uid":     {func(p *Posture, _ *Expect) { p.UIDs[2] = 0 }, []string{"saved uid is 0, not 101000"}},
		"gid":     {func(p *Posture, _ *Expect) { p.GIDs[3] = 0 }, []string{"file system gid is 0, not 101000"}},
		"group":   {func(p *Posture, _ *Expect) { p.Groups = []uint32{999} }, []string{"it is in group 999"}},
		"map":     {func(p *Posture, _ *Expect) { p.UIDMap = []IDRange{{0, 0, 4294967295}} }, []string{"uids 0 to 4294967294 outside are mapped"}},
		"no map":  {func(p *Posture, _ *Expect) { p.GIDMap = nil }, []string{"its namespace maps no gids"}},
		"caps":    {func(p *Posture, _ *Expect) { p.Caps.Bounding = 1 << 21 }, []string{"bounding capabilities 0x200000"}},
		"caps ok": {func(p *Posture, w *Expect) { p.Caps.Effective, w.Caps = 4, 4 }, nil},
		"nnp":     {func(p *Posture, _ *Expect) { p.NoNewPrivs = false }, []string{"no_new_privs is not set"}},
		"seccomp": {func(p *Posture, _ *Expect) { p.Seccomp, p.Filters = 0, 0 }, []string{
			"seccomp mode is 0, not 2", "0 seccomp filters, at least 1 expected",
		}},
		"tracer":    {func(p *Posture, _ *Expect) { p.Tracer = 9 }, []string{"process 9 traces it"}},
		"dumpable":  {func(p *Posture, _ *Expect) { p.Owner = 101000 }, []string{"it is dumpable"}},
		"init":      {func(p *Posture, w *Expect) { p.UIDs, w.UID = [4]uint32{100000, 100000, 100000, 100000}, 100000 }, nil},
		"oom":       {func(p *Posture, _ *Expect) { p.OOMScoreAdj = -1 }, []string{"oom_score_adj is -1, at least 500 expected"}},
		"namespace": {func(p *Posture, w *Expect) { p.Namespaces["net"] = w.Host["net"] }, []string{"it shares the host's net namespace"}},
		"unknown":   {func(p *Posture, _ *Expect) { delete(p.Namespaces, "time") }, []string{"its time namespace is unknown"}},
		"blind":     {func(_ *Posture, w *Expect) { delete(w.Host, "ipc") }, []string{"the host's ipc namespace is unknown"}},
		"shared":    {func(p *Posture, w *Expect) { p.Namespaces["time"], w.Shared = w.Host["time"], []string{"time"} }, nil},
		"fd":        {func(p *Posture, _ *Expect) { p.FDs = append(p.FDs, FD{7, "/etc\n", false}) }, []string{`descriptor 7 is open: "/etc\n"`}},
		"cgroup": {func(p *Posture, _ *Expect) { p.Cgroups = nil }, []string{
			`its v2 cgroup is "", not "/agentos/a"`, `its memory cgroup is "", not "/agentos/a"`,
		}},
		"writable":  {func(_ *Posture, w *Expect) { w.Writable = nil }, []string{`"/work" is writable`}},
		"suid":      {func(p *Posture, _ *Expect) { p.Mounts[1].Options = []string{"rw", "nodev"} }, []string{`"/work" lets programs change ids`}},
		"devices":   {func(_ *Posture, w *Expect) { w.Devices = nil }, []string{`"/dev" has devices`}},
		"no mounts": {func(p *Posture, _ *Expect) { p.Mounts = nil }, []string{"its mounts are unknown"}},
		"limit":     {func(p *Posture, _ *Expect) { p.Limits["Max open files"] = Limit{1024, Unlimited} }, []string{"its limit of max open files is 1024/unlimited, not 4096/4096"}},
		"no limit":  {func(p *Posture, _ *Expect) { p.Limits = nil }, []string{"its limit of max open files is unknown"}},
	} {
		p, want := good()
		c.change(&p, &want)
		if d := cmp.Diff(c.want, Check(p, want)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
	if len(Check(Posture{}, Expect{})) == 0 {
		t.Error("an empty posture passes an empty expectation")
	}
}
