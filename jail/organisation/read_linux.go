package organisation

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/minisign"
)

// read reads the directory and the keys beside it. Nothing there is (nil, nil).
func (s *Store) read() (*raw, error) {
	parent, err := os.OpenFile(filepath.Dir(s.dir), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := s.owned(parent); err != nil { // else the directory could be moved away
		return nil, err
	}
	dir, err := s.open(parent, filepath.Base(s.dir), unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", s.dir, err)
	}
	slices.Sort(names)
	r := &raw{signatures: map[string][]byte{}}
	for _, n := range names {
		switch signed, is := strings.CutSuffix(n, suffix); {
		case is && filepath.Ext(signed) == ".toml":
			if r.signatures[signed], err = s.readFile(dir, n, minisign.MaxSize); err != nil {
				return nil, err
			}
		case filepath.Ext(n) == ".toml":
			data, err := s.readFile(dir, n, policy.MaxSize)
			if err != nil {
				return nil, err
			}
			r.files = append(r.files, file{n, data})
		}
	}
	r.keys, err = s.readFile(parent, keysName, minisign.MaxSize)
	r.keyed = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return r, err
}

// open opens a name in a directory, which must not be a link, and checks whose it is.
func (s *Store) open(dir *os.File, name string, flags int) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := s.owned(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (s *Store) readFile(dir *os.File, name string, limit int64) ([]byte, error) {
	f, err := s.open(dir, name, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: larger than %d KiB", f.Name(), limit>>10)
	}
	return data, nil
}

// owned refuses what anybody but root and the store's owner could have written.
func (s *Store) owned(f *os.File) error { return ownedBy(f, s.owner) }

// rootOwned refuses what anybody but root could have written.
func rootOwned(f *os.File) error { return ownedBy(f, 0) }

func ownedBy(f *os.File, owner int) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return fmt.Errorf("%s is neither file nor directory", f.Name())
	}
	if st.Uid != 0 && int(st.Uid) != owner || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s can be written by others than root", f.Name())
	}
	return nil
}
