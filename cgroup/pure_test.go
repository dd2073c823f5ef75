package cgroup

import (
	"embed"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixtures travel with the test binary, which also runs in virtual machines.
//
//go:embed testdata
var fixtures embed.FS

func TestParseMounts(t *testing.T) {
	const base = "/sys/fs/cgroup/"
	for name, c := range map[string]struct {
		want Layout
		kind string
	}{
		"hybrid": {Layout{Unified: base + "unified", Legacy: map[string]string{
			"cpu": base + "cpu", "memory": base + "memory", "blkio": base + "blkio", "pids": base + "pids",
		}}, "hybrid"},
		"unified": {Layout{Unified: "/sys/fs/cgroup", Legacy: map[string]string{}}, "unified"},
		"comounted": {Layout{Legacy: map[string]string{
			"memory": "/mnt/my memory", "cpu": base + "cpu,cpuacct", "pids": base + "pids",
		}}, "legacy"},
	} {
		data, err := fixtures.ReadFile("testdata/" + name + ".mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		got := parseMounts(data)
		if d := cmp.Diff(c.want, got); d != "" || got.Kind() != c.kind {
			t.Errorf("%s: %s %s", name, got.Kind(), d)
		}
	}
}

func TestWhere(t *testing.T) {
	l := Layout{Unified: "/u", Controllers: []string{"pids"}, Legacy: map[string]string{"memory": "/m"}}
	for controller, want := range map[string]Place{
		"pids": {"/u", true}, "memory": {"/m", false}, "cpu": {},
	} {
		if got := l.Where(controller); got != want {
			t.Errorf("%s: %v", controller, got)
		}
	}
}

func TestNames(t *testing.T) {
	for _, bad := range []string{
		"", ".", "..", "a/b", "-a", "cgroup.procs", "tasks", "a b", "ä", "a\n",
		"0123456789012345678901234567890123456789012345678901234567890123456789",
	} {
		if err := validName(bad); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"a", "s-1", "A_b-9", "0"} {
		if err := validName(good); err != nil {
			t.Error(err)
		}
	}
}

func TestLegacyValues(t *testing.T) {
	lim := Limits{
		Memory: 1 << 30, Swap: 1 << 20, Pids: 50, CPU: 0.8, OOMGroup: true, MemoryHigh: 9,
		IO: []IOLimit{{8, 0, 0, 1000}, {8, 16, 5, 6}},
	}
	got := map[kind][]value{}
	var order []kind
	for _, s := range settings(lim) {
		got[s.kind] = legacyValues(s.kind, lim)
		order = append(order, s.kind)
	}
	want := map[kind][]value{
		memoryMax:  {{"memory.limit_in_bytes", "1073741824"}},
		memorySwap: {{"memory.memsw.limit_in_bytes", "1074790400"}},
		memoryHigh: nil,
		oomGroup:   nil,
		pidsMax:    {{"pids.max", "50"}},
		cpuMax:     {{"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", "80000"}},
		ioMax: {
			{"blkio.throttle.write_bps_device", "8:0 1000"},
			{"blkio.throttle.read_bps_device", "8:16 5"},
			{"blkio.throttle.write_bps_device", "8:16 6"},
		},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(value{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]kind{memoryMax, memorySwap, memoryHigh, oomGroup, pidsMax, cpuMax, ioMax}, order); d != "" {
		t.Error(d)
	}
	if len(settings(Limits{})) != 0 {
		t.Error("no limits asked, some set")
	}
	if q, _ := cpuQuota(0.001); q != 1000 {
		t.Errorf("quota %d is below the kernel's least", q)
	}
}

func TestHits(t *testing.T) {
	for _, c := range []struct {
		before, now Counts
		memory      int64
		pids        int64
		want        []Hit
	}{
		{Counts{3, 4}, Counts{3, 4}, 1, 1, nil},
		{Counts{}, Counts{1, 0}, 4e9 - 2048, 0, []Hit{
			{"memory", 1, "memory limit of 4 GB reached: the kernel ended 1 process; raise resources.memory"},
		}},
		{Counts{1, 2}, Counts{3, 3}, 0, 50, []Hit{
			{"memory", 2, "memory limit reached: the kernel ended 2 processes; raise resources.memory"},
			{"pids", 1, "process limit of 50 reached: 1 fork was refused; raise resources.pids"},
		}},
	} {
		if d := cmp.Diff(c.want, hits(c.before, c.now, c.memory, c.pids)); d != "" {
			t.Error(d)
		}
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		4e9: "4 GB", 4e9 - 2048: "4 GB", 4 << 30: "4 GiB", 512 << 20: "512 MiB", 300e6 - 100: "300 MB",
		1_234_567_890: "1.2 GB", 1_250_000: "1.2 MB", 1: "0.0 MB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestFields(t *testing.T) {
	for _, c := range []struct {
		data, key string
		want      uint64
		ok        bool
	}{
		{"populated 1\nfrozen 0\n", "frozen", 0, true},
		{"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", "oom_kill", 7, true},
		{"12\n", "", 12, true},
		{"max\n", "", 0, false},
		{"", "x", 0, false},
		{"x y\n", "x", 0, false},
	} {
		if got, ok := field([]byte(c.data), c.key); got != c.want || ok != c.ok {
			t.Errorf("%q %q: %d %v", c.data, c.key, got, ok)
		}
	}
}

func TestIOBytes(t *testing.T) {
	for _, data := range []string{
		"8:0 rbytes=1 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=2 wbytes=10\n",
		"8:0 Read 1\n8:0 Write 20\n8:0 Sync 3\n8:0 Total 21\n8:16 Read 2\n8:16 Write 10\nTotal 33\n",
	} {
		if r, w := ioBytes([]byte(data)); r != 3 || w != 30 {
			t.Errorf("%q: %d %d", data, r, w)
		}
	}
}

func TestMembership(t *testing.T) {
	got := parseMembership([]byte("4:memory:/a:b\n2:cpu,cpuacct:/\n0::/x\nnonsense\n"))
	want := map[string]string{"memory": "/a:b", "cpu": "/", "cpuacct": "/", "": "/x"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
