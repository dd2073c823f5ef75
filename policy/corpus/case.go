package corpus

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
)

// Case is one policy, a tree of files and the questions about them. All paths are absolute
// and lie below Base.
type Case struct {
	Base  string
	Rules []Rule
	Dirs  []string // to be made, parents first; Base is not in it
	Files []string // to be made, of any content
	Rows  []Row    // the rows of one Act are next to each other
}

// Row is one question: an act on a path.
type Row struct {
	Act  Act
	Path string
	To   string // of Rename, MoveDir and Link: the second path
}

// Act is what is tried. Within one case no two rows of an act meet on a path, so that they can be
// tried one after another on one tree; the tree must be made anew for the next act.
type Act string

// Acts.
const (
	ActRead     Act = "read"     // open for reading a file that is there
	ActWrite    Act = "write"    // open it for writing
	ActExec     Act = "exec"     // execute it
	ActTruncate Act = "truncate" // by path
	ActChmod    Act = "chmod"
	ActCreate   Act = "create" // open(O_CREAT|O_EXCL|O_WRONLY) of what is not there
	ActMkdir    Act = "mkdir"
	ActUnlink   Act = "unlink"
	ActLink     Act = "link"
	ActRename   Act = "rename"  // of a file
	ActMoveDir  Act = "movedir" // rename of a directory
)

// Two reports whether the act has two paths.
func (a Act) Two() bool { return a == ActLink || a == ActRename || a == ActMoveDir }

// names meet the patterns below often. They begin with q, so that no rule meets a file
// of the machine that the test runs on.
var names = []string{
	"q", "qa", "qb", "qab", "qaa", "qba", "q.env", ".qenv", ".qenv.x", "q.pem", "qx.pem", "qk", "qk1", "qk12", "qsecret", "my-qsecret-1",
	".qgit", "qhooks", "qconfig", "qro", "q a", "q\\n", "qäö", "Q", "qq.tar.gz", "q-1-2", "[q]", "q*", "{q}",
}

// parts are component patterns of every kind: literals, *, pre*, *suf, pre*suf (with overlap), ?, sets,
// several *, and alternatives.
var parts = []string{
	"qa", "qb", "qab", ".qenv", ".qgit", "qhooks", "*", "qa*", ".qenv.*", "*.pem", "*.env", "q*a", "qa*a", "q*.tar.gz",
	"q?", "qk[0-9]", "[qQ]", "q[!a]", "*qsecret*", "q*-*-?", "{qa,qb}", "{qro,qconfig,*.pem}", `\[q\]`, `q\*`, `\{q\}`, "q*n",
}

// New draws the case of a seed below base, which must be absolute, clean and free of *?[]{}\.
// Everything is readable and executable, base writable; what the drawn rules say is about base.
func New(seed uint64, base string) Case {
	r := rand.New(rand.NewPCG(seed, 3))
	c := Case{Base: base}
	c.drawRules(r)
	c.drawTree(r)
	c.drawRows(r)
	return c
}

func (c *Case) drawRules(r *rand.Rand) {
	c.Rules = []Rule{{Read, "/**"}, {Exec, "/**"}, {Write, c.Base + "/**"}, {Write, "/dev/**"}, {Write, "/proc/**"}}
	if r.IntN(3) == 0 { // not everything: what is read or executed is listed
		c.Rules[2].Glob = c.Base + "/{qa,qb,q,qro}/**"
		c.Rules = append(c.Rules, Rule{Write, c.Base + "/*"})
	}
	for range 3 + r.IntN(9) {
		g := c.glob(r)
		if r.IntN(4) == 0 {
			g = "!" + g
		}
		c.Rules = append(c.Rules, Rule{[]List{Deny, Deny, Protect}[r.IntN(3)], g})
	}
}

// glob draws a glob below base; those that float name something that only a corpus has.
func (c *Case) glob(r *rand.Rand) string {
	var s strings.Builder
	s.WriteString(c.Base)
	for range 1 + r.IntN(2) {
		if r.IntN(3) == 0 {
			s.WriteString("/**")
		}
		s.WriteString("/" + parts[r.IntN(len(parts))])
	}
	if r.IntN(3) == 0 {
		s.WriteString("/**")
	}
	if r.IntN(5) == 0 {
		return []string{"**/.qenv", "**/.qgit/qhooks/**", "**/*qsecret*", "**/q*-1-*"}[r.IntN(4)]
	}
	return s.String()
}

func (c *Case) drawTree(r *rand.Rand) {
	for _, i := range r.Perm(len(names))[:7] {
		dir := path.Join(c.Base, names[i])
		c.Dirs = append(c.Dirs, dir)
		if r.IntN(2) == 0 {
			c.Dirs = append(c.Dirs, path.Join(dir, names[r.IntN(len(names))]))
		}
	}
	for _, dir := range append([]string{c.Base}, c.Dirs...) {
		for _, i := range r.Perm(len(names))[:3] {
			if p := path.Join(dir, names[i]); !slices.Contains(c.Dirs, p) {
				c.Files = append(c.Files, p)
			}
		}
	}
}

// free answers n paths that are not there, in directories that are.
func (c *Case) free(r *rand.Rand, n int) []string {
	seen := map[string]bool{}
	for _, p := range append(slices.Clone(c.Dirs), c.Files...) {
		seen[p] = true
	}
	var out []string
	for tries := 0; len(out) < n && tries < 100*n; tries++ {
		dir := c.Base
		if r.IntN(4) > 0 {
			dir = c.Dirs[r.IntN(len(c.Dirs))]
		}
		if p := path.Join(dir, names[r.IntN(len(names))]); !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

func (c *Case) drawRows(r *rand.Rand) {
	for _, a := range []Act{ActRead, ActWrite, ActTruncate, ActChmod, ActUnlink} {
		for _, p := range c.Files {
			c.Rows = append(c.Rows, Row{Act: a, Path: p})
		}
	}
	for _, p := range c.Files[:min(8, len(c.Files))] { // dear: a process each
		c.Rows = append(c.Rows, Row{Act: ActExec, Path: p})
	}
	for _, a := range []Act{ActCreate, ActMkdir} {
		for _, p := range c.free(r, 20) {
			c.Rows = append(c.Rows, Row{Act: a, Path: p})
		}
	}
	for _, a := range []Act{ActLink, ActRename} {
		to := c.free(r, len(c.Files))
		for i, at := range r.Perm(len(c.Files))[:len(to)] {
			c.Rows = append(c.Rows, Row{a, c.Files[at], to[i]})
		}
	}
	var top []string // directories move to names in base only, so that no row's way is moved away
	for _, d := range c.Dirs {
		if path.Dir(d) == c.Base {
			top = append(top, d)
		}
	}
	for _, to := range c.free(r, 200) {
		if len(top) > 0 && path.Dir(to) == c.Base {
			c.Rows = append(c.Rows, Row{ActMoveDir, top[0], to})
			top = top[1:]
		}
	}
}

// Document is the policy as a TOML document.
func (c *Case) Document() []byte { return Document(c.Rules) }

// Document writes rules as a policy document of version 1.
func Document(rules []Rule) []byte {
	var s strings.Builder
	s.WriteString("version = 1\nname = \"corpus\"\n\n[files]\n")
	for _, l := range []List{Read, Write, Exec, Deny, Protect} {
		fmt.Fprintf(&s, "%s = [\n", l)
		for _, r := range rules {
			if r.List == l {
				fmt.Fprintf(&s, "  '%s',\n", r.Glob)
			}
		}
		s.WriteString("]\n")
	}
	return []byte(s.String())
}
