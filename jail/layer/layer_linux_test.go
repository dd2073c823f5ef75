package layer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A tree deeper than a path may be long and than a process may have descriptors,
// with what an agent can put into one.
func TestRemoveDeepTree(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: 64, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	top := filepath.Join(t.TempDir(), "top")
	if err := os.Mkdir(top, 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("stays"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1200 {
		for _, err := range []error{
			unix.Mkdirat(fd, "d", 0o700), unix.Mkdirat(fd, "1", 0o700), // a name that the remover uses, too
			unix.Mkdirat(fd, "1/x", 0o700),
			unix.Symlinkat(outside, fd, "link\n"), unix.Symlinkat("..", fd, "up"),
			unix.Mknodat(fd, "fifo", unix.S_IFIFO|0o600, 0),
		} {
			if err != nil {
				t.Fatal(i, err)
			}
		}
		next, err := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(i, err)
		}
		_ = unix.Close(fd)
		fd = next
	}
	_ = unix.Close(fd)
	if err := Remove(top); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "stays" {
		t.Errorf("a link was followed: %q, %v", data, err)
	}
	if err := Remove(top); err != nil {
		t.Errorf("what is missing is no error: %v", err)
	}
}

func TestRemoveFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/real", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir + "/link"); err == nil {
		t.Error("a link was taken for a directory")
	}
	if _, err := os.Lstat(dir + "/real"); err != nil {
		t.Error(err)
	}
}

func TestSessionLayer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s, err := Make(dir, os.Getuid(), os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		o, err := s.Overlay(0o755 | os.ModeSetuid)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(filepath.Join(o, Upper)); err != nil || st.Mode() != os.ModeDir|0o755 {
			t.Errorf("overlay %d: %v, %v", i, st.Mode(), err)
		}
	}
	if _, err := Make(dir, os.Getuid(), os.Getgid()); err == nil {
		t.Error("a layer was made twice")
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("it is still there")
	}
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "persist")
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	uid := os.Getuid()
	npm := Owner{UID: uid, Workspace: "/src/a", Identity: []byte("1"), Path: ".npm"}
	tree, release, err := s.Take(npm, os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	others := []Owner{
		{uid, "/src/b", []byte("1"), ".npm"},
		{uid, "/src/a", []byte("2"), ".npm"},
		{uid, "/src/a", []byte("1"), ".np"},
		{uid, "/src/a", []byte("1.npm"), ""},
		{uid, "/src/a1", nil, ".npm"},
	}
	for _, o := range others {
		other, release, err := s.Take(o, os.Getgid())
		if err != nil || other == tree {
			t.Errorf("%+v has the directory of another: %v", o, err)
		}
		release()
	}
	again, release2, err := s.Take(npm, os.Getgid())
	if err != nil || again != tree {
		t.Fatalf("the same owner has another directory: %v", err)
	}
	all, err := s.List(uid)
	if err != nil || len(all) != 1+len(others) {
		t.Fatalf("%v, %v", all, err)
	}
	id := filepath.Base(filepath.Dir(tree))
	release()
	release() // counts once
	if err := s.Remove(id, uid); !errors.Is(err, ErrInUse) {
		t.Errorf("removed under a session: %v", err)
	}
	release2()
	if err := s.Remove(id, uid+1); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed for another user: %v", err)
	}
	for _, bad := range []string{"", "..", "../x", id + "/", strings.Repeat("0", 24)} {
		if err := s.Remove(bad, uid); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := s.Remove(id, uid); err != nil {
		t.Fatal(err)
	}
	if l, err := s.List(uid + 1); err != nil || len(l) != 0 {
		t.Errorf("another user sees %v, %v", l, err)
	}
	// What a helper that was killed had not finished goes when the next one opens the store.
	if err := os.MkdirAll(filepath.Join(dir, ".gone-x", "tree", "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenStore(dir); err != nil {
		t.Fatal(err)
	}
	if l, _ := os.ReadDir(dir); len(l) != len(others) {
		t.Errorf("left: %v", l)
	}
	if l, err := s.List(-1); err != nil || len(l) != len(others) {
		t.Errorf("%v, %v", l, err)
	}
}

func TestStoreIsBounded(t *testing.T) {
	s, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range MaxKept + 1 {
		_, _, err = s.Take(Owner{UID: os.Getuid(), Workspace: "/w", Path: fmt.Sprint(i)}, os.Getgid())
		if (err != nil) != (i == MaxKept) {
			t.Fatalf("directory %d: %v", i, err)
		}
	}
	if !errors.Is(err, ErrMany) {
		t.Error(err)
	}
}

func TestIdentify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	var got []string
	for range 2 {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		a, err := Identify(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := Identify(int(f.Fd())); string(a) != string(b) {
			t.Error("it has two identities")
		}
		got = append(got, string(a))
		f.Close()
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if got[0] == got[1] {
		t.Error("a directory that was made anew is the old one")
	}
}
