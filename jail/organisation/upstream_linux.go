package organisation

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/netpolicy"
)

// maxUpstream is the largest file that says how this host reaches the network, in bytes.
const maxUpstream = 64 << 10

// Upstream reads how jails' connections leave this host: the section [upstream] of the file name, with proxy
// and direct as in [netpolicy.Upstream]. No file means that they are dialled. The file is root's alone to
// write, and with a password in it to read.
func Upstream(name string) (netpolicy.Upstream, error) {
	fail := func(err error) (netpolicy.Upstream, error) {
		return netpolicy.Upstream{}, fmt.Errorf("%s: %w", name, err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return netpolicy.Upstream{}, nil
	}
	if err != nil {
		return fail(err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := rootOwned(f); err != nil {
		return fail(err)
	}
	st, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	if !st.Mode().IsRegular() || st.Size() > maxUpstream {
		return fail(fmt.Errorf("not a file of at most %d bytes", maxUpstream))
	}
	data := make([]byte, st.Size())
	if n, err := f.ReadAt(data, 0); n < len(data) {
		return fail(err)
	}
	var doc struct {
		Upstream struct {
			Proxy  string   `toml:"proxy"`
			Direct []string `toml:"direct"`
		} `toml:"upstream"`
	}
	d := toml.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) {
			return fail(errors.New("want [upstream] with proxy and direct, and nothing else"))
		}
		return fail(err) // quotes no value
	}
	up := netpolicy.Upstream(doc.Upstream)
	if up.Proxy == "" {
		return up, nil
	}
	u, err := url.Parse(up.Proxy)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "socks5" && u.Scheme != "socks5h" {
		return fail(errors.New("proxy: want http://HOST:PORT or socks5://HOST:PORT")) // without the text: it may hold a password
	}
	if _, secret := u.User.Password(); secret && st.Mode().Perm()&0o077 != 0 {
		return fail(errors.New("it holds a password, and others than root may read it: chmod 600"))
	}
	return up, nil
}

// ProxyName is a proxy's URL without user and password; "" for none.
func ProxyName(up netpolicy.Upstream) string {
	u, err := url.Parse(up.Proxy)
	if err != nil || up.Proxy == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
