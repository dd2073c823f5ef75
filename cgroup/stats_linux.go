package cgroup

import (
	"slices"
	"time"
)

// source is a number of a group: a file on v2, or one on v1.
type source struct {
	controller            string // v1 name
	file, key             string // v2
	legacyFile, legacyKey string
}

func oomKills() source {
	return source{"memory", "memory.events", "oom_kill", "memory.oom_control", "oom_kill"}
}
func pidsHit() source { return source{"pids", "pids.events", "max", "pids.events", "max"} }

// from reads a number where its controller lives: in a v1 directory of the group
// that has it, else on v2.
func (g *Group) from(s source) uint64 {
	var n uint64
	if i := g.legacyOf(s.controller); i >= 0 {
		n, _ = g.legacy[i].number(s.legacyFile, s.legacyKey)
	} else {
		n, _ = g.v2.number(s.file, s.key)
	}
	return n
}

func (g *Group) legacyOf(controller string) int {
	return slices.IndexFunc(g.legacy, func(d dir) bool { return slices.Contains(d.controllers, controller) })
}

// Stats reads what the jail uses. CPU time is always known.
func (g *Group) Stats() Stats {
	usage, _ := g.v2.number("cpu.stat", "usage_usec") // also without the controller
	s := Stats{
		Memory:     int64(g.from(source{"memory", "memory.current", "", "memory.usage_in_bytes", ""})),
		MemoryPeak: int64(g.from(source{"memory", "memory.peak", "", "memory.max_usage_in_bytes", ""})),
		Pids:       int64(g.from(source{"pids", "pids.current", "", "pids.current", ""})),
		CPU:        time.Duration(usage) * time.Microsecond,
	}
	if g.legacyOf("cpu") >= 0 {
		s.Throttled = time.Duration(g.from(source{"cpu", "", "", "cpu.stat", "throttled_time"}))
	} else {
		s.Throttled = time.Duration(g.from(source{"cpu", "cpu.stat", "throttled_usec", "", ""})) * time.Microsecond
	}
	data, err := []byte(nil), error(nil)
	if i := g.legacyOf("blkio"); i >= 0 {
		data, err = g.legacy[i].read("blkio.throttle.io_service_bytes")
	} else {
		data, err = g.v2.read("io.stat")
	}
	if err == nil {
		s.Read, s.Written = ioBytes(data)
	}
	return s
}

// Counts reads how often limits were hit so far.
func (g *Group) Counts() Counts {
	return Counts{OOMKills: g.from(oomKills()), Pids: g.from(pidsHit())}
}

// Hits returns the limits that were hit since the given counts, and the counts
// of now. The zero Counts is the start of the group.
func (g *Group) Hits(since Counts) ([]Hit, Counts) {
	now := g.Counts()
	return hits(since, now, g.memory, g.pids), now
}

// readLimits reads the limits of a group that another process made.
func (g *Group) readLimits() (memory, pids int64) {
	m := g.from(source{"memory", "memory.max", "", "memory.limit_in_bytes", ""})
	if m > 1<<60 { // v1's "no limit"
		m = 0
	}
	return int64(m), int64(g.from(source{"pids", "pids.max", "", "pids.max", ""}))
}
