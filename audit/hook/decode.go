package hook

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/agentos/agentos/audit/event"
)

// Sizes and flags of bpf/include/record.h; layout_test.go compares them.
const (
	recordSize  = 64
	birthSize   = 40
	addressSize = 24
	maxRecord   = recordSize + 8192

	recAllow       = 1
	recCut         = 2
	recUnreachable = 4
	recRaced       = 8
	recPermitted   = 16
	recKilled      = 32
	recScript      = 64
	recNoStorage   = 128
	recPartial     = 256
	recAbsent      = 512
	recLinked      = 1024

	noRule = 0xffff
)

// record is struct record of bpf/include/record.h with its strings.
type record struct {
	time, seq, start, ino    uint64
	dev, tgid, tid, op       uint32
	kind, flags, rule, errno uint16
	one, two, three          []byte
}

// parseRecord reads one ring entry. The strings alias b.
func parseRecord(b []byte) (record, error) {
	if len(b) < recordSize {
		return record{}, fmt.Errorf("record of %d bytes: too short", len(b))
	}
	le := binary.LittleEndian
	r := record{
		time: le.Uint64(b), seq: le.Uint64(b[8:]), start: le.Uint64(b[16:]), ino: le.Uint64(b[24:]),
		dev: le.Uint32(b[32:]), tgid: le.Uint32(b[36:]), tid: le.Uint32(b[40:]), op: le.Uint32(b[44:]),
		kind: le.Uint16(b[48:]), flags: le.Uint16(b[50:]), rule: le.Uint16(b[52:]), errno: le.Uint16(b[54:]),
	}
	n1, n2, n3 := int(le.Uint16(b[56:])), int(le.Uint16(b[58:])), int(le.Uint16(b[60:]))
	rest := b[recordSize:]
	if n1+n2+n3 > len(rest) {
		return record{}, fmt.Errorf("record strings of %d bytes: %d present", n1+n2+n3, len(rest))
	}
	r.one, r.two, r.three = rest[:n1:n1], rest[n1:n1+n2:n1+n2], rest[n1+n2:n1+n2+n3]
	return r, nil
}

// process is what the decoder remembers of a live process of a jail.
type process struct {
	start   uint64
	ppid    int32
	jailPid int32
	exe     string
	comm    string
}

// decoder turns the records of one jail into events. It follows forks and execs, so
// that an event names the executable; after an adoption it starts knowing nothing.
type decoder struct {
	boot     time.Time // wall clock at CLOCK_BOOTTIME 0
	ruleText func(uint16) string
	procs    map[uint32]process
	ended    []ended // the latest, oldest first: others may still have something to say of them
}

// ended is a process that is not there any more.
type ended struct {
	tgid uint32
	process
}

// maxEnded bounds what is remembered of those.
const maxEnded = 256

// find is what is known of a process, of one that has just ended too.
func (d *decoder) find(tgid uint32, start uint64) (process, bool) {
	if p, ok := d.procs[tgid]; ok && p.start == start {
		return p, true
	}
	for i := len(d.ended) - 1; i >= 0; i-- {
		if e := &d.ended[i]; e.tgid == tgid && e.start == start {
			return e.process, true
		}
	}
	return process{}, false
}

func (d *decoder) event(r *record) event.Event {
	e := event.Event{
		Time: d.boot.Add(time.Duration(r.time)), Mono: r.time,
		Kind: event.Kind(r.kind), Errno: int(r.errno),
		Pid: int32(r.tgid), Tid: int32(r.tid), TaskStart: r.start,
		Dev: userDev(r.dev), Ino: r.ino, Flags: r.op,
		Cut: r.flags&recCut != 0,
	}
	if r.flags&recAllow != 0 {
		e.Verdict = event.Allow
	}
	if r.rule != noRule && d.ruleText != nil {
		e.Rule = d.ruleText(r.rule)
	}
	e.Detail = detail(r)
	if p, ok := d.procs[r.tgid]; ok && p.start == r.start {
		e.Exe, e.Comm, e.Ppid, e.JailPid = p.exe, p.comm, p.ppid, p.jailPid
	}
	switch e.Kind {
	case event.Exec:
		d.exec(&e, r)
	case event.Fork:
		d.fork(&e, r)
	case event.Exit:
		exit(&e, r)
		if p, ok := d.procs[r.tgid]; ok {
			if len(d.ended) >= maxEnded {
				d.ended = append(d.ended[:0], d.ended[maxEnded/2:]...)
			}
			d.ended = append(d.ended, ended{r.tgid, p})
			delete(d.procs, r.tgid)
		}
	case event.Connect, event.Send, event.Bind, event.Socket:
		address(&e, r)
	case event.UnixConnect:
		e.Path, e.Addr = string(r.one), unixAddr(r.two)
	default:
		e.Path, e.Path2 = string(r.one), string(r.two)
		if r.flags&recAbsent != 0 { // as it was written: no link in it was followed
			e.Path, e.Path2 = path.Clean(e.Path+"/"+e.Path2), ""
		}
	}
	return e
}

func (d *decoder) exec(e *event.Event, r *record) {
	e.Path = string(r.one)
	if r.flags&recScript != 0 { // #!: path is the interpreter that runs, two the script as it was named
		e.Path, e.Path2 = string(r.two), string(r.one)
	}
	e.Argv = splitArgs(r.three)
	e.Exe = string(r.one)
	e.Comm = base(e.Path)
	p := d.procs[r.tgid]
	if p.start != r.start {
		p = process{start: r.start}
	}
	p.exe, p.comm = e.Exe, e.Comm
	d.procs[r.tgid] = p
}

func (d *decoder) fork(e *event.Event, r *record) {
	if len(r.one) < birthSize {
		return
	}
	le := binary.LittleEndian
	child := process{start: le.Uint64(r.one), jailPid: int32(le.Uint32(r.one[16:])), ppid: int32(le.Uint32(r.one[20:]))}
	tgid := le.Uint32(r.one[8:])
	comm, _, _ := strings.Cut(string(r.one[24:40]), "\x00")
	child.comm, child.exe = comm, e.Exe
	d.procs[tgid] = child
	// The event is about the child, its parent is Ppid.
	e.Pid, e.Tid, e.TaskStart = int32(tgid), int32(tgid), child.start
	e.Ppid, e.JailPid, e.Comm = child.ppid, child.jailPid, comm
}

func exit(e *event.Event, r *record) {
	e.Flags = 0
	if sig := int(r.op & 0x7f); sig != 0 {
		e.Code, e.Detail = 128+sig, "signal "+strconv.Itoa(sig)
		return
	}
	e.Code = int(r.op >> 8 & 0xff)
}

var families = map[uint16]string{1: "unix", 2: "inet", 10: "inet6", 16: "netlink", 17: "packet", 38: "alg", 40: "vsock", 44: "xdp"}

func address(e *event.Event, r *record) {
	if len(r.two) < addressSize {
		return
	}
	family := binary.LittleEndian.Uint16(r.two)
	port := binary.BigEndian.Uint16(r.two[2:])
	protocol := binary.LittleEndian.Uint32(r.two[20:])
	var ip netip.Addr
	switch family {
	case 2:
		ip = netip.AddrFrom4([4]byte(r.two[4:8]))
	case 10:
		ip = netip.AddrFrom16([16]byte(r.two[4:20])).Unmap()
	}
	if e.Kind == event.Socket {
		name := families[family]
		if name == "" {
			name = strconv.Itoa(int(family))
		}
		e.Name = fmt.Sprintf("%s type %d protocol %d", name, r.op, int32(protocol))
		return
	}
	if ip.IsValid() {
		e.Addr = netip.AddrPortFrom(ip, port).String()
	}
	switch protocol {
	case 6, 262:
		e.Name = "tcp"
	case 17, 136:
		e.Name = "udp"
	default:
		e.Name = strconv.Itoa(int(protocol))
	}
}

// unixAddr writes an abstract address as "@name".
func unixAddr(b []byte) string {
	if len(b) > 0 && b[0] == 0 {
		return "@" + string(b[1:])
	}
	return strings.TrimRight(string(b), "\x00")
}

func detail(r *record) string {
	var s []string
	killed := "killed before its first instruction"
	if event.Kind(r.kind) == event.Open {
		killed = "killed before it could read"
	}
	for _, f := range []struct {
		bit  uint16
		text string
	}{
		{recUnreachable, "no path in this mount namespace"},
		{recRaced, "renames kept interfering"},
		{recPermitted, "denied by the rules, not enforced"},
		{recKilled, killed},
		{recNoStorage, "no kernel memory for the task"},
		{recPartial, "path within its file system"},
		{recLinked, "another name of this file is refused"},
	} {
		if r.flags&f.bit != 0 {
			s = append(s, f.text)
		}
	}
	return strings.Join(s, "; ")
}

func splitArgs(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

func base(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	return name[:min(len(name), 15)]
}

// userDev turns the kernel's dev_t (major << 20 | minor) into stat's, see
// new_encode_dev in include/linux/kdev_t.h.
func userDev(dev uint32) uint64 {
	major, minor := uint64(dev>>20), uint64(dev&0xfffff)
	return minor&0xff | major<<8 | (minor&^0xff)<<12
}
