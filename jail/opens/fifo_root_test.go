//go:build root && linux

package opens

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What Fifos has covered is not missed; what came later, or may be where the agent cannot
// list, is.
func TestMissed(t *testing.T) {
	const uid, gid = 60219, 60219
	top, err := os.MkdirTemp("/srv", "agentos-fifo.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	if err := errors.Join(os.Chmod(top, 0o755), os.Mkdir(filepath.Join(top, "sub"), 0o755)); err != nil {
		t.Fatal(err)
	}
	allows := func(path string) bool { return filepath.Ext(path) != ".pem" }
	missed := func() error { return Missed([]string{top}, time.Now().Add(time.Minute), uid, gid, allows) }
	make := func(name string) string {
		t.Helper()
		name = filepath.Join(top, name)
		if err := unix.Mkfifo(name, 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	make("allowed")
	if err := missed(); err != nil {
		t.Errorf("a FIFO that may be read: %v", err)
	}
	denied := make("sub/denied.pem")
	if err := missed(); !errors.Is(err, ErrMissed) {
		t.Errorf("a FIFO that may not be read: %v", err)
	}
	if err := unix.Mount("/dev/null", denied, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(denied, unix.MNT_DETACH) })
	if err := missed(); err != nil {
		t.Errorf("a FIFO that is covered: %v", err)
	}
	if err := os.Chmod(filepath.Join(top, "sub"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := missed(); !errors.Is(err, unix.EACCES) {
		t.Errorf("a directory that the agent cannot list: %v", err)
	}
}
