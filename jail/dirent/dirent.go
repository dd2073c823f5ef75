// Package dirent reads and filters what getdents64(2) answers: entries of variable length,
// each a struct linux_dirent64 (include/linux/dirent.h):
//
//	u64 ino   s64 off   u16 len   u8 type   name, NUL, padding to 8 bytes
//
// It promises to read no byte outside of what it is given, whatever is in it, to keep the
// order of entries and every byte of those that stay (off above all, by which a reader
// comes back to the place behind an entry), and to let nothing pass that it does not
// understand: what cannot be an entry ends the list.
//
// It touches no kernel and builds on every OS.
package dirent

import (
	"bytes"
	"encoding/binary"
)

// Offsets in an entry.
const (
	lenAt  = 16
	typeAt = 18
	nameAt = 19
)

// MaxLen is the length in bytes of the longest entry: a name of NAME_MAX bytes, rounded up.
const MaxLen = (nameAt + 255 + 1 + 7) &^ 7

// Unknown is the type of an entry whose file system does not say it (DT_UNKNOWN).
const Unknown = 0

// Entry is one entry. It lies in the buffer that it was read from.
type Entry struct {
	Name []byte // with its NUL
	Type byte   // DT_*
	raw  []byte
}

// Text is the name without its NUL.
func (e Entry) Text() []byte { return e.Name[:len(e.Name)-1] }

// Next answers the first entry of b and what follows it. ok is false at the end of b, and
// for bytes that are no entry.
func Next(b []byte) (e Entry, rest []byte, ok bool) {
	if len(b) <= nameAt {
		return Entry{}, nil, false
	}
	size := int(binary.NativeEndian.Uint16(b[lenAt:]))
	if size <= nameAt || size > len(b) {
		return Entry{}, nil, false
	}
	raw := b[:size:size]
	end := bytes.IndexByte(raw[nameAt:], 0)
	if end < 1 || bytes.IndexByte(raw[nameAt:nameAt+end], '/') >= 0 {
		return Entry{}, nil, false
	}
	return Entry{Name: raw[nameAt : nameAt+end+1], Type: raw[typeAt], raw: raw}, b[size:], true
}

// Filter drops the entries of b that keep refuses, in place, and answers the rest. "." and ".."
// stay without a question. keep is given the name without its NUL and must not hold on to it.
func Filter(b []byte, keep func(name []byte) bool) []byte {
	kept := b[:0]
	for rest := b; ; {
		e, tail, ok := Next(rest)
		if !ok {
			return kept
		}
		if name := e.Text(); string(name) == "." || string(name) == ".." || keep(name) {
			kept = append(kept, e.raw...) // never further than where e was
		}
		rest = tail
	}
}
