package organisation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentos/agentos/policy"
)

// What the files do not allow, or deny, or that cannot be read, is no grant; without files everything is.
func TestCheckGrant(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("wanted root, whose files these are; got uid %d", os.Geteuid())
	}
	vars := policy.Vars{Home: "/home/u", Workspace: "/home/u"}
	dir := filepath.Join(t.TempDir(), "policy.d")
	check := func(entry string) (string, error) {
		rules, err := New(dir, 0).Read()
		if err != nil {
			return "", err
		}
		return rules.CheckGrant(time.Now(), nil, vars, entry)
	}
	if by, err := check("db.example:1"); by != "" || err != nil {
		t.Errorf("no files: %q %v", by, err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "net.toml")
	for _, row := range []struct{ text, entry, by string }{
		{"[net]\nallow = [\"*.example:1\"]\n", "db.example:1", ""},
		{"[net]\nallow = [\"*.example:1\"]\n", "db.example:2", "net.toml"},
		{"[net]\ndeny = [\"*.example:1\"]\n", "db.example:1", "net.toml:4"},
		{"[net]\ndeny = [\"*.example:1\"]\n", "other:1", ""},
		{"", "db.example:1", ""},
	} {
		if err := os.WriteFile(file, []byte("version = 1\nname = \"corp\"\n"+row.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if by, err := check(row.entry); err != nil || (by == "") != (row.by == "") || !strings.Contains(by, row.by) {
			t.Errorf("%q, %s: refused by %q (%v), want %q", row.text, row.entry, by, err, row.by)
		}
	}
	if err := os.WriteFile(file, []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := check("db.example:1"); err == nil {
		t.Error("granted by a file that cannot be read")
	}
}
