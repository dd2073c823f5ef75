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

// orgFile is one policy file of the organisation as it was read.
type orgFile struct {
	path string
	data []byte
}

// readOrg reads the organisation's policy files, sorted by name. No directory
// means no organisation layer; anything else that goes wrong refuses every start,
// because a rule that cannot be read cannot be kept.
func (s *Server) readOrg() ([]orgFile, error) {
	refuse := func(err error) error { return refuseOrg(err, s.opt.Org) }
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
	var out []orgFile
	for _, n := range names {
		if filepath.Ext(n) != ".toml" {
			continue
		}
		f, err := readOrgFile(dir, filepath.Join(s.opt.Org, n), n)
		if err != nil {
			return nil, refuse(err)
		}
		out = append(out, f)
	}
	return out, nil
}

func refuseOrg(err error, dir string) error {
	return &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("the organisation policy cannot be used: %v", err), Hint: "ask whoever administers " + dir}
}

// orgLayers parses what was read.
func orgLayers(files []orgFile) ([]policy.Layer, error) {
	var out []policy.Layer
	for _, f := range files {
		doc, err := policy.Parse(f.path, f.data)
		if err != nil {
			return nil, refuseOrg(err, filepath.Dir(f.path))
		}
		out = append(out, policy.Layer{Kind: policy.Org, Doc: doc})
	}
	return out, nil
}

func readOrgFile(dir *os.File, path, name string) (orgFile, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return orgFile{}, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := rootOwned(f); err != nil {
		return orgFile{}, err
	}
	data := make([]byte, policy.MaxSize+1)
	n, err := f.ReadAt(data, 0)
	if n > policy.MaxSize {
		return orgFile{}, fmt.Errorf("%s: larger than a policy may be", path)
	}
	if n == 0 && err != nil {
		return orgFile{}, fmt.Errorf("read %s: %w", path, err)
	}
	return orgFile{path, data[:n]}, nil
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
