package repo

import (
	"fmt"
	"strings"
)

// maxConfig bounds the bytes of a configuration file.
const maxConfig = 1 << 20

// Setting is one line of a configuration file (git-config(1)): name and section
// in lower case, the subsection as it is written.
type Setting struct {
	Section, Sub, Name, Value string
}

// ParseConfig returns the settings of a configuration file in order. It follows
// no include: those are settings of the section "include" or "includeif".
func ParseConfig(text string) ([]Setting, error) {
	if len(text) > maxConfig {
		return nil, fmt.Errorf("configuration has %d bytes, at most %d", len(text), maxConfig)
	}
	p := configParser{rest: strings.TrimPrefix(text, "\ufeff")}
	var all []Setting
	section, sub := "", ""
	for {
		p.skip()
		switch {
		case p.rest == "":
			return all, nil
		case p.rest[0] == '[':
			var ok bool
			if section, sub, ok = p.header(); !ok {
				return nil, fmt.Errorf("configuration: bad section header")
			}
		default:
			s := Setting{Section: section, Sub: sub, Name: strings.ToLower(p.word())}
			if s.Name == "" || section == "" {
				return nil, fmt.Errorf("configuration: bad line")
			}
			p.blanks()
			if strings.HasPrefix(p.rest, "=") {
				p.rest = p.rest[1:]
				var ok bool
				if s.Value, ok = p.value(); !ok {
					return nil, fmt.Errorf("configuration: bad value of %s", s.Name)
				}
			} else {
				s.Value = "true"
				p.line()
			}
			all = append(all, s)
		}
	}
}

type configParser struct{ rest string }

func (p *configParser) blanks() { p.rest = strings.TrimLeft(p.rest, " \t\r") }

// line drops what is left of the line.
func (p *configParser) line() { _, p.rest, _ = strings.Cut(p.rest, "\n") }

// skip drops white space, empty lines and comments.
func (p *configParser) skip() {
	for {
		p.rest = strings.TrimLeft(p.rest, " \t\r\n")
		if !strings.HasPrefix(p.rest, "#") && !strings.HasPrefix(p.rest, ";") {
			return
		}
		p.line()
	}
}

func (p *configParser) word() string {
	n := 0
	for n < len(p.rest) && (isAlnum(p.rest[n]) || p.rest[n] == '-') {
		n++
	}
	w := p.rest[:n]
	p.rest = p.rest[n:]
	return w
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// header takes [section], [section "sub"] or the old [section.sub].
func (p *configParser) header() (section, sub string, ok bool) {
	end := strings.IndexAny(p.rest, "] \t\n")
	if end < 0 {
		return "", "", false
	}
	section = strings.ToLower(p.rest[1:end])
	p.rest = p.rest[end:]
	p.blanks()
	if strings.HasPrefix(p.rest, `"`) {
		var b strings.Builder
		i := 1
		for ; i < len(p.rest) && p.rest[i] != '"' && p.rest[i] != '\n'; i++ {
			if p.rest[i] == '\\' && i+1 < len(p.rest) {
				i++
			}
			b.WriteByte(p.rest[i])
		}
		if i >= len(p.rest) || p.rest[i] != '"' {
			return "", "", false
		}
		sub, p.rest = b.String(), p.rest[i+1:]
	} else if a, b, cut := strings.Cut(section, "."); cut {
		section, sub = a, b
	}
	if !strings.HasPrefix(p.rest, "]") || section == "" {
		return "", "", false
	}
	p.rest = p.rest[1:]
	return section, sub, true
}

// value takes what is behind the equals sign: quotes, escapes, comments and
// lines that go on.
func (p *configParser) value() (string, bool) {
	p.blanks()
	var b strings.Builder
	quoted, kept := false, 0 // kept: bytes of b that are no trailing white space
	for i := 0; ; i++ {
		if i >= len(p.rest) || p.rest[i] == '\n' {
			p.rest = p.rest[min(i+1, len(p.rest)):]
			return b.String()[:kept], !quoted
		}
		switch c := p.rest[i]; {
		case c == '"':
			quoted = !quoted
			kept = b.Len()
		case !quoted && (c == '#' || c == ';'):
			p.rest = p.rest[i:]
			p.line()
			return b.String()[:kept], true
		case c == '\\':
			if i++; i >= len(p.rest) {
				return "", false
			}
			switch p.rest[i] {
			case '\n':
			case 'n':
				b.WriteByte('\n')
				kept = b.Len()
			case 't':
				b.WriteByte('\t')
				kept = b.Len()
			case 'b':
				b.WriteByte('\b')
				kept = b.Len()
			case '\\', '"':
				b.WriteByte(p.rest[i])
				kept = b.Len()
			default:
				return "", false
			}
		default:
			b.WriteByte(c)
			if quoted || c != ' ' && c != '\t' && c != '\r' {
				kept = b.Len()
			}
		}
	}
}

// Last returns the value that counts of a setting without a subsection, and
// whether there is one.
func Last(all []Setting, section, name string) (string, bool) {
	for i := len(all) - 1; i >= 0; i-- {
		if s := all[i]; s.Section == section && s.Sub == "" && s.Name == name {
			return s.Value, true
		}
	}
	return "", false
}
