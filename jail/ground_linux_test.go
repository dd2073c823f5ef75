package jail

import (
	"strings"
	"testing"
)

const hostMounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:21 / /proc rw shared:2 - proc proc rw
40 22 0:40 / /home/a\040b/m rw - tmpfs none rw
41 22 8:1 /part /srv/x/y rw - ext4 /dev/sda1 rw
`

// What decides are the mounts that hold a source, word for word, and what is below one.
func TestGroundLines(t *testing.T) {
	root, _, _ := strings.Cut(hostMounts, "30 ")
	own := "40 22 0:40 / /home/a\\040b/m rw - tmpfs none rw\n"
	for _, tt := range []struct {
		name, mountinfo string
		sources         []Source
		want            string
	}{
		{"the mount that holds it", hostMounts, []Source{{"/usr", 22}}, root},
		{"two sources of one mount", hostMounts, []Source{{"/usr", 22}, {"/opt", 22}}, root},
		{"a name that begins the same", hostMounts, []Source{{"/home/a", 22}}, root},
		{"a file system below", hostMounts, []Source{{"/usr", 22}, {"/home/a b", 22}}, root + own},
		{"one far below", hostMounts, []Source{{"/home", 22}}, root + own},
		{"a part of a file system below", hostMounts, []Source{{"/usr", 22}, {"/srv", 22}}, ""},
		{"everything", hostMounts, []Source{{"/", 22}}, ""},
		{"a mount itself", hostMounts, []Source{{"/home/a b/m", 40}}, own},
		{"another's mount", hostMounts, []Source{{"/usr", 22}, {"/x", 99}}, ""},
		{"a line that ends early", "22 1 8:1 /\n", []Source{{"/usr", 22}}, ""},
		{"nothing to read", "", []Source{{"/usr", 22}}, ""},
	} {
		if got := groundLines(tt.mountinfo, tt.sources); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if (Ground{}).Like(Ground{}) {
		t.Error("grounds that were never looked at are alike")
	}
	if !(Ground{changes: 1}).Like(Ground{changes: 1}) || (Ground{changes: 1}).Like(Ground{changes: 2}) {
		t.Error("with something mounted below, only the same moment is alike")
	}
	if !(Ground{1, root}).Like(Ground{2, root}) || (Ground{1, root}).Like(Ground{2, root + "x"}) {
		t.Error("the lines decide when other mounts changed")
	}
}
