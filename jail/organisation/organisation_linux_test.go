package organisation

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/policy"
)

// pair signs as minisign does; that what it makes is minisign's format is policy/minisign's to test, with minisign's own files.
type pair struct {
	id   string
	line string // of trusted_keys
	key  ed25519.PrivateKey
}

func newPair(t testing.TB, id string) pair {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair{id, base64.StdEncoding.EncodeToString([]byte("Ed" + id + string(public))), key}
}

func (p pair) sign(text string) string {
	sum := blake2b.Sum512([]byte(text))
	sig := ed25519.Sign(p.key, sum[:])
	global := ed25519.Sign(p.key, append(sig, "ok"...))
	b64 := base64.StdEncoding.EncodeToString
	return "untrusted comment: x\n" + b64([]byte("ED"+p.id+string(sig))) + "\ntrusted comment: ok\n" + b64(global) + "\n"
}

// scene is a directory that is like /etc/agentos.
type scene struct {
	*testing.T
	dir   string
	store *Store
}

func play(t *testing.T) scene {
	t.Helper()
	dir := t.TempDir()
	s := scene{t, dir, New(filepath.Join(dir, "policy.d"), os.Geteuid())}
	if err := os.Mkdir(s.store.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s scene) put(name, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
}

func (s scene) remove(name string) {
	s.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
		s.Fatal(err)
	}
}

func (s scene) holds() *Rules {
	s.Helper()
	r, err := s.store.Read()
	if err != nil {
		s.Fatal(err)
	}
	return r
}

func (s scene) refuses(want string) {
	s.Helper()
	_, err := s.store.Read()
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || e.Hint == "" {
		s.Errorf("%v, want a refusal with %q", err, want)
	}
}

const house = "version = 1\nname = \"house\"\n[files]\ndeny = [\"**/x\"]\n"

func TestSignatures(t *testing.T) {
	s := play(t)
	ours, theirs := newPair(t, "ourskey1"), newPair(t, "theirs-1")
	s.put("policy.d/a.toml", house)
	if r := s.holds(); len(r.Files) != 1 || r.Files[0].Signer != "" {
		t.Errorf("%+v", r)
	}
	s.put("policy.d/a.toml.minisig", ours.sign(house))
	s.refuses("is made with a key that is not trusted here") // no keys at all
	s.put("trusted_keys", "# ours\nuntrusted comment: minisign public key\n"+ours.line+"\n\n")
	if r := s.holds(); r.Files[0].Signer != "3179656B7372756F" || r.Files[0].Said != "ok" {
		t.Errorf("%+v", r.Files[0])
	}
	s.put("policy.d/a.toml", house+"# and one byte more")
	s.refuses("a.toml.minisig: the signature with key 3179656B7372756F is not a signature of this text")
	s.put("policy.d/a.toml", house)
	s.put("policy.d/a.toml.minisig", theirs.sign(house))
	s.refuses("not trusted here")
	s.put("policy.d/a.toml.minisig", "")
	s.refuses("is not in minisign's format")
	s.put("policy.d/a.toml.minisig", ours.sign(house))
	s.holds()

	// What must be signed: all of it, as soon as one file or the list of keys says so.
	s.put("policy.d/b.toml", strings.Replace(house, "house", "second", 1))
	s.holds()
	s.put("trusted_keys", ours.line+"\n"+requireLine+"\n")
	s.refuses("b.toml is not signed, and " + filepath.Join(s.dir, "trusted_keys") + " requires it")
	s.put("trusted_keys", ours.line+"\n")
	strict := "version = 1\nname = \"strict\"\n[org]\nsigned = \"require\"\n"
	s.put("policy.d/c.toml", strict)
	s.put("policy.d/c.toml.minisig", ours.sign(strict))
	s.refuses("b.toml is not signed, and " + filepath.Join(s.dir, "policy.d/c.toml") + ":4 requires it")
	s.put("policy.d/b.toml.minisig", ours.sign(strings.Replace(house, "house", "second", 1)))
	s.holds()
	s.remove("policy.d/b.toml")
	s.refuses("b.toml.minisig: the file that it signs is not there")
	s.remove("policy.d/b.toml.minisig")
	s.holds()

	for _, text := range []string{"rubbish\n", "signed = \"maybe\"\n", ours.line + "x\n", "\xff\n"} {
		s.put("trusted_keys", text)
		s.refuses("trusted_keys")
	}
	s.remove("trusted_keys")
	s.refuses("not trusted here")
}

// Whose the files are, and what they are, is looked at for each of them: the keys, the signatures and the directory above, too.
func TestWhoseFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wanted root to give files away, got none")
	}
	ours := newPair(t, "ourskey1")
	for what, spoil := range map[string]func(s scene) string{
		"keys of a user":         func(s scene) string { return s.chown("trusted_keys") },
		"signature of a user":    func(s scene) string { return s.chown("policy.d/a.toml.minisig") },
		"policy of a user":       func(s scene) string { return s.chown("policy.d/a.toml") },
		"directory of a user":    func(s scene) string { return s.chown("policy.d") },
		"the one above":          func(s scene) string { return s.chown(".") },
		"keys of a group":        func(s scene) string { return s.chmod("trusted_keys", 0o664) },
		"signature of all":       func(s scene) string { return s.chmod("policy.d/a.toml.minisig", 0o646) },
		"the one above, of all":  func(s scene) string { return s.chmod(".", 0o777) },
		"keys are a link":        func(s scene) string { return s.link("trusted_keys") },
		"policy is a link":       func(s scene) string { return s.link("policy.d/a.toml") },
		"signature is a link":    func(s scene) string { return s.link("policy.d/a.toml.minisig") },
		"the directory is one":   func(s scene) string { return s.link("policy.d") },
		"keys are a directory":   func(s scene) string { return s.other("trusted_keys", unix.S_IFDIR) },
		"keys are a FIFO":        func(s scene) string { return s.other("trusted_keys", unix.S_IFIFO) },
		"signature is a FIFO":    func(s scene) string { return s.other("policy.d/a.toml.minisig", unix.S_IFIFO) },
		"directory is a file":    func(s scene) string { return s.other("policy.d/a.toml", unix.S_IFDIR) },
		"keys are large":         func(s scene) string { s.put("trusted_keys", strings.Repeat("#", 1<<20)); return "larger than" },
		"policy is large":        func(s scene) string { s.put("policy.d/a.toml", strings.Repeat("#", 1<<20)); return "larger than" },
		"policy is not a policy": func(s scene) string { s.put("policy.d/a.toml", "version = 2\n"); return "a.toml:1:11" },
	} {
		t.Run(what, func(t *testing.T) {
			s := play(t)
			s.store = New(s.store.dir, 0)
			s.put("policy.d/a.toml", house)
			s.put("policy.d/a.toml.minisig", ours.sign(house))
			s.put("trusted_keys", ours.line+"\n")
			s.holds()
			s.refuses(spoil(s))
		})
	}
}

func (s scene) chown(name string) string {
	if err := os.Lchown(filepath.Join(s.dir, name), 60218, 60218); err != nil {
		s.Fatal(err)
	}
	return "can be written by others than root"
}

func (s scene) chmod(name string, mode os.FileMode) string {
	if err := os.Chmod(filepath.Join(s.dir, name), mode); err != nil {
		s.Fatal(err)
	}
	return "can be written by others than root"
}

func (s scene) link(name string) string {
	p := filepath.Join(s.dir, name)
	if err := errors.Join(os.Rename(p, p+".real"), os.Symlink(filepath.Base(p)+".real", p)); err != nil {
		s.Fatal(err)
	}
	return ""
}

func (s scene) other(name string, kind uint32) string {
	p := filepath.Join(s.dir, name)
	if err := os.Remove(p); err != nil {
		s.Fatal(err)
	}
	if kind == unix.S_IFDIR {
		if err := os.Mkdir(p, 0o755); err != nil {
			s.Fatal(err)
		}
	} else if err := unix.Mkfifo(p, 0o644); err != nil {
		s.Fatal(err)
	}
	return ""
}

func TestNoOrganisation(t *testing.T) {
	s := play(t)
	s.remove("policy.d")
	r := s.holds()
	layers, err := r.Layers(time.Now(), nil)
	if r != nil || layers != nil || err != nil || r.Sum(nil) != nil || r.Lifted([]string{"x"}) != nil {
		t.Errorf("%v %v %v", r, layers, err)
	}
	if _, _, err := r.MayBreak(Breaker{}); err == nil {
		t.Error("nothing can be done without")
	}
	if r, err := New("/nonexistent/agentos/policy.d", 0).Read(); r != nil || err != nil {
		t.Errorf("%v %v", r, err)
	}
}

func TestExpiry(t *testing.T) {
	s := play(t)
	s.put("policy.d/a.toml", "version = 1\nname = \"a\"\n[org]\nexpires = \"2031-03-31\"\n")
	r := s.holds()
	last := time.Date(2031, 3, 31, 23, 59, 59, 0, time.UTC)
	if layers, err := r.Layers(last, nil); err != nil || len(layers) != 1 || layers[0].Kind != policy.Org {
		t.Errorf("on its last day: %v", err)
	}
	if _, err := r.Layers(last.Add(time.Second), nil); err == nil || !strings.Contains(err.Error(), "a.toml:4: it has expired (2031-03-31)") {
		t.Errorf("after it: %v", err)
	}
}

func TestBreakGlass(t *testing.T) {
	s := play(t)
	s.put("policy.d/a.toml", "version = 1\nname = \"a\"\n[org]\nsharing = \"deny\"\nexpires = \"2001-01-01\"\n[org.break_glass]\nlongest = \"2h\"\ngroups = [\"oncall\", \"nobody-has-it\"]\n")
	s.put("policy.d/b.toml", "version = 1\nname = \"b\"\n[org.break_glass]\nlongest = \"1h\"\n")
	s.put("policy.d/c.toml", house)
	r := s.holds()
	a, b, c := filepath.Join(s.store.dir, "a.toml"), filepath.Join(s.store.dir, "b.toml"), filepath.Join(s.store.dir, "c.toml")
	names := []byte("root:x:0:\noncall:x:700:eve\nbroken:x:seven:\n")
	for _, tt := range []struct {
		who   Breaker
		paths string
		most  time.Duration
	}{
		{Breaker{UID: 0}, a + b, time.Hour},
		{Breaker{UID: 5, Groups: []int{5, 700}, Names: names}, a, 2 * time.Hour},
		{Breaker{UID: 5, Groups: []int{5}, Names: names}, "", 0}, // a member by the file is not one by the kernel
		{Breaker{UID: 5, Groups: []int{0, 7}, Names: names}, "", 0},
		{Breaker{UID: 5, Groups: []int{700}}, "", 0},
	} {
		paths, most, err := r.MayBreak(tt.who)
		if strings.Join(paths, "") != tt.paths || most != tt.most || (err == nil) != (tt.paths != "") {
			t.Errorf("%+v: %v %v %v", tt.who, paths, most, err)
		}
	}
	if _, err := r.Layers(time.Now(), nil); err == nil {
		t.Error("a has expired")
	}
	layers, err := r.Layers(time.Now(), []string{a, c}) // c cannot be done without, whatever is asked
	if err != nil || len(layers) != 2 || layers[0].Doc.Name != "b" || layers[1].Doc.Name != "house" {
		t.Errorf("%v %v", layers, err)
	}
	if string(r.Sum(nil)) == string(r.Sum([]string{a})) || string(r.Sum(nil)) != string(r.Sum([]string{c})) {
		t.Error("sums do not tell apart what holds")
	}
	s.put("policy.d/a.toml", house) // it does not permit it any more
	if got := s.holds().Lifted([]string{a, b}); len(got) != 1 || got[0] != b {
		t.Errorf("lifted %v", got)
	}
}

func TestUnmet(t *testing.T) {
	for text, want := range map[string]string{
		`sharing = "deny"`:              "",
		`keep = "400d"`:                 "",
		`forbid_backends = ["docker"]`:  "",
		`forbid_backends = ["native"]`:  "o:5:20: it forbids the backend native",
		`audit_to = ["syslog"]`:         "o:5:13: it demands that records go to syslog",
		`remove_after = "30d"`:          "o:5:16: it demands that records are removed after 30d",
		`audit_to = ["file:/srv/worm"]`: "o:5:13",
	} {
		doc, err := policy.Parse("o", []byte("version = 1\nname = \"o\"\n\n[org]\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		strict, err := policy.Builtin("strict")
		if err != nil {
			t.Fatal(err)
		}
		res, err := policy.Resolve([]policy.Layer{{Kind: policy.Org, Doc: doc}, {Kind: policy.Profile, Doc: strict}}, policy.SampleVars())
		if err != nil {
			t.Fatal(err)
		}
		err = Unmet(res, "native")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzKeys(f *testing.F) {
	p := newPair(f, "ourskey1")
	f.Add([]byte(p.line))
	f.Add([]byte("# x\n" + requireLine + "\nuntrusted comment: y\r\n" + p.line))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, required, err := parseKeys("k", text)
		if err != nil && (keys != nil || required) {
			t.Error("a broken list has keys")
		}
	})
}
