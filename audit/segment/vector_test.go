package segment

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/agentos/agentos/audit/event"
)

var update = flag.Bool("update", false, "write the test vectors anew")

func vectorFile(name string) string { return filepath.Join("testdata", name) }

// TestVector reads the committed log: a reader of today must read it for ever.
func TestVector(t *testing.T) {
	if *update {
		writeVector(t)
	}
	text, err := os.ReadFile(vectorFile("audit.pub"))
	if err != nil {
		t.Fatal(err)
	}
	pub, err := ParsePublic(string(text))
	if err != nil {
		t.Fatal(err)
	}
	segments := vector(t)
	rep, err := verify(readers(segments), pub, nil)
	if err != nil || !rep.Complete() {
		t.Fatalf("verify: %v, %+v", err, rep)
	}
	got, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "report.json", append(got, '\n'))
	recs, problems := all(t, segments)
	if len(problems) > 0 {
		t.Error(problems)
	}
	var lines []byte
	for i := range recs {
		lines = append(recs[i].AppendJSON(lines), '\n')
	}
	same(t, "records.jsonl", lines)
}

func vector(t *testing.T) (segments [][]byte) {
	for n := uint32(1); n <= 2; n++ {
		data, err := os.ReadFile(vectorFile(fmt.Sprintf("%06d.seg", n)))
		if err != nil {
			t.Fatal(err)
		}
		segments = append(segments, data)
	}
	return segments
}

func same(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(vectorFile(name), got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(vectorFile(name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs:\n%s", name, got)
	}
}

// writeVector makes the vectors with the key whose seed is 32 times 0x01.
func writeVector(t *testing.T) {
	segments, heads := build(t, testKey(1), "vector", 1, 3, -5, 2)
	for i, s := range segments {
		if err := os.WriteFile(vectorFile(fmt.Sprintf("%06d.seg", i+1)), s, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(vectorFile("audit.pub"), []byte(FormatPublic(testKey(1).Public())), 0o644); err != nil {
		t.Fatal(err)
	}
	data, err := json.MarshalIndent(heads, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(vectorFile("heads.json"), append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSpec reads the vectors with code written from docs/audit-log.md alone,
// so that the document is enough for a verifier of another kind. It uses
// nothing of this package.
func TestSpec(t *testing.T) {
	seed := bytes.Repeat([]byte{1}, 32)
	pub := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	id := sha256.Sum256(pub)
	chain := make([]byte, 32)
	var records, number uint64
	var state byte
	var names []string
	for n, data := range vector(t) {
		var header struct {
			Session string `json:"session"`
			Segment uint32 `json:"segment"`
		}
		for first := true; len(data) > 0; first = false {
			size := binary.LittleEndian.Uint32(data[4:])
			body, sum := data[:40+size], data[40+size:][:32]
			if want := sha256.Sum256(body); !bytes.Equal(want[:], sum) || !bytes.Equal(body[8:40], chain) || string(body[:3]) != "\xa6AL" {
				t.Fatalf("segment %d: frame does not check", n+1)
			}
			p := body[40:]
			switch body[3] {
			case 'H':
				if err := json.Unmarshal(p, &header); err != nil || !first || header.Segment != uint32(n+1) {
					t.Fatalf("header: %v", err)
				}
			case 'B':
				if binary.LittleEndian.Uint64(p) != records+1 {
					t.Fatal("sequence")
				}
				records += uint64(binary.LittleEndian.Uint32(p[8:]))
				names = append(names, specNames(t, p)...)
			case 'S':
				message := append([]byte("agentos-audit-head-1\x00"), byte(len(header.Session)))
				message = append(message, header.Session...)
				message = binary.LittleEndian.AppendUint32(message, header.Segment)
				message = append(message, p[:41]...)
				message = append(message, chain...)
				number++
				if !ed25519.Verify(pub, message, p[41:]) || !bytes.Equal(p[33:41], id[:8]) ||
					binary.LittleEndian.Uint64(p) != number || binary.LittleEndian.Uint64(p[8:]) != records {
					t.Fatalf("head %d does not check", number)
				}
				state = p[32]
			}
			chain = sum
			data = data[40+size+32:]
		}
	}
	if records != 11 || state != 2 {
		t.Errorf("%d records, state %d", records, state)
	}
	if len(names) != 11 {
		t.Fatalf("names %q", names)
	}
	for i, name := range names {
		e := testEvent(i)
		if want := fmt.Sprintf("%d %s", e.Kind, e.Path); name != want {
			t.Errorf("record %d: %q, want %q", i+1, name, want)
		}
	}
}

// specNames decodes kind and path of the records of a block payload.
func specNames(t *testing.T, p []byte) (out []string) {
	raw := p[33:]
	if p[32] == 1 {
		z, err := zstd.NewReader(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		if raw, err = z.DecodeAll(raw, nil); err != nil {
			t.Fatal(err)
		}
	}
	if uint32(len(raw)) != binary.LittleEndian.Uint32(p[28:]) {
		t.Fatal("length of the records")
	}
	for len(raw) > 0 {
		size, n := binary.Uvarint(raw)
		rec := raw[n : n+int(size)]
		raw = raw[n+int(size):]
		var kind uint64
		var path string
		for len(rec) > 0 {
			key, n := binary.Uvarint(rec)
			v, m := binary.Uvarint(rec[n:])
			rec = rec[n+m:]
			if key == 1<<1 {
				kind = v
			}
			if key&1 == 1 {
				if key>>1 == 15 {
					path = string(rec[:v])
				}
				rec = rec[v:]
			}
		}
		out = append(out, fmt.Sprintf("%d %s", kind, path))
	}
	return out
}

// TestTagNumbers pins what the document says of the numbers in logs.
func TestTagNumbers(t *testing.T) {
	if event.Receipt != 1 || event.Exec != 5 || event.Open != 8 || event.Socket != 23 || event.Syscall != 29 || event.Loss != 36 || event.Gap != 37 {
		t.Error("a kind was renumbered")
	}
}
