package corpus

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// Rule is one line of a policy: the list it stands in and the glob. A glob of Deny or
// Protect that begins with "!" is an exception to those before it.
type Rule struct {
	List List
	Glob string
}

// List names a list of a policy's [files] section.
type List uint8

// Lists. The zero value is none.
const (
	_ List = iota
	Read
	Write
	Exec
	Deny
	Protect
)

// String is the key of the list in a policy.
func (l List) String() string {
	return [...]string{"none", "read", "write", "exec", "deny", "protect"}[min(l, Protect)]
}

// shape is one form of rule that people write, with %w for a word and %x for an extension.
type shape struct {
	list List
	form string
}

// shapes are those of the builtin policies (first half) and of the ignore files that
// people copy from, in about the proportions found there. /h is the home, /h/w the workspace.
var shapes = []shape{
	// Grants: trees of software, single files of /etc.
	{Read, "/etc/%w/**"},
	{Read, "/etc/{%w,%w,%w.conf}"},
	{Read, "/var/lib/%w/**"},
	{Read, "/etc/{%w,%w-2,%w.3}/**"},
	{Exec, "/opt/%w/**"},
	{Write, "/h/w/%w/**"},
	{Write, "/proc/*/{%w,%w}"},
	{Read, "/sys/devices/system/{%w,%w}/**"},
	// Logins and keys in the home.
	{Deny, "/h/.%w/**"},
	{Deny, "/h/.%w"},
	{Deny, "/h/.config/{%w,%w,%w}/**"},
	{Deny, "/h/.{%w,%w,%w}_history"},
	// Secrets by name, anywhere.
	{Deny, "/h/w/**/.%w"},
	{Deny, "/h/w/**/.%w.*"},
	{Deny, "/h/w/**/*.{%x,%x,%x}"},
	{Deny, "/h/w/**/.*%w*"},
	{Deny, "/h/w/**/{%w,.%w}/**"},
	{Deny, "/h/w/**/%w.{json,toml,yml}"},
	{Deny, "/h/w/**/id_{%w,%w}"},
	{Deny, "!/h/w/**/%w/**"},
	{Deny, "!/h/w/**/.%w.{example,sample}"},
	// What tools of the host would run.
	{Protect, "/h/w/**/.%w/hooks/**"},
	{Protect, "/h/w/**/.%w/{config,%w}"},
	{Protect, "/h/w/**/{.%w,%w}.{yml,yaml,toml}"},
	{Protect, "/h/w/**/.{%w,%wrc}"},
	// From ignore files: *.log, build-*, *~, cmake-build-*/, *.py[cod], core.[0-9]*, .#*, npm-debug.log*, [Bb]in/, *.sw?
	{Deny, "**/*.%x"},
	{Deny, "**/%w"},
	{Deny, "**/%w/**"},
	{Deny, "**/%w-*"},
	{Deny, "**/%w*.%x"},
	{Deny, "**/%w-%w.log*"},
	{Protect, "**/%w-*/%w.yml"},
	{Deny, "/h/w/%w/%w.%x"},
	{Deny, "/h/w/%w/*.%x"},
}

// general are shapes with ?, [...] and several *: patterns that no trie holds. About one
// rule in sixteen is one of them, twice what a collection of ignore files has.
var general = []shape{
	{Deny, "**/*.%x?"},
	{Deny, "**/%w.[0-9]*"},
	{Deny, "**/*.sw[a-p]"},
	{Deny, "**/[Bb]%w/**"},
	{Deny, "**/%w-*-%w"},
	{Deny, "**/*.%x[cod]"},
	{Protect, "/h/w/**/%w?.yml"},
	{Deny, "**/*%w*/**"},
}

// Mixed draws n rules as policies have them. The first four grant the home, its workspace
// and /usr, as every policy does.
func Mixed(n int) []Rule {
	r := rand.New(rand.NewPCG(7, 11))
	out := []Rule{{Read, "/h/**"}, {Write, "/h/w/**"}, {Read, "/usr/**"}, {Exec, "/usr/**"}}
	for i := len(out); i < n; i++ {
		s := shapes[i%len(shapes)]
		if i%16 == 5 {
			s = general[i/16%len(general)]
		}
		out = append(out, Rule{s.list, fill(r, s.form)})
	}
	out = out[:n]
	var except []Rule // behind what they are exceptions to
	plain := slices.DeleteFunc(out, func(r Rule) bool {
		if r.Glob[0] == '!' {
			except = append(except, r)
		}
		return r.Glob[0] == '!'
	})
	return append(plain, except...)
}

// fill puts words and extensions into a form.
func fill(r *rand.Rand, form string) string {
	letters := func(n int) []byte {
		b := make([]byte, n)
		for i := range b { // the smaller of two: as in words, some letters are much more frequent
			b[i] = "etaoinshrdlucmfwypvbgkqjxz_-"[min(r.IntN(28), r.IntN(28))]
		}
		return b
	}
	out := make([]byte, 0, 2*len(form))
	for i := 0; i < len(form); i++ {
		switch {
		case form[i] != '%':
			out = append(out, form[i])
		case form[i+1] == 'x':
			out, i = append(out, letters(2+r.IntN(4))...), i+1
		default:
			out, i = append(out, letters(3+r.IntN(8))...), i+1
		}
	}
	return string(out)
}

// MixedPaths makes n clean paths that rules of [Mixed] are about: names of their globs with the
// wildcards filled, alone, joined and below each other.
func MixedPaths(rules []Rule, n int) []string {
	r := rand.New(rand.NewPCG(6, 6))
	wild := strings.NewReplacer("!", "", "**", "", "*", "-mid-", "[0-9]", "7", "[a-p]", "p", "[Bb]", "B", "[cod]", "c", "?", "x")
	var names []string
	for _, rule := range rules {
		for _, name := range strings.Split(wild.Replace(rule.Glob), "/") {
			head, rest, braced := strings.Cut(name, "{")
			if inner, tail, ok := strings.Cut(rest, "}"); braced && ok {
				all := strings.Split(inner, ",")
				name = head + all[r.IntN(len(all))] + tail
			}
			if name != "" && !strings.ContainsAny(name, "{},") {
				names = append(names, name, strings.Trim(name, "-"))
			}
		}
	}
	paths := make([]string, 0, n)
	for range n {
		p := []string{"", "/h", "/h/w", "/etc"}[r.IntN(4)]
		for range 1 + r.IntN(4) {
			p += "/" + names[r.IntN(len(names))]
		}
		paths = append(paths, p)
	}
	return paths
}
