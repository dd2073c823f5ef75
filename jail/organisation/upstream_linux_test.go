package organisation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestUpstream(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("wanted root, whose files these are; got uid %d", os.Geteuid())
	}
	name := filepath.Join(t.TempDir(), "network.toml")
	if up, err := Upstream(name); err != nil || up.Proxy != "" {
		t.Errorf("no file: %+v %v", up, err)
	}
	for _, row := range []struct {
		text string
		mode os.FileMode
		want string // of the error
	}{
		{"[upstream]\nproxy = \"http://me:secret@proxy.example:3128\"\ndirect = [\".corp.example\", \"10.0.0.0/8\"]\n", 0o600, ""},
		{"[upstream]\nproxy = \"socks5://proxy.example\"\n", 0o644, ""},
		{"", 0o644, ""},
		{"[upstream]\nproxy = \"http://me:secret@proxy.example:3128\"\n", 0o640, "chmod 600"},
		{"[upstream]\nproxy = \"ftp://me:secret@proxy.example\"\n", 0o600, "want http://"},
		{"[upstream]\nproxy = \"proxy.example:3128\"\n", 0o600, "want http://"},
		{"[upstream]\nproxy = \"http://me:se%zzcret@proxy\"\n", 0o600, "want http://"},
		{"[upstream]\nproxie = \"http://me:secret@x\"\n", 0o600, "nothing else"},
		{"[upstream]\nproxy = 7\n", 0o600, "network.toml"},
		{"[upstream]\nproxy = \"socks5://proxy.example\"\n", 0o666, "written by others"},
		{strings.Repeat("#", maxUpstream+1), 0o600, "at most"},
	} {
		if err := os.WriteFile(name, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, row.mode); err != nil {
			t.Fatal(err)
		}
		up, err := Upstream(name)
		switch {
		case row.want == "" && err != nil, row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%.60q: got %v, want %q", row.text, err, row.want)
		case err != nil && (up.Proxy != "" || strings.Contains(err.Error(), "secret")):
			t.Errorf("%.60q: %+v, or the error tells the password: %v", row.text, up, err)
		case strings.Contains(row.text, "direct") && (ProxyName(up) != "http://proxy.example:3128" || !slices.Equal(up.Direct, []string{".corp.example", "10.0.0.0/8"})):
			t.Errorf("%.60q: %+v", row.text, up)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/hostname", name); err != nil {
		t.Fatal(err)
	}
	if _, err := Upstream(name); err == nil {
		t.Error("a link was followed")
	}
}
