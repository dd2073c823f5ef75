package broker

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

func sun(path string) []byte { return append([]byte{unix.AF_UNIX, 0}, path...) }

func (c *child) socket(kind int) int {
	c.t.Helper()
	return int(c.sys(unix.SYS_SOCKET, unix.AF_UNIX, kind, 0).Val)
}

func TestSockets(t *testing.T) {
	c := startChild(t, func(cfg *Config) {
		ws := strings.TrimSuffix(cfg.Rules.(only).Rules.(testRules).base, "/") + "/ws"
		cfg.Unix = []string{ws + "/granted"}
		cfg.Private = []string{ws + "/private"}
	})
	ws := c.base + "/ws"
	must(t, os.Mkdir(ws+"/private", 0o777))
	must(t, os.Mkdir(ws+"/ro", 0o777))
	for _, name := range []string{"host", "granted", "private/host"} {
		l, err := net.Listen("unix", ws+"/"+name)
		must(t, err)
		defer l.Close()
		must(t, os.Chmod(ws+"/"+name, 0o777))
	}
	must(t, os.Symlink("host", ws+"/to-host"))
	must(t, os.Symlink("granted", ws+"/to-granted"))
	bind := func(fd int, p string) result { return c.sys(unix.SYS_BIND, fd, sun(p), len(p)+2) }
	connect := func(kind int, p string) result {
		return c.sys(unix.SYS_CONNECT, c.socket(kind), sun(p), len(p)+2)
	}
	own := c.socket(unix.SOCK_STREAM)
	want(t, "bind", bind(own, "own"), 0)
	want(t, "listen", c.sys(unix.SYS_LISTEN, own, 5), 0)
	want(t, "bind again", bind(c.socket(unix.SOCK_STREAM), "own"), unix.EADDRINUSE)
	want(t, "bind protected", bind(c.socket(unix.SOCK_STREAM), "ro/own"), unix.EACCES)
	want(t, "bind denied", bind(c.socket(unix.SOCK_STREAM), "x.pem"), unix.EACCES)
	want(t, "bind outside", bind(c.socket(unix.SOCK_STREAM), "/etc/own"), unix.EACCES)
	want(t, "bind long", bind(c.socket(unix.SOCK_STREAM), strings.Repeat("n", 108)), 0)
	var st unix.Stat_t
	must(t, unix.Lstat(ws+"/own", &st))
	if st.Uid != testUID {
		t.Errorf("socket belongs to %d", st.Uid)
	}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_STREAM | unix.SOCK_NONBLOCK} {
		want(t, "connect own", connect(kind, "own"), 0)
		want(t, "connect host's", connect(kind, "host"), unix.EACCES)
		want(t, "connect host's through link", connect(kind, "to-host"), unix.EACCES)
		want(t, "connect granted", connect(kind, ws+"/granted"), 0)
		want(t, "connect granted through link", connect(kind, "to-granted"), 0)
		want(t, "connect private", connect(kind, "private/host"), 0)
		want(t, "connect missing", connect(kind, "missing"), unix.ENOENT)
		want(t, "connect file", connect(kind, "/etc/hostname"), unix.ECONNREFUSED)
		want(t, "connect abstract", connect(kind, "\x00nobody"), unix.ECONNREFUSED)
	}
	want(t, "connect a file", c.sys(unix.SYS_CONNECT, c.open("own", unix.O_PATH).Val, sun("own"), 5), unix.EBADF)
	want(t, "connect a pipe", c.sys(unix.SYS_CONNECT, 0, sun("own"), 5), unix.ENOTSOCK)
	// The inode number of a socket of the jail does not help one of the host.
	must(t, os.Remove(ws+"/own"))
	l, err := net.Listen("unix", ws+"/own")
	must(t, err)
	defer l.Close()
	must(t, os.Chmod(ws+"/own", 0o777))
	want(t, "connect host's under a name of ours", connect(unix.SOCK_STREAM, "own"), unix.EACCES)
	if !c.saw(func(e event.Event) bool {
		return e.Kind == event.UnixConnect && e.Verdict == event.Deny && e.Path == ws+"/host"
	}) {
		t.Error("no event of a connect that was refused")
	}

	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer tcp.Close()
	port := tcp.Addr().(*net.TCPAddr).Port
	in := []byte{unix.AF_INET, 0, byte(port >> 8), byte(port), 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	s := c.sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0).Val
	want(t, "tcp", c.sys(unix.SYS_CONNECT, s, in, len(in)), 0)
	s = c.sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0).Val
	if r := c.sys(unix.SYS_CONNECT, s, in, len(in)); r.Errno != 0 && r.Errno != int(unix.EINPROGRESS) {
		t.Errorf("nonblocking tcp: %v", unix.Errno(r.Errno))
	}
	in[2], in[3] = 0, 0
	s = c.sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0).Val
	want(t, "bind tcp", c.sys(unix.SYS_BIND, s, in, len(in)), 0)
	in[3] = 80
	s = c.sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0).Val
	if r := c.sys(unix.SYS_BIND, s, in, len(in)); r.Errno != int(unix.EACCES) && r.Errno != 0 {
		t.Errorf("bind tcp 80: %v", unix.Errno(r.Errno))
	}
}
