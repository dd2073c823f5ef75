package ruleset

import (
	"slices"
	"strings"

	"github.com/agentos/agentos/netpolicy"
)

// Decision is what the rules say about a destination. The zero value denies.
type Decision struct {
	Allowed bool
	Rule    string // position and text of the rule that decided; "" when none knows the destination
	Why     string // of a denial
	layers  [][]*netpolicy.Rule
}

// each says whether every voting layer has a rule with the property.
func (d *Decision) each(has func(*netpolicy.Rule) bool) bool {
	if !d.Allowed || len(d.layers) == 0 {
		return false
	}
	for _, l := range d.layers {
		if !slices.ContainsFunc(l, has) {
			return false
		}
	}
	return true
}

// Opaque says whether the bytes of the connection are not looked at.
func (d *Decision) Opaque() bool {
	return d.each(func(r *netpolicy.Rule) bool { return r.TLS == netpolicy.Opaque })
}

// Limited says whether only some HTTP requests are allowed: then nothing but HTTP is.
func (d *Decision) Limited() bool {
	return !d.each(func(r *netpolicy.Rule) bool { return len(r.Methods) == 0 && len(r.Paths) == 0 })
}

// Records says whether records of the type ("SRV", "TXT", "MX") are asked for outside.
func (d *Decision) Records(kind string) bool {
	return d.each(func(r *netpolicy.Rule) bool { return slices.Contains(r.Records, kind) })
}

// Budgets returns the rules with a budget that decided, one of each layer at most.
func (d *Decision) Budgets() []*netpolicy.Rule {
	var out []*netpolicy.Rule
	for _, l := range d.layers {
		if l[0].Budget.Bytes > 0 {
			out = append(out, l[0])
		}
	}
	return out
}

// Request says whether an HTTP request is allowed. path is as sent, without the
// query. Where rules name paths, one that servers read in different ways (an
// encoded '/', '.' or '%', "//", "..", '\', ';') is not.
func (d *Decision) Request(method, path string) bool {
	plain, clean := decode(path)
	return d.each(func(r *netpolicy.Rule) bool {
		if len(r.Methods) > 0 && !slices.Contains(r.Methods, method) {
			return false
		}
		return len(r.Paths) == 0 || clean && slices.ContainsFunc(r.Paths, func(p string) bool { return covered(p, plain) })
	})
}

func covered(pattern, path string) bool {
	if head, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, head)
	}
	return path == pattern
}

// decode undoes percent-encoding once; clean says that nothing about the result
// is a matter of opinion.
func decode(path string) (plain string, clean bool) {
	if !strings.HasPrefix(path, "/") {
		return "", false
	}
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			if i+2 >= len(path) {
				return "", false
			}
			hi, lo := unhex(path[i+1]), unhex(path[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			c = byte(hi<<4 | lo)
			i += 2
			if c == '/' || c == '.' || c == '%' {
				return "", false
			}
		}
		if c < ' ' || c == 0x7f || c == '\\' || c == ';' {
			return "", false
		}
		b = append(b, c)
	}
	segments := strings.Split(string(b[1:]), "/")
	for i, s := range segments {
		if s == "." || s == ".." || s == "" && i < len(segments)-1 {
			return "", false
		}
	}
	return string(b), true
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
