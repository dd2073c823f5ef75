package segment

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// HeadState says what a head closes.
type HeadState uint8

// States of a head.
const (
	Running HeadState = iota // more follows in this segment
	Rotated                  // last frame of this segment; the next segment follows
	Closed                   // last frame of the log
)

// Head is a signature over everything in a log up to a record. It proves its
// part of the log on its own: kept elsewhere, it is a witness against
// truncation.
type Head struct {
	Session   string    `json:"session"`
	Segment   uint32    `json:"segment"`
	Number    uint64    `json:"number"`    // 1, 2, ... over the whole log
	Seq       uint64    `json:"seq"`       // last record that it covers, 0 for none
	Wall      int64     `json:"wall"`      // ns since 1970
	Mono      uint64    `json:"mono"`      // CLOCK_BOOTTIME, ns
	State     HeadState `json:"state"`     // 0 running, 1 rotated, 2 closed
	Chain     []byte    `json:"chain"`     // hash of the frame before the head, 32 bytes
	Key       []byte    `json:"key"`       // id of the key, 8 bytes
	Signature []byte    `json:"signature"` // Ed25519, 64 bytes
}

// Time returns the wall clock of the head.
func (h *Head) Time() time.Time { return time.Unix(0, h.Wall).UTC() }

const (
	headPayload = 8 + 8 + 8 + 8 + 1 + keyIDSize + ed25519.SignatureSize
	headDomain  = "agentos-audit-head-1\x00"
	keyIDSize   = 8
)

// message returns the bytes that are signed.
func (h *Head) message() []byte {
	m := append([]byte(headDomain), byte(len(h.Session)))
	m = append(m, h.Session...)
	m = binary.LittleEndian.AppendUint32(m, h.Segment)
	m = h.appendNumbers(m)
	return append(m, h.Chain...)
}

func (h *Head) appendNumbers(m []byte) []byte {
	m = binary.LittleEndian.AppendUint64(m, h.Number)
	m = binary.LittleEndian.AppendUint64(m, h.Seq)
	m = binary.LittleEndian.AppendUint64(m, uint64(h.Wall))
	m = binary.LittleEndian.AppendUint64(m, h.Mono)
	m = append(m, byte(h.State))
	return append(m, h.Key...)
}

func (h *Head) sign(k Key) {
	h.Key = keyID(k.Public())
	h.Signature = ed25519.Sign(k.private, h.message())
}

func (h *Head) encode() []byte { return append(h.appendNumbers(nil), h.Signature...) }

// decodeHead decodes a head's payload; session, segment and chain are the
// reader's knowledge.
func decodeHead(p []byte, session string, segment uint32, chain hash) (Head, error) {
	if len(p) != headPayload {
		return Head{}, fmt.Errorf("head of %d bytes, want %d", len(p), headPayload)
	}
	h := Head{
		Session: session, Segment: segment, Chain: chain[:],
		Number: binary.LittleEndian.Uint64(p),
		Seq:    binary.LittleEndian.Uint64(p[8:]),
		Wall:   int64(binary.LittleEndian.Uint64(p[16:])),
		Mono:   binary.LittleEndian.Uint64(p[24:]),
		State:  HeadState(p[32]),
		Key:    bytes.Clone(p[33:41]), Signature: bytes.Clone(p[41:]),
	}
	if h.State > Closed {
		return Head{}, fmt.Errorf("head in state %d", h.State)
	}
	return h, nil
}

// ErrSignature is returned, wrapped, for a head that the key did not sign.
var ErrSignature = errors.New("signature does not match")

// Verify checks that the owner of pub signed h. Errors wrap [ErrSignature].
func (h *Head) Verify(pub ed25519.PublicKey) error {
	switch {
	case len(pub) != ed25519.PublicKeySize:
		return fmt.Errorf("%w: public key of %d bytes", ErrSignature, len(pub))
	case !bytes.Equal(h.Key, keyID(pub)):
		return fmt.Errorf("%w: signed by key %x, not by %x", ErrSignature, h.Key, keyID(pub))
	case len(h.Chain) != sha256.Size || len(h.Session) > 255 || !ed25519.Verify(pub, h.message(), h.Signature):
		return ErrSignature
	}
	return nil
}

// keyID is the first 8 bytes of the SHA-256 of a public key.
func keyID(pub ed25519.PublicKey) []byte {
	sum := sha256.Sum256(pub)
	return sum[:keyIDSize]
}

// KeyID returns the id of a public key as in headers and reports: 16 hex digits.
func KeyID(pub ed25519.PublicKey) string { return hex.EncodeToString(keyID(pub)) }
