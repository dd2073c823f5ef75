package cgroup

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Stats is what a jail uses. A field whose controller is nowhere is 0.
type Stats struct {
	Memory     int64 // bytes now
	MemoryPeak int64 // bytes at most since the start
	Pids       int64 // tasks now
	CPU        time.Duration
	Throttled  time.Duration // waiting because of the CPU limit
	Read       int64         // bytes from block devices; needs Limits.CountIO or Limits.IO
	Written    int64         // bytes to block devices
}

// Counts are how often limits were hit since the group was made.
type Counts struct {
	OOMKills uint64 // processes ended because of the memory limit
	Pids     uint64 // forks refused because of the task limit
}

// Hit is a limit that was hit, as a sentence for the user.
type Hit struct {
	Limit string // "memory" or "pids"
	Count uint64 // how often, since the counts that were asked about
	Text  string // one sentence that names the limit and how to raise it
}

// hits compares two counts. memory and pids are the limits, 0 if not known.
func hits(before, now Counts, memory, pids int64) []Hit {
	var out []Hit
	if n := now.OOMKills - before.OOMKills; now.OOMKills > before.OOMKills {
		out = append(out, Hit{"memory", n, fmt.Sprintf("memory limit%s reached: the kernel ended %s; raise resources.memory",
			of(memory, bytesText(memory)), plural(n, "process", "processes"))})
	}
	if n := now.Pids - before.Pids; now.Pids > before.Pids {
		out = append(out, Hit{"pids", n, fmt.Sprintf("process limit%s reached: %s refused; raise resources.pids",
			of(pids, text(pids)), plural(n, "fork was", "forks were"))})
	}
	return out
}

func of(limit int64, text string) string {
	if limit <= 0 {
		return ""
	}
	return " of " + text
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}

// bytesText writes a limit the way policies do. The kernel rounds limits down to
// pages, so a value less than a page below a round one is that round one.
func bytesText(n int64) string {
	const page = 64 << 10 // the largest page size
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1e9, "GB"}, {1 << 20, "MiB"}, {1e6, "MB"}} {
		if whole := (n + page - 1) / u.size; whole > 0 && whole*u.size-n < page && whole*u.size >= n {
			return fmt.Sprintf("%d %s", whole, u.name)
		}
	}
	if n >= 1e9 {
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// field reads one number of a flat keyed file ("oom_kill 3" per line), or of a
// file that holds a single number when key is "".
func field(data []byte, key string) (uint64, bool) {
	if key == "" {
		n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
		return n, err == nil
	}
	for _, line := range strings.Split(string(data), "\n") {
		if name, rest, ok := strings.Cut(line, " "); ok && name == key {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// ioBytes adds up io.stat ("8:0 rbytes=1 wbytes=2 ..." per device) or v1's
// blkio.throttle.io_service_bytes ("8:0 Read 1" per device and direction).
func ioBytes(data []byte) (read, written int64) {
	for _, line := range strings.Split(string(data), "\n") {
		words := strings.Fields(line)
		if len(words) == 3 && !strings.Contains(words[1], "=") {
			words = []string{words[0], strings.ToLower(words[1][:1]) + "bytes=" + words[2]}
		}
		for _, w := range words {
			key, number, _ := strings.Cut(w, "=")
			n, err := strconv.ParseInt(number, 10, 64)
			switch {
			case err != nil:
			case key == "rbytes":
				read += n
			case key == "wbytes":
				written += n
			}
		}
	}
	return read, written
}
