package minisign_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentos/agentos/policy/minisign"
)

// testdata was made by minisign 0.11 (Debian 12): minisign -G -W -p a.pub; minisign -S -m text -x prehashed.minisig;
// with -l legacy.minisig; with the key of b.pub other.minisig.
func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func key(t testing.TB, name string) minisign.Key {
	t.Helper()
	_, line, _ := strings.Cut(string(read(t, name)), "\n")
	k, err := minisign.ParseKey(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestVectors(t *testing.T) {
	text := read(t, "text")
	a, b := key(t, "a.pub"), key(t, "b.pub")
	if a.ID.String() != "7C344757A87269C2" || b.ID.String() != "4E54EAE4641FE8E" { // as their files say
		t.Errorf("keys are called %s and %s", a.ID, b.ID)
	}
	for name, want := range map[string]minisign.Key{"prehashed.minisig": a, "legacy.minisig": a, "other.minisig": b} {
		s, err := minisign.Parse(read(t, name))
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := s.Verify(text, []minisign.Key{b, a})
		if err != nil || got.ID != want.ID {
			t.Errorf("%s: key %s, %v; want %s", name, got.ID, err, want.ID)
		}
		for i := range text { // every bit of the text counts
			changed := bytes.Clone(text)
			changed[i] ^= 1 << (i % 8)
			if _, err := s.Verify(changed, []minisign.Key{a, b}); !errors.Is(err, minisign.ErrBad) {
				t.Fatalf("%s: accepted with byte %d changed: %v", name, i, err)
			}
		}
		for _, other := range [][]byte{nil, text[:len(text)-1], append(bytes.Clone(text), '\n')} {
			if _, err := s.Verify(other, []minisign.Key{a, b}); !errors.Is(err, minisign.ErrBad) {
				t.Errorf("%s: accepted for another text: %v", name, err)
			}
		}
	}
	s, err := minisign.Parse(read(t, "prehashed.minisig"))
	if err != nil || s.Comment != "for tests" {
		t.Errorf("comment %q, %v", s.Comment, err)
	}
	for name, keys := range map[string][]minisign.Key{"no key": nil, "another key": {b}, "the zero key": {{}}, "a zero key of that number": {{ID: a.ID}}} {
		if _, err := s.Verify(text, keys); !errors.Is(err, minisign.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (minisign.Signature{}).Verify(text, []minisign.Key{a, {}}); err == nil {
		t.Error("the zero signature was accepted")
	}
}

// A key that bears another's number does not pass for it, and does not keep the right one from being tried.
func TestKeysOfOneNumber(t *testing.T) {
	text := read(t, "text")
	a := key(t, "a.pub")
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := append([]byte("Ed"), a.ID[:]...)
	false1, err := minisign.ParseKey(base64.StdEncoding.EncodeToString(append(raw, public...)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := minisign.Parse(read(t, "prehashed.minisig"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(text, []minisign.Key{false1}); !errors.Is(err, minisign.ErrBad) {
		t.Errorf("a key of the same number: %v", err)
	}
	if _, err := s.Verify(text, []minisign.Key{false1, a}); err != nil {
		t.Errorf("the right key after it: %v", err)
	}
}

// Every bit of the signature's second to fourth line counts, and nothing may stand around them.
func TestChangedSignatures(t *testing.T) {
	text := read(t, "text")
	keys := []minisign.Key{key(t, "a.pub"), key(t, "b.pub")}
	accepted := func(sig []byte) bool {
		s, err := minisign.Parse(sig)
		if err != nil {
			return false
		}
		_, err = s.Verify(text, keys)
		return err == nil
	}
	for _, name := range []string{"prehashed.minisig", "legacy.minisig"} {
		sig := read(t, name)
		if !accepted(sig) || !accepted(bytes.ReplaceAll(sig, []byte("\n"), []byte("\r\n"))) {
			t.Fatalf("%s is refused", name)
		}
		for i := bytes.IndexByte(sig, '\n') + 1; i < len(sig)-1; i++ {
			for bit := range 8 {
				changed := bytes.Clone(sig)
				if changed[i] ^= 1 << bit; accepted(changed) {
					t.Errorf("%s: accepted with bit %d of byte %d changed", name, bit, i)
				}
			}
		}
		lines := strings.SplitAfter(string(sig), "\n")
		for what, text := range map[string]string{
			"nothing":               "",
			"a line less":           strings.Join(lines[:3], ""),
			"a line more":           string(sig) + "x\n",
			"an empty line":         string(sig) + "\n",
			"an empty line in it":   lines[0] + "\n" + strings.Join(lines[1:], ""),
			"no untrusted comment":  "comment\n" + strings.Join(lines[1:], ""),
			"a space in base64":     lines[0] + " " + strings.Join(lines[1:], ""),
			"another's second half": lines[0] + lines[1] + strings.Join(strings.SplitAfter(string(read(t, "other.minisig")), "\n")[2:], ""),
			"too large":             string(sig[:10]) + strings.Repeat("x", minisign.MaxSize) + string(sig[10:]),
		} {
			if accepted([]byte(text)) {
				t.Errorf("%s: accepted with %s", name, what)
			}
		}
	}
}

func TestKeysThatAreNone(t *testing.T) {
	_, line, _ := strings.Cut(strings.TrimSpace(string(read(t, "a.pub"))), "\n")
	for what, text := range map[string]string{
		"nothing": "", "a comment": "untrusted comment: x", "cut": line[:len(line)-4], "longer": line + "AAAA",
		"a space": line + " ", "a secret key's kind": "RWQ" + line[2:], "another kind": "AA" + line[2:],
	} {
		if _, err := minisign.ParseKey(text); !errors.Is(err, minisign.ErrFormat) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"prehashed.minisig", "legacy.minisig", "a.pub"} {
		f.Add(read(f, name))
	}
	a := key(f, "a.pub")
	text := read(f, "text")
	f.Fuzz(func(t *testing.T, sig []byte) {
		if _, err := minisign.ParseKey(string(sig)); err == nil && len(sig) != 56 {
			t.Error("a key of another length")
		}
		s, err := minisign.Parse(sig)
		if err != nil {
			return
		}
		if _, err := s.Verify(text, []minisign.Key{a}); err == nil && s.Comment != "for tests" && !strings.HasPrefix(s.Comment, "timestamp:") {
			t.Errorf("accepted with comment %q, which nobody signed", s.Comment)
		}
	})
}
