package inside

import (
	"encoding/binary"
	"testing"
)

func query(labels ...string) []byte {
	q := []byte{0xab, 0xcd, 1, 0x20, 0, 1, 0, 0, 0, 0, 0, 1}
	for _, l := range labels {
		q = append(append(q, byte(len(l))), l...)
	}
	return append(q, 0, 0, 28, 0, 1, 'o', 'p', 't')
}

func TestQuestion(t *testing.T) {
	q := query("tok", "denied", "test")
	name, end, ok := question(q)
	if !ok || name != "tok.denied.test" || end != len(q)-3 {
		t.Fatalf("got %q, %d, %t", name, end, ok)
	}
	r := refusal(q[:end])
	if r[0] != 0xab || r[1] != 0xcd || r[2] != 0x81 || r[3] != 0x83 || binary.BigEndian.Uint16(r[4:]) != 1 || binary.BigEndian.Uint16(r[10:]) != 0 || len(r) != end {
		t.Errorf("answer % x", r)
	}
	for what, bad := range map[string][]byte{
		"empty": {}, "short header": q[:11], "an answer": append([]byte{0, 0, 0x80}, q[3:]...), "no question": append([]byte{0, 0, 1, 0, 0, 0}, q[6:]...),
		"cut label": q[:15], "no type": q[:end-3], "compressed": append(q[:12:12], 0xc0, 0x0c, 0, 1, 0, 1),
	} {
		if name, _, ok := question(bad); ok {
			t.Errorf("%s: taken as %q", what, name)
		}
	}
}

func FuzzQuestion(f *testing.F) {
	f.Add(query("a", "b"))
	f.Fuzz(func(t *testing.T, p []byte) {
		if _, end, ok := question(p); ok {
			if r := refusal(p[:end]); len(r) != end {
				t.Errorf("answer of %d bytes to a question of %d", len(r), end)
			}
		}
	})
}
