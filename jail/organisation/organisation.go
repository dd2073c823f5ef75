package organisation

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/agentos/agentos/policy"
)

// Error is why the organisation's rules cannot be used, so that nothing may be decided.
type Error struct {
	Err  error
	Hint string // what to do about it
}

// Error is the reason in a sentence.
func (e *Error) Error() string { return "the organisation policy cannot be used: " + e.Err.Error() }

// Unwrap is the reason alone.
func (e *Error) Unwrap() error { return e.Err }

// File is one policy file of the organisation.
type File struct {
	Path   string
	Doc    *policy.Document
	Signer string // the number of the key that signed it, "" if nobody did
	Said   string // the trusted comment of the signature
}

// Rules is what the organisation's files said at one moment. The nil Rules are those of
// an organisation that has none.
type Rules struct {
	Files []File // sorted by name

	sums map[string][sha256.Size]byte // of the files' texts, by path
	dir  string
}

// raw is everything that was read, before anything of it is believed.
type raw struct {
	files      []file
	signatures map[string][]byte // by the name of the file they are for
	keys       []byte            // of trusted_keys
	keyed      bool              // it is there
}

type file struct {
	name string
	data []byte
}

// suffix is that of the signature of a file.
const suffix = ".minisig"

// Store reads the rules as they are at each moment. Its methods may be called by many
// goroutines.
type Store struct {
	dir   string
	owner int

	mu   sync.Mutex
	sum  [sha256.Size]byte // of all that last is made of
	last *Rules            // checked, for as long as nothing changes
}

// New is the store of the directory dir, which need not exist. Its files must be root's;
// owner is a user whose they may also be: 0 for rules that are in force, the caller for
// those that are tried before they are.
func New(dir string, owner int) *Store { return &Store{dir: filepath.Clean(dir), owner: owner} }

// Read reads and checks all files; what has expired is for [Rules.Layers] to say. The
// error is an [*Error].
func (s *Store) Read() (*Rules, error) {
	r, err := s.read()
	if err != nil {
		return nil, s.refused(err)
	}
	if r == nil {
		return nil, nil
	}
	sum := r.sum()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.sum == sum {
		return s.last, nil
	}
	out, err := r.check(s.dir)
	if err != nil {
		return nil, s.refused(err)
	}
	s.sum, s.last = sum, out
	return out, nil
}

func (s *Store) refused(err error) error {
	return &Error{Err: err, Hint: "ask whoever administers " + s.dir}
}

// sum tells two readings apart.
func (r *raw) sum() (out [sha256.Size]byte) {
	h := sha256.New()
	part := func(data []byte) {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(data))) // a hash takes all
		h.Write(data)
	}
	for _, f := range r.files {
		part([]byte(f.name))
		part(f.data)
	}
	part(nil)
	for _, name := range r.signed() {
		part([]byte(name))
		part(r.signatures[name])
	}
	part(nil)
	if r.keyed {
		part(r.keys)
	}
	copy(out[:], h.Sum(nil))
	return out
}

// check parses what was read and believes it, or says why not.
func (r *raw) check(dir string) (*Rules, error) {
	out := &Rules{dir: dir, sums: map[string][sha256.Size]byte{}}
	keys, required, err := parseKeys(filepath.Join(filepath.Dir(dir), keysName), r.keys)
	if err != nil {
		return nil, err
	}
	why := filepath.Join(filepath.Dir(dir), keysName)
	for _, f := range r.files {
		path := filepath.Join(dir, f.name)
		doc, err := policy.Parse(path, f.data)
		if err != nil {
			return nil, err
		}
		if doc.Org.Signed != "" && !required {
			required, why = true, fmt.Sprintf("%s:%d", path, doc.At["org.signed"].Line)
		}
		out.Files = append(out.Files, File{Path: path, Doc: doc})
		out.sums[path] = sha256.Sum256(f.data)
	}
	return out, r.verify(out, keys, required, why)
}

// Layers are the policy layers of the files at that moment, without those whose paths are
// in lifted and that can be done without (see [Rules.MayBreak]). The error is an [*Error].
func (r *Rules) Layers(now time.Time, lifted []string) ([]policy.Layer, error) {
	if r == nil {
		return nil, nil
	}
	var out []policy.Layer
	for _, f := range r.Files {
		if r.lifts(f, lifted) {
			continue
		}
		if end, ok := f.Doc.Org.Deadline(); ok && !now.Before(end) {
			return nil, &Error{
				Err:  fmt.Errorf("%s:%d: it has expired (%s)", f.Path, f.Doc.At["org.expires"].Line, f.Doc.Org.Expires),
				Hint: "ask whoever administers " + r.dir + " to renew it",
			}
		}
		out = append(out, policy.Layer{Kind: policy.Org, Doc: f.Doc})
	}
	return out, nil
}

// Lifted are those of paths that the rules can be done without at this moment.
func (r *Rules) Lifted(paths []string) (out []string) {
	if r == nil {
		return nil
	}
	for _, f := range r.Files {
		if r.lifts(f, paths) {
			out = append(out, f.Path)
		}
	}
	return out
}

func (r *Rules) lifts(f File, lifted []string) bool {
	return f.Doc.Org.BreakGlass.Allowed() && slices.Contains(lifted, f.Path)
}

// Sum tells apart what [Rules.Layers] answers, except for expiry.
func (r *Rules) Sum(lifted []string) []byte {
	if r == nil {
		return nil
	}
	h := sha256.New()
	for _, f := range r.Files {
		if !r.lifts(f, lifted) {
			sum := r.sums[f.Path]
			fmt.Fprintf(h, "%q %x\n", f.Path, sum)
		}
	}
	return h.Sum(nil)
}

// Unmet refuses a policy that demands what no part of this program does, so that no demand
// of an organisation is taken for kept that is not: the sentence names its line. backend is
// the way in which the agent would be run.
func Unmet(res *policy.Resolved, backend string) error {
	refuse := func(hint, format string, a ...any) error { return &Error{Err: fmt.Errorf(format, a...), Hint: hint} }
	for _, x := range res.Org.Rules {
		switch {
		case x.Kind == policy.NoBackend && x.Glob == backend:
			return refuse("no other backend is there", "%s: it forbids the backend %s", x.Pos, backend)
		case x.Kind == policy.AuditTo:
			return refuse("take it out of audit_to, or install a version that sends records", "%s: it demands that records go to %s, and this version sends them nowhere", x.Pos, x.Glob)
		}
	}
	if res.Org.RemoveAfter != 0 {
		return refuse("take remove_after out", "%s: it demands that records are removed after %s, and this version removes none", res.Where["org.remove_after"], res.Org.RemoveAfter)
	}
	return nil
}

// errNobody says that no file can be done without.
var errNobody = errors.New("no file of the organisation says break_glass: there is nothing that may be done without")
