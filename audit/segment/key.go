package segment

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
)

// Key signs heads. The zero Key signs nothing: [Create] refuses it.
type Key struct{ private ed25519.PrivateKey }

// NewKey makes a key from fresh randomness.
func NewKey() Key {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil { // crypto/rand never fails since Go 1.24
		return Key{}
	}
	return Key{private}
}

// Public returns the key that [Verify] takes, or nil for the zero Key.
func (k Key) Public() ed25519.PublicKey {
	if k.private == nil {
		return nil
	}
	return k.private.Public().(ed25519.PublicKey)
}

// ID returns 16 hex digits that name the key in headers and reports.
func (k Key) ID() string { return KeyID(k.Public()) }

const (
	keyPrefix    = "agentos-audit-key-1 "
	publicPrefix = "agentos-audit-pub-1 "
)

func (k Key) text() string {
	return keyPrefix + base64.StdEncoding.EncodeToString(k.private.Seed()) + "\n"
}

func parseKey(text string) (Key, error) {
	seed, err := parseBase64(text, keyPrefix, ed25519.SeedSize)
	if err != nil {
		return Key{}, fmt.Errorf("parse audit key: %w", err)
	}
	return Key{ed25519.NewKeyFromSeed(seed)}, nil
}

// FormatPublic returns pub as one line of text, as audit.pub holds it.
func FormatPublic(pub ed25519.PublicKey) string {
	return publicPrefix + base64.StdEncoding.EncodeToString(pub) + "\n"
}

// ParsePublic is the inverse of [FormatPublic].
func ParsePublic(text string) (ed25519.PublicKey, error) {
	pub, err := parseBase64(text, publicPrefix, ed25519.PublicKeySize)
	if err != nil {
		return nil, fmt.Errorf("parse public audit key: %w", err)
	}
	return pub, nil
}

func parseBase64(text, prefix string, size int) ([]byte, error) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return nil, fmt.Errorf("want a line %q and base64", strings.TrimSpace(prefix))
	}
	data, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSuffix(rest, "\n"))
	if err != nil {
		return nil, err
	}
	if len(data) != size {
		return nil, fmt.Errorf("%d bytes, want %d", len(data), size)
	}
	return data, nil
}
