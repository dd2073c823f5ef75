//go:build root

package script

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestInstall: what is installed below a prefix works from there, units and all, and uninstall leaves nothing.
func TestInstall(t *testing.T) {
	bin, root, socket := stage(t)
	script := filepath.Join(bin, "..", "packaging", "install.sh")
	if _, err := os.Stat(script); err != nil {
		t.Skipf("wanted the source tree around %s, got %v", bin, err)
	}
	run := func(verb, dest, prefix string) {
		t.Helper()
		cmd := exec.Command(script, verb)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "DESTDIR=" + dest, "PREFIX=" + prefix}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", verb, err, out)
		}
	}
	files := func(dir string) (names []string) {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && (!d.IsDir() || d.Name() == "agentos") { // directories of the prefix are shared
				names = append(names, strings.TrimPrefix(p, dir))
				if st, err := d.Info(); err == nil && st.Mode().Perm()&0o022 != 0 {
					t.Errorf("%s has mode %v: others may write what root runs", p, st.Mode())
				}
			}
			return nil
		})
		return names
	}

	dest := filepath.Join(root, "dest")
	run("install", dest, "/usr")
	for _, want := range []string{"/usr/bin/agentos", "/usr/libexec/agentos/agentos-helper", "/usr/libexec/agentos/agentos-init", "/usr/libexec/agentos/agentos-netd", "/usr/lib/systemd/system/agentos-helper.socket", "/usr/share/man/man1/agentos-run.1"} {
		if !slices.Contains(files(dest), want) {
			t.Errorf("%s is not installed", want)
		}
	}
	unit, err := os.ReadFile(filepath.Join(dest, "usr/lib/systemd/system/agentos-helper.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/libexec/agentos/agentos-helper ") {
		t.Errorf("the unit does not start the installed helper: %v\n%s", err, unit)
	}
	run("uninstall", dest, "/usr")
	if left := files(dest); len(left) > 0 {
		t.Errorf("uninstall leaves %v", left)
	}

	prefix := filepath.Join(root, "prefix")
	if err := os.MkdirAll(filepath.Join(prefix, "share", "man", "man1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(prefix, "share", "man", "man1", "other.1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run("install", "", prefix)
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Logf("the units were not verified: %v", err)
	} else if out, err := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(prefix, "lib/systemd/system/agentos-helper.socket"),
		filepath.Join(prefix, "lib/systemd/system/agentos-helper.service")).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	ws := filepath.Join(root, "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(prefix, "bin", "agentos"), "run", "--", "echo", "from the prefix")
	cmd.Dir, cmd.Env = ws, []string{"PATH=/usr/bin:/bin", "HOME=/root", "AGENTOS_SOCKET=" + socket}
	if out, err := cmd.Output(); err != nil || string(out) != "from the prefix\n" {
		t.Errorf("installed agentos: %v %q", err, out)
	}
	run("uninstall", "", prefix)
	if left := files(prefix); !slices.Equal(left, []string{"/share/man/man1/other.1"}) {
		t.Errorf("uninstall leaves %v", left)
	}
}

// TestActivation: the helper takes the socket that systemd listens on (sd_listen_fds(3)), and no other kind of descriptor.
func TestActivation(t *testing.T) {
	bin, root, _ := stage(t)
	listen := func(kind int, name string) *os.File {
		fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(root, name)}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Listen(fd, 8); err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), name)
	}
	helper := func(f *os.File) *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" --foreground --group agentos-act --run "$1/act" --state "$1/act-state" --org "$1/act-org"`,
			filepath.Join(bin, "agentos-helper"), root)
		cmd.ExtraFiles = []*os.File{f} // descriptor 3
		return cmd
	}

	l := listen(unix.SOCK_SEQPACKET, "activated.sock")
	call := exec.Command(filepath.Join(bin, "agentos"), "run", "--workspace", root, "--", "sh", "-c", "env | grep LISTEN_; echo served")
	call.Env = []string{"PATH=/usr/bin:/bin", "HOME=/root", "AGENTOS_SOCKET=" + filepath.Join(root, "activated.sock")}
	cmd := helper(l)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	out, err := call.CombinedOutput() // it connects at once; the helper accepts when it is ready
	if err != nil || !strings.HasSuffix(string(out), "served\n") || strings.Contains(string(out), "LISTEN_") {
		t.Errorf("through the activated socket: %v\n%s", err, out)
	}
	_ = cmd.Process.Signal(unix.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the activated helper ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the activated helper did not end within 30 s of SIGTERM")
		_ = cmd.Process.Kill()
		<-ended
	}
	if _, err := os.Stat(filepath.Join(root, "activated.sock")); err != nil {
		t.Errorf("the helper removed a socket that is systemd's: %v", err)
	}

	l = listen(unix.SOCK_STREAM, "stream.sock")
	out, err = helper(l).CombinedOutput()
	_ = l.Close()
	if err == nil || !strings.Contains(string(out), "want ListenSequentialPacket=") {
		t.Errorf("a stream socket: %v\n%s", err, out)
	}
}
