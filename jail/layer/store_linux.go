package layer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MaxKept bounds the kept directories of one user.
const MaxKept = 256

// Errors of a [Store].
var (
	ErrInUse    = errors.New("a session uses it")
	ErrMany     = fmt.Errorf("the user keeps %d directories", MaxKept)
	ErrNotFound = errors.New("no such kept directory")
)

// Owner says whose a kept directory is and where it belongs.
type Owner struct {
	UID       int
	Workspace string // as the kernel names it
	Identity  []byte // of the workspace, see [Identify]
	Path      string // below the home, such as ".cache/pip"
}

// id is the name of the directory that holds it.
func (o Owner) id() string {
	h := sha256.New()
	part := func(data []byte) {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(data))) // a hash takes all
		h.Write(data)
	}
	part(binary.LittleEndian.AppendUint64(nil, uint64(o.UID)))
	part([]byte(o.Workspace))
	part(o.Identity)
	part([]byte(o.Path))
	return hex.EncodeToString(h.Sum(nil)[:12])
}

var idRule = regexp.MustCompile(`^[0-9a-f]{24}$`)

// Identify returns bytes that tell the file that fd refers to from every other
// one that had or will have its name: its file handle, which has the inode's
// generation, or where the file system has none, inode and birth.
func Identify(fd int) ([]byte, error) {
	h, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err == nil {
		return append(binary.LittleEndian.AppendUint32(nil, uint32(h.Type())), h.Bytes()...), nil
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return nil, fmt.Errorf("identify: %w", err)
	}
	out := binary.LittleEndian.AppendUint64(nil, st.Ino)
	return binary.LittleEndian.AppendUint64(out, uint64(st.Btime.Sec)), nil
}

// Kept is one kept directory.
type Kept struct {
	ID        string    `json:"id"`
	UID       int       `json:"uid"`
	Workspace string    `json:"workspace"`
	Path      string    `json:"path"` // below the home
	Made      time.Time `json:"made"`
	InUse     bool      `json:"-"`
}

// Store is where kept directories are. It is safe for concurrent use; a state
// directory has one.
type Store struct {
	dir string

	mu    sync.Mutex
	users map[string]int // sessions, by id
}

// OpenStore opens the store in dir, makes it if it is missing, and removes what
// an earlier process had not finished to make or to remove.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil { // files of users with set-id bits are nobody else's to run
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			if err := Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return &Store{dir: dir, users: map[string]int{}}, nil
}

// Take returns the path of the directory that o has, which is made if there is
// none, and keeps it from being removed until release is called. A new one
// belongs to o.UID and gid.
//
// Errors: [ErrMany].
func (s *Store) Take(o Owner, gid int) (tree string, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := o.id()
	tree = s.Tree(id)
	if _, err = os.Lstat(tree); errors.Is(err, os.ErrNotExist) {
		err = s.make(id, o, gid)
	}
	if err != nil {
		return "", nil, err
	}
	s.users[id]++
	var once sync.Once
	return tree, func() { once.Do(func() { s.leave(id) }) }, nil
}

func (s *Store) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[id]--; s.users[id] == 0 {
		delete(s.users, id)
	}
}

// make makes a directory whole or not at all.
func (s *Store) make(id string, o Owner, gid int) error {
	all, err := s.list()
	if err != nil {
		return err
	}
	if len(slices.DeleteFunc(all, func(k Kept) bool { return k.UID != o.UID })) >= MaxKept {
		return ErrMany
	}
	about, err := json.Marshal(Kept{ID: id, UID: o.UID, Workspace: o.Workspace, Path: o.Path, Made: time.Now().UTC()})
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, "."+id)
	if err := Remove(dir); err != nil {
		return err
	}
	for _, d := range []string{dir, filepath.Join(dir, "tree")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	if err := os.Chown(filepath.Join(dir, "tree"), o.UID, gid); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "about.json"), about, 0o600); err != nil {
		return err
	}
	return os.Rename(dir, filepath.Join(s.dir, id))
}

// List returns what is kept for uid, for all users if uid is negative, sorted by
// workspace and path.
func (s *Store) List(uid int) ([]Kept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.list()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(k Kept) bool { return uid >= 0 && k.UID != uid })
	slices.SortFunc(all, func(a, b Kept) int {
		return strings.Compare(a.Workspace+"\x00"+a.Path+"\x00"+a.ID, b.Workspace+"\x00"+b.Path+"\x00"+b.ID)
	})
	return all, nil
}

func (s *Store) list() ([]Kept, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var out []Kept
	for _, e := range entries {
		k, err := s.about(e.Name())
		if err != nil {
			continue // not one of ours
		}
		out = append(out, k)
	}
	return out, nil
}

func (s *Store) about(id string) (Kept, error) {
	if !idRule.MatchString(id) {
		return Kept{}, ErrNotFound
	}
	data, err := os.ReadFile(filepath.Join(s.dir, id, "about.json"))
	if errors.Is(err, os.ErrNotExist) {
		return Kept{}, ErrNotFound
	}
	if err != nil {
		return Kept{}, err
	}
	var k Kept
	if err := json.Unmarshal(data, &k); err != nil || k.ID != id {
		return Kept{}, fmt.Errorf("kept directory %s: about.json is not ours", id)
	}
	k.InUse = s.users[id] > 0
	return k, nil
}

// Tree is the path of the content of a kept directory that [Store.List] named.
func (s *Store) Tree(id string) string { return filepath.Join(s.dir, id, "tree") }

// OpenPath opens a directory of ours as O_PATH.
func OpenPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Remove removes the kept directory of that id, if it is uid's or uid is negative.
// Its name is free at once; emptying it may take a while.
//
// Errors: [ErrNotFound], [ErrInUse].
func (s *Store) Remove(id string, uid int) error {
	gone, err := s.retire(id, uid)
	if err != nil {
		return err
	}
	return Remove(gone)
}

func (s *Store) retire(id string, uid int) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.about(id)
	switch {
	case err != nil:
		return "", err
	case uid >= 0 && k.UID != uid:
		return "", ErrNotFound
	case k.InUse:
		return "", ErrInUse
	}
	gone := filepath.Join(s.dir, fmt.Sprintf(".gone-%s-%d", id, time.Now().UnixNano()))
	return gone, os.Rename(filepath.Join(s.dir, id), gone)
}
