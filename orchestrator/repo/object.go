package repo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // what git uses
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// MaxObject bounds the bytes of an object that is read.
const MaxObject = 32 << 20

// openRead is how files are opened that somebody else may have put there.
const openRead = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// Store is the objects of one repository.
type Store struct {
	dir   string // objects
	packs []*pack
	known bool // packs were listed
}

// Entry is what a commit has at a path.
type Entry struct {
	Mode uint32 // as in trees: 0o100644, 0o100755, 0o120000 (link), 0o160000 (submodule), 0o40000 (directory)
	ID   string // of the object, in hex
}

// Open returns the objects of the repository whose common git directory is dir.
func Open(dir string) *Store { return &Store{dir: filepath.Join(dir, "objects")} }

// Close closes the packs that were opened.
func (s *Store) Close() error {
	for _, p := range s.packs {
		p.close()
	}
	s.packs, s.known = nil, false
	return nil
}

// Find returns what a commit has at name, a clean path with slashes that is
// relative to the top of the work tree. [ErrNone] says that the commit has
// nothing there; any other error that the repository does not tell.
func (s *Store) Find(commit, name string) (Entry, error) {
	data, err := s.object("commit", commit)
	if err != nil {
		return Entry{}, err
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	tree, ok := strings.CutPrefix(string(line), "tree ")
	if !ok {
		return Entry{}, fmt.Errorf("commit %s: no tree", commit)
	}
	at := Entry{Mode: 0o40000, ID: tree}
	for part := range strings.SplitSeq(name, "/") {
		if at.Mode != 0o40000 {
			return Entry{}, ErrNone
		}
		if at, err = s.child(at.ID, part); err != nil {
			return Entry{}, err
		}
	}
	return at, nil
}

// child finds a name in a tree.
func (s *Store) child(tree, name string) (Entry, error) {
	data, err := s.object("tree", tree)
	if err != nil {
		return Entry{}, err
	}
	size := len(tree) / 2
	for len(data) > 0 {
		head, rest, ok := bytes.Cut(data, []byte{0})
		mode, is, space := strings.Cut(string(head), " ")
		if !ok || !space || len(rest) < size {
			return Entry{}, fmt.Errorf("tree %s: broken", tree)
		}
		if is == name {
			m, err := strconv.ParseUint(mode, 8, 32)
			if err != nil {
				return Entry{}, fmt.Errorf("tree %s: mode %q", tree, mode)
			}
			return Entry{Mode: uint32(m), ID: hex.EncodeToString(rest[:size])}, nil
		}
		data = rest[size:]
	}
	return Entry{}, ErrNone
}

// Blob returns the content of a file.
func (s *Store) Blob(id string) ([]byte, error) { return s.object("blob", id) }

// BlobID is the id that content has as a file, in the manner of the id like.
func BlobID(like string, content []byte) string {
	return hex.EncodeToString(sum(len(like)/2, "blob", content))
}

// sum hashes an object as git does: kind, length, content.
func sum(size int, kind string, data []byte) []byte {
	var h hash.Hash = sha1.New() //nolint:gosec // as above
	if size == sha256.Size {
		h = sha256.New()
	}
	_, _ = fmt.Fprintf(h, "%s %d\x00", kind, len(data))
	_, _ = h.Write(data)
	return h.Sum(nil)
}

// object reads an object of a kind, and believes it when it hashes to its id.
func (s *Store) object(kind, id string) ([]byte, error) {
	want, err := parseID(id)
	if err != nil {
		return nil, err
	}
	is, data, err := s.loose(id)
	if err != nil {
		is, data, err = s.packed(want, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", id, err)
	}
	if is != kind || !bytes.Equal(sum(len(want), kind, data), want) {
		return nil, fmt.Errorf("object %s is not what its name says", id)
	}
	return data, nil
}

// loose reads an object from a file of its own.
func (s *Store) loose(id string) (kind string, data []byte, err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, id[:2], id[2:]), openRead, 0)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", nil, fmt.Errorf("no regular file")
	}
	z, err := zlib.NewReader(bufio.NewReader(f))
	if err != nil {
		return "", nil, err
	}
	r := bufio.NewReaderSize(z, 4096)
	head, err := r.ReadSlice(0)
	if err != nil || len(head) > 32 {
		return "", nil, fmt.Errorf("bad header")
	}
	kind, length, _ := strings.Cut(strings.TrimSuffix(string(head), "\x00"), " ")
	n, err := strconv.ParseUint(length, 10, 63)
	if err != nil || n > MaxObject {
		return "", nil, fmt.Errorf("length %q, at most %d", length, MaxObject)
	}
	data, err = exactly(r, int(n))
	return kind, data, err
}

// exactly reads n bytes; memory grows with what is really there.
func exactly(r io.Reader, n int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(data) != n {
		err = io.ErrUnexpectedEOF
	}
	return data, err
}
