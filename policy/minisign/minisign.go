package minisign

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/blake2b"
)

// MaxSize bounds the text of a signature and of a list of keys, in bytes.
const MaxSize = 64 << 10

// Errors of [Signature.Verify] and of the parsers.
var (
	ErrFormat  = errors.New("is not in minisign's format")
	ErrUnknown = errors.New("is made with a key that is not trusted here")
	ErrBad     = errors.New("is not a signature of this text")
)

// ID is the number that minisign gives a key. It is no proof of anything.
type ID [8]byte

// String is the number as minisign prints it: hexadecimal, little-endian, no zeros in front.
func (id ID) String() string {
	return strings.ToUpper(strconv.FormatUint(binary.LittleEndian.Uint64(id[:]), 16))
}

// Key is a public key.
type Key struct {
	ID     ID
	public ed25519.PublicKey
}

// The first two bytes of keys and signatures.
var (
	plain     = []byte("Ed") // keys, and signatures of the text
	prehashed = []byte("ED") // signatures of the text's BLAKE2b-512
)

// ParseKey reads the line of a public key: base64 of "Ed", the key's number (8
// bytes) and the key (32 bytes).
func ParseKey(line string) (Key, error) {
	data, err := decode(line, len(plain)+8+ed25519.PublicKeySize)
	if err != nil || !bytes.HasPrefix(data, plain) {
		return Key{}, fmt.Errorf("public key: %w", ErrFormat)
	}
	return Key{ID: ID(data[2:10]), public: ed25519.PublicKey(data[10:])}, nil
}

// Signature is what a .minisig file says.
type Signature struct {
	Key     ID
	Comment string // the trusted comment; to be believed once Verify has accepted it

	hashed    bool
	signature []byte // of the text, or of its hash
	global    []byte // of signature and comment
}

const (
	untrustedPrefix = "untrusted comment: "
	trustedPrefix   = "trusted comment: "
)

// Parse reads the text of a signature: four lines, an untrusted comment, the
// signature, a trusted comment, and the signature of both.
func Parse(text []byte) (Signature, error) {
	bad := func(what string) (Signature, error) { return Signature{}, fmt.Errorf("%s: %w", what, ErrFormat) }
	if len(text) > MaxSize || !utf8.Valid(text) {
		return bad("signature")
	}
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], untrustedPrefix) {
		return bad("signature")
	}
	comment, ok := strings.CutPrefix(lines[2], trustedPrefix)
	if !ok || strings.ContainsFunc(comment, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
		return bad("trusted comment")
	}
	data, err := decode(lines[1], 2+8+ed25519.SignatureSize)
	if err != nil {
		return bad("signature")
	}
	global, err := decode(lines[3], ed25519.SignatureSize)
	if err != nil {
		return bad("signature of the trusted comment")
	}
	s := Signature{Key: ID(data[2:10]), Comment: comment, signature: data[10:], global: global}
	switch {
	case bytes.HasPrefix(data, prehashed):
		s.hashed = true
	case !bytes.HasPrefix(data, plain):
		return bad("algorithm of the signature")
	}
	return s, nil
}

// Verify accepts the text if one of the keys signed it and the trusted comment, and
// answers which. It is [ErrUnknown] if none of them has the signature's number, and
// [ErrBad] if none of those that have it made the signature.
func (s Signature) Verify(text []byte, keys []Key) (Key, error) {
	message := text
	if s.hashed {
		sum := blake2b.Sum512(text)
		message = sum[:]
	}
	err := ErrUnknown
	for _, k := range keys {
		if k.ID != s.Key || len(k.public) != ed25519.PublicKeySize {
			continue
		}
		if ed25519.Verify(k.public, message, s.signature) && ed25519.Verify(k.public, slices.Concat(s.signature, []byte(s.Comment)), s.global) {
			return k, nil
		}
		err = ErrBad
	}
	return Key{}, err
}

// decode reads base64 of exactly size bytes, in the one form that encoders write.
func decode(line string, size int) ([]byte, error) {
	data, err := base64.StdEncoding.Strict().DecodeString(line)
	if err != nil || len(data) != size || strings.ContainsAny(line, "\r\n") {
		return nil, ErrFormat
	}
	return data, nil
}
