package hook

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/agentos/agentos/audit/event"
	"github.com/agentos/agentos/bpf"
)

// TestLayout compares the decoder with the types that clang laid out.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		v    any
		size int
	}{
		{bpf.TraceRecord{}, recordSize},
		{bpf.TraceBirth{}, birthSize},
		{bpf.NetAddress{}, addressSize},
		{bpf.TraceJail{}, 24},
		{bpf.TraceUnixPeer{}, 16},
		{bpf.NetReachKey{}, 24},
		{bpf.OwnerFlow{}, 24},
		{bpf.OwnerOwner{}, 16},
		{bpf.TraceLinked{}, 24},
		{bpf.TraceTaint{}, 8},
	} {
		if got := int(reflect.TypeOf(c.v).Size()); got != c.size || binary.Size(c.v) != c.size {
			t.Errorf("%T is %d bytes (%d packed), want %d", c.v, got, binary.Size(c.v), c.size)
		}
	}
	in := bpf.TraceRecord{
		Time: 1, Seq: 2, TaskStart: 3, Ino: 4, Dev: 5, Tgid: 6, Tid: 7, OpFlags: 8,
		Kind: 9, Flags: 10, Rule: 11, Error: 12, Len1: 1, Len2: 2, Len3: 3,
	}
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, in)
	b.WriteString("abbccc")
	r, err := parseRecord(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := record{
		time: 1, seq: 2, start: 3, ino: 4, dev: 5, tgid: 6, tid: 7, op: 8, kind: 9, flags: 10, rule: 11, errno: 12,
		one: []byte("a"), two: []byte("bb"), three: []byte("ccc"),
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

var constant = regexp.MustCompile(`(?m)^\s*(?:#define )?([A-Z][A-Z_0-9]+)(?: =)? (0x[0-9a-f]+|\d+)`)

// TestConstants compares numbers that C and Go both have.
func TestConstants(t *testing.T) {
	b, err := os.ReadFile("../../bpf/include/record.h")
	if os.IsNotExist(err) && os.Getenv("AGENTOS_KERNEL_ROW") != "" {
		t.Skip("wanted the sources, got a test machine without them")
	}
	if err != nil {
		t.Fatal(err)
	}
	c := map[string]uint64{}
	for _, m := range constant.FindAllStringSubmatch(string(b), -1) {
		n, err := strconv.ParseUint(m[2], 0, 32)
		if err != nil {
			t.Fatal(err)
		}
		c[m[1]] = n
	}
	for name, n := range map[string]uint64{
		"MAX_JAILS": maxJails, "KINDS": kinds, "DATA_BYTES": maxRecord - recordSize, "NO_RULE": noRule,
		"REC_ALLOW": recAllow, "REC_CUT": recCut, "REC_UNREACHABLE": recUnreachable, "REC_RACED": recRaced,
		"REC_PERMITTED": recPermitted, "REC_KILLED": recKilled, "REC_SCRIPT": recScript,
		"REC_NO_STORAGE": recNoStorage, "REC_PARTIAL": recPartial, "REC_ABSENT": recAbsent, "REC_LINKED": recLinked,
		"JAIL_ENFORCE": flagEnforce, "JAIL_STRICT": flagStrict, "JAIL_KILL_EXEC": flagKillExec,
		"JAIL_AUDIT_ALL": flagAuditAll, "JAIL_AUDIT_WRITE": flagAuditWrite, "JAIL_AUDIT_OPEN": flagOpens,
		"JAIL_LARGE": flagLarge, "JAIL_SETUP": flagSetup, "JAIL_READS": flagReads,
	} {
		if got, ok := c[name]; !ok || got != n {
			t.Errorf("%s is %d in C (there: %v), %d in Go", name, got, ok, n)
		}
	}
	for _, k := range []event.Kind{
		event.Exec, event.Fork, event.Exit, event.Open, event.Create, event.Mkdir, event.Mknod, event.Symlink,
		event.Link, event.Rename, event.Unlink, event.Rmdir, event.Truncate, event.Chmod, event.Chown, event.Setattr,
		event.Watch, event.Receive, event.Socket, event.Connect, event.Send, event.Bind, event.UnixConnect,
		event.Resolve, event.Syscall, event.Ptrace, event.Signal, event.Mount, event.BPF, event.Limit, event.Escape,
	} {
		name := "KIND_" + strings.ToUpper(strings.ReplaceAll(fmt.Sprint(k), "-", "_"))
		if name == "KIND_UNIXCONNECT" {
			name = "KIND_UNIX_CONNECT"
		}
		if got, ok := c[name]; !ok || got != uint64(k) {
			t.Errorf("%s is %d in C (there: %v), event.Kind %d", name, got, ok, k)
		}
	}
	if c["KINDS"] <= uint64(event.Policy) {
		t.Errorf("KINDS is %d, but there are kinds up to %d", c["KINDS"], event.Policy)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(make([]byte, recordSize))
	f.Add(append(make([]byte, recordSize), "path"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		d := decoder{procs: map[uint32]process{}, ruleText: func(uint16) string { return "r" }}
		d.event(&r)
	})
}
