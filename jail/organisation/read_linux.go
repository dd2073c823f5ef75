package organisation

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

// File is one policy file of the organisation as it was read.
type File struct {
	Path string
	Data []byte
}

// Read reads the policy files in the directory name, sorted by name. No directory means no
// organisation layer; anything else that goes wrong is an [*rpc.Error] that refuses,
// because a rule that cannot be read cannot be kept.
func Read(name string) ([]File, error) {
	refuse := func(err error) error { return refused(err, name) }
	dir, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
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
	var out []File
	for _, n := range names {
		if filepath.Ext(n) != ".toml" {
			continue
		}
		f, err := readFile(dir, filepath.Join(name, n), n)
		if err != nil {
			return nil, refuse(err)
		}
		out = append(out, f)
	}
	return out, nil
}

func refused(err error, dir string) error {
	return &rpc.Error{Code: rpc.Refused, Text: fmt.Sprintf("the organisation policy cannot be used: %v", err), Hint: "ask whoever administers " + dir}
}

// Layers parses what was read.
func Layers(files []File) ([]policy.Layer, error) {
	var out []policy.Layer
	for _, f := range files {
		doc, err := policy.Parse(f.Path, f.Data)
		if err != nil {
			return nil, refused(err, filepath.Dir(f.Path))
		}
		out = append(out, policy.Layer{Kind: policy.Org, Doc: doc})
	}
	return out, nil
}

// CheckGrant says whether the policy files in the directory name let entry, one of [net] allow, be granted to a jail with
// these variables: by is what refuses it, "" for nothing. They are read as they are now, which may be less than
// what the jail was started under.
func CheckGrant(name string, vars policy.Vars, entry string) (by string, err error) {
	files, err := Read(name)
	if err != nil {
		return "", err
	}
	layers, err := Layers(files)
	if err != nil {
		return "", err
	}
	yes := true
	profile := &policy.Document{Version: 1, Name: "grant", Files: policy.Files{AnyWorkspace: &yes}}
	r, err := policy.Resolve(append(layers, policy.Layer{Kind: policy.Profile, Doc: profile}), vars)
	if err != nil {
		return "", refused(err, name)
	}
	return r.CheckGrant(entry)
}

func readFile(dir *os.File, path, name string) (File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return File{}, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := rootOwned(f); err != nil {
		return File{}, err
	}
	data := make([]byte, policy.MaxSize+1)
	n, err := f.ReadAt(data, 0)
	if n > policy.MaxSize {
		return File{}, fmt.Errorf("%s: larger than a policy may be", path)
	}
	if n == 0 && err != nil {
		return File{}, fmt.Errorf("read %s: %w", path, err)
	}
	return File{path, data[:n]}, nil
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
