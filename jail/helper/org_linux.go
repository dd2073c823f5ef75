package helper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// orgLayers reads the organisation's policy files. No directory means no
// organisation layer; anything else that goes wrong refuses every start, because a
// rule that cannot be read cannot be kept.
func (s *Server) orgLayers() ([]policy.Layer, error) {
	refuse := func(err error) error {
		return &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("the organisation policy cannot be used: %v", err), Hint: "ask whoever administers " + s.opt.Org}
	}
	dir, err := os.OpenFile(s.opt.Org, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, refuse(err)
	}
	defer dir.Close()
	if err := rootOwned(dir); err != nil {
		return nil, refuse(err)
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, refuse(err)
	}
	slices.Sort(names)
	var out []policy.Layer
	for _, n := range names {
		if filepath.Ext(n) != ".toml" {
			continue
		}
		doc, err := orgDocument(dir, filepath.Join(s.opt.Org, n), n)
		if err != nil {
			return nil, refuse(err)
		}
		out = append(out, policy.Layer{Kind: policy.Org, Doc: doc})
	}
	return out, nil
}

func orgDocument(dir *os.File, path, name string) (*policy.Document, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := rootOwned(f); err != nil {
		return nil, err
	}
	data := make([]byte, policy.MaxSize+1)
	n, err := f.ReadAt(data, 0)
	if n > policy.MaxSize {
		return nil, fmt.Errorf("%s: larger than a policy may be", path)
	}
	if n == 0 && err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return policy.Parse(path, data[:n])
}

// rootOwned refuses what anybody but root could have written.
func rootOwned(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return fmt.Errorf("%s is neither file nor directory", f.Name())
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s can be written by others than root", f.Name())
	}
	return nil
}
