package packet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxSize is the largest datagram accepted, in bytes.
	MaxSize = 64 << 10
	// MaxFDs is the largest number of descriptors beside one datagram. The
	// kernel's limit is 253 (unix(7)).
	MaxFDs = 16
)

var (
	// ErrTooLarge is returned for a message above [MaxSize] or [MaxFDs].
	ErrTooLarge = errors.New("message too large")
	// ErrMalformed is returned for a datagram that is not exactly one JSON
	// object of the expected shape.
	ErrMalformed = errors.New("malformed message")
	// ErrEmpty is returned by [Conn.TryRecv] when nothing is there.
	ErrEmpty = errors.New("no message")
)

// Unmarshal decodes exactly one JSON object from data into v and refuses
// unknown fields and trailing bytes with [ErrMalformed].
func Unmarshal(data []byte, v any) error {
	if len(data) > MaxSize {
		return ErrTooLarge
	}
	return UnmarshalDocument(data, v)
}

// UnmarshalDocument is [Unmarshal] without the size of a datagram as its bound;
// for documents that travel in a sealed memfd.
func UnmarshalDocument(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data after the object", ErrMalformed)
	}
	return nil
}
