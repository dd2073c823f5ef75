package broker

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func quiet(c *Config) { c.Audit = AuditDenied }

// BenchmarkOpen is open+close of one file: bare, and from the child.
func BenchmarkOpen(b *testing.B) {
	for _, x := range []struct {
		name, path string
		flags      int
		change     func(*Config)
	}{
		{"absolute", "", unix.O_RDONLY, quiet},
		{"relative", "a.txt", unix.O_RDONLY, quiet},
		{"missing", "missing", unix.O_RDONLY, quiet},
		{"write", "", unix.O_WRONLY, quiet},
		{"creat", "", unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC, quiet},
		{"audited", "", unix.O_RDONLY, nil},
		{"path", "", unix.O_PATH, quiet},
	} {
		b.Run(x.name, func(b *testing.B) {
			c := startChild(b, x.change)
			full := c.put("a.txt", "x")
			c.put("deep/er/f", "x")
			path := x.path
			if path == "" {
				path = full
			}
			must(b, os.Chdir(c.base+"/ws"))
			defer os.Chdir("/")
			// The best of many short runs: the machine has other work.
			bare, jailed := math.Inf(1), math.Inf(1)
			own := command{Op: "bench", Argv: []string{path}, Args: []arg{{Int: 500}, {Int: uint64(x.flags)}}}
			b.ResetTimer()
			for range max(b.N/500, 4) {
				jailed = min(jailed, float64(c.do(own).Val)/500)
				bare = min(bare, float64(perform(own).Val)/500)
			}
			b.StopTimer()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(bare, "bare-ns")
			b.ReportMetric(jailed, "jailed-ns")
			b.ReportMetric(jailed/bare, "ratio")
		})
	}
}

// BenchmarkStatus is git status in a repository of 10,000 files.
func BenchmarkStatus(b *testing.B) {
	c := startChild(b, quiet)
	ws := c.base + "/ws"
	script := fmt.Sprintf(`cd %s && git init -q repo && cd repo && for d in $(seq 100); do mkdir d$d; for f in $(seq 100); do echo $d $f > d$d/f$f; done; done; git add -A && git -c user.name=a -c user.email=a@b commit -qm x && chown -R %d:%d . && git config --global --add safe.directory '*'`, ws, testUID, testGID)
	if r := perform(command{Op: "run", Argv: []string{"sh", "-c", script}}); r.Errno != 0 {
		b.Fatalf("%s", r.Data)
	}
	status := []string{"git", "-C", ws + "/repo", "status", "--short"}
	run := func(f func(command) result) time.Duration {
		start := time.Now()
		if r := f(command{Op: "run", Argv: status}); r.Errno != 0 || len(r.Data) != 0 {
			b.Fatalf("git status: %s", r.Data)
		}
		return time.Since(start)
	}
	run(c.do)
	bare, jailed := time.Hour, time.Hour
	b.ResetTimer()
	for range b.N {
		jailed = min(jailed, run(c.do))
		bare = min(bare, run(perform))
	}
	b.ReportMetric(float64(bare.Microseconds()), "bare-us")
	b.ReportMetric(float64(jailed.Microseconds()), "jailed-us")
	b.ReportMetric(float64(jailed)/float64(bare), "ratio")
	runtime.KeepAlive(c)
}
