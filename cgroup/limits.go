package cgroup

import (
	"errors"
	"fmt"
	"strconv"
)

// Limits bound a jail as a whole. A zero field sets no limit.
type Limits struct {
	Memory     int64     // bytes of memory
	MemoryHigh int64     // bytes above which the kernel slows the jail and reclaims; v2 only, no guarantee
	Swap       int64     // bytes of swap on top of Memory; where Memory is set, 0 means none
	OOMGroup   bool      // out of memory ends the whole jail, not one process
	Pids       int64     // tasks (processes and threads)
	CPU        float64   // cores: 0.8 is 80 % of one
	IO         []IOLimit // bandwidth per device
	CountIO    bool      // make Stats.Read and Stats.Written available
}

// IOLimit bounds one block device, in bytes per second; 0 sets no limit.
type IOLimit struct {
	Major, Minor int64
	Read, Write  int64
}

// Missing is a limit that was asked for and is not enforced.
type Missing struct {
	Guarantee string // "cgroup-memory", "cgroup-pids", "cgroup-cpu", "cgroup-io": the policy's words
	Why       string
	Hint      string // what a user can do about it, or ""
}

func (m Missing) String() string { return m.Guarantee + ": " + m.Why }

// ErrName reports a name that is no group name.
var ErrName = errors.New("a group name is 1 to 64 letters, digits, '-' and '_', and starts with a letter or digit")

// validName keeps to characters that no kernel file in a group's directory can
// clash with ("cgroup.procs" has a dot).
func validName(name string) error {
	if len(name) == 0 || len(name) > 64 || name == "tasks" {
		return fmt.Errorf("group %q: %w", name, ErrName)
	}
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_') {
			return fmt.Errorf("group %q: %w", name, ErrName)
		}
	}
	return nil
}

// kind is one limit of [Limits].
type kind uint8

const (
	memoryMax kind = iota
	memorySwap
	memoryHigh
	oomGroup
	pidsMax
	cpuMax
	ioMax
)

// setting is one limit to be set.
type setting struct {
	kind       kind
	controller string // v2 name
	legacy     string // v1 name of the controller
	guarantee  string
	courtesy   bool // not a guarantee: failing to set it is not reported
}

// settings lists what limits ask for, in the order in which it is set: on v1
// the swap limit must not be below the memory limit.
func settings(lim Limits) []setting {
	var out []setting
	add := func(asked bool, s setting) {
		if asked {
			out = append(out, s)
		}
	}
	add(lim.Memory > 0, setting{memoryMax, "memory", "memory", "cgroup-memory", false})
	add(lim.Memory > 0, setting{memorySwap, "memory", "memory", "cgroup-memory", false})
	add(lim.MemoryHigh > 0, setting{memoryHigh, "memory", "memory", "cgroup-memory", true})
	add(lim.OOMGroup, setting{oomGroup, "memory", "memory", "cgroup-memory", false})
	add(lim.Pids > 0, setting{pidsMax, "pids", "pids", "cgroup-pids", false})
	add(lim.CPU > 0, setting{cpuMax, "cpu", "cpu", "cgroup-cpu", false})
	add(len(lim.IO) > 0, setting{ioMax, "io", "blkio", "cgroup-io", false})
	return out
}

// value is one line to be written to one file of a group.
type value struct{ file, text string }

// legacyValues returns the v1 files of one setting; none where v1 has no twin.
func legacyValues(k kind, lim Limits) []value {
	switch k {
	case memoryMax:
		return []value{{"memory.limit_in_bytes", text(lim.Memory)}}
	case memorySwap:
		return []value{{"memory.memsw.limit_in_bytes", text(lim.Memory + lim.Swap)}}
	case pidsMax:
		return []value{{"pids.max", text(lim.Pids)}}
	case cpuMax:
		quota, period := cpuQuota(lim.CPU)
		return []value{{"cpu.cfs_period_us", text(int64(period))}, {"cpu.cfs_quota_us", text(quota)}}
	case ioMax:
		var out []value
		for _, d := range lim.IO {
			for _, v := range []struct {
				file string
				rate int64
			}{{"blkio.throttle.read_bps_device", d.Read}, {"blkio.throttle.write_bps_device", d.Write}} {
				if v.rate > 0 {
					out = append(out, value{v.file, fmt.Sprintf("%d:%d %d", d.Major, d.Minor, v.rate)})
				}
			}
		}
		return out
	}
	return nil
}

// legacyShort says what v1 does not bound although the value was taken, or "".
func legacyShort(k kind) string {
	if k == ioMax {
		return "cgroup v1 bounds direct and synchronous writes only, not those through the page cache"
	}
	return ""
}

// cpuQuota turns cores into microseconds per period of 100 ms. The kernel takes no
// quota below 1 ms.
func cpuQuota(cores float64) (quota int64, period uint64) {
	const us = 100_000
	return max(int64(cores*us+0.5), 1000), us
}

func text(n int64) string { return strconv.FormatInt(n, 10) }
