// Package name is the one place where a host name from a packet, a handshake,
// a request or a rule becomes the form in which names are compared.
//
// A normal name is ASCII in lower case without a final dot, of labels of 1 to 63
// letters, digits, '-' (not first or last) and '_', at most 253 bytes together, whose last label
// has a letter and cannot be read as a number. Everything else is refused, never
// repaired: a name that two programs could read differently is how a check is
// passed with one name and a connection made with another (NUL, '%', '@', CR, an
// IPv4 address in hexadecimal or as one number, full-width digits).
//
// Internationalised names are their A-labels (xn--...), which resolvers and
// browsers send; the same name in UTF-8 is refused, because what it maps to depends
// on the version of Unicode that a program knows (RFC 5891).
package name

import (
	"errors"
	"strings"
)

// ErrOdd is a name that is not a host name in a form that everybody reads alike.
var ErrOdd = errors.New("odd host name")

const (
	maxName  = 253 // RFC 1035 2.3.4, without the root and the first length
	maxLabel = 63
)

// Normal returns the normal form of s. One final dot is allowed and removed.
// Its error is [ErrOdd].
func Normal(s string) (string, error) {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > maxName {
		return "", ErrOdd
	}
	upper, label := false, 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '.':
			if !labelEnds(s, label, i) {
				return "", ErrOdd
			}
			label = i + 1
		case 'A' <= c && c <= 'Z':
			upper = true
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_':
		default:
			return "", ErrOdd
		}
	}
	if !labelEnds(s, label, len(s)) || numeric(s[label:]) {
		return "", ErrOdd
	}
	if upper {
		s = strings.ToLower(s)
	}
	return s, nil
}

func labelEnds(s string, from, to int) bool {
	return from < to && to-from <= maxLabel && s[from] != '-' && s[to-1] != '-'
}

// numeric says whether a last label makes programs read a name as an IPv4 address: digits alone
// (inet_aton) and what begins like a hexadecimal number (WHATWG URL, "ends in a number").
func numeric(label string) bool {
	if len(label) >= 2 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X') {
		return true
	}
	return strings.Trim(label, "0123456789_-") == ""
}

// Below says whether name is parent's subdomain, at any depth; not parent itself. Both are normal.
func Below(name, parent string) bool {
	i := len(name) - len(parent)
	return i >= 2 && name[i-1] == '.' && name[i:] == parent
}

// Parent is name without its first label, "" at the top.
func Parent(name string) string {
	_, p, _ := strings.Cut(name, ".")
	return p
}

// Service returns the name that an SRV name is about (RFC 2782): without its
// leading labels that begin with '_'.
func Service(name string) string {
	for strings.HasPrefix(name, "_") {
		name = Parent(name)
	}
	return name
}
