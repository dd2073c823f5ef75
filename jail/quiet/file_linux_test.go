package quiet

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReleasable(t *testing.T) {
	const head = "00402000-0089e000 "
	for _, tt := range []struct {
		line, anonymous string
		want            bool
	}{
		{"r-xp 00002000 fe:00 131 /usr/libexec/agentos helper", "0 kB", true},
		{"r--p 00002000 fe:00 131 /usr/lib/libc.so.6", "0 kB", true},
		{"r--p 00002000 fe:00 131 /usr/lib/libc.so.6", "16 kB", false}, // relocated, then made read-only
		{"rw-p 00002000 fe:00 131 /usr/lib/libc.so.6", "0 kB", false},
		{"r--s 00002000 fe:00 131 /sys/fs/bpf/ring", "0 kB", false},
		{"r-xp 00000000 00:01 9 /memfd:agentos-init (deleted)", "0 kB", false},
		{"r-xp 00000000 00:00 0 [vdso]", "0 kB", false},
		{"r--p 00000000 00:00 0 ", "0 kB", false},
		{"r-xp 00002000 fe:00 131 /usr/libexec/agentos helper", "0 MB", false},
	} {
		all := list(t, strings.NewReader(head+tt.line+"\nSize: 4 kB\nAnonymous:      "+tt.anonymous+"\nVmFlags: rd ex\n"))
		if len(all) != 1 || all[0].releasable() != tt.want || all[0].from != 0x402000 || all[0].to != 0x89e000 {
			t.Errorf("%q with %s: %+v, want releasable %v", tt.line, tt.anonymous, all, tt.want)
		}
	}
}

// A file's pages go, and come back with what was in them; written ones stay.
func TestReleaseFiles(t *testing.T) {
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "file")
	content := make([]byte, 16*page)
	for i := range content {
		content[i] = byte(i / page)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(plain)
	written, err := unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(written)
	written[3*page] = 0xee
	if err := unix.Mprotect(written, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(plain); i += page {
		if plain[i] != byte(i/page) {
			t.Fatal("the file is not what was written")
		}
	}
	if err := releaseFiles(); err != nil {
		t.Fatal(err)
	}
	if in := resident(t, path); in != 0 {
		t.Errorf("%d bytes of the read-only mapping are still resident", in)
	}
	if plain[5*page] != 5 || written[3*page] != 0xee || written[4*page] != 4 {
		t.Errorf("after: %d %#x %d, want 5 0xee 4", plain[5*page], written[3*page], written[4*page])
	}
}

// resident answers how much of the mapping of path without written pages is in memory.
func resident(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, m := range list(t, f) {
		if m.path == path && m.releasable() {
			return m.rss
		}
	}
	t.Fatalf("no mapping of %s", path)
	return 0
}

func list(t *testing.T, smaps io.Reader) (all []mapping) {
	t.Helper()
	if err := mappings(smaps, func(m *mapping) { all = append(all, *m) }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestListOfARealProcess(t *testing.T) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list(t, f) {
		if m.path == own && m.perms == "r-xp" && m.rss > 0 && m.releasable() {
			return
		}
	}
	t.Errorf("the text of %s is not among what can be released", own)
}
