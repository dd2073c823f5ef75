package segment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is the version of the format that this package writes. It reads
// this version only.
const Version = 1

const formatName = "agentos-audit"

// Header is the first frame of every segment, stored as JSON.
type Header struct {
	Format    string    `json:"format"`     // set by the writer: "agentos-audit"
	Version   int       `json:"version"`    // set by the writer
	Session   string    `json:"session"`    // session id, 1 to 64 of [A-Za-z0-9._-], not "." or ".."
	Segment   uint32    `json:"segment"`    // set by the writer: 1, 2, ...
	FirstSeq  uint64    `json:"first_seq"`  // set by the writer: sequence number of the next record
	FirstHead uint64    `json:"first_head"` // set by the writer: number of the next head
	Policy    string    `json:"policy"`     // policy hash, hex
	Kernel    string    `json:"kernel"`     // kernel release
	Key       string    `json:"key"`        // set by the writer: id of the signing key, 16 hex digits
	Created   time.Time `json:"created"`    // set by the writer for this segment
}

// ErrFormat is returned, wrapped, for a file that is not a log of a version
// that this package reads.
var ErrFormat = errors.New("not an audit log of a known version")

func (h *Header) encode() ([]byte, error) { return json.Marshal(h) }

func decodeHeader(payload []byte) (Header, error) {
	var h Header
	if err := json.Unmarshal(payload, &h); err != nil {
		return Header{}, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if h.Format != formatName {
		return Header{}, fmt.Errorf("%w: format %q", ErrFormat, h.Format)
	}
	if h.Version != Version {
		return Header{}, fmt.Errorf("%w: version %d, this program reads %d", ErrFormat, h.Version, Version)
	}
	if err := ValidSession(h.Session); err != nil {
		return Header{}, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if h.Segment == 0 || h.FirstSeq == 0 || h.FirstHead == 0 {
		return Header{}, fmt.Errorf("%w: header without numbers", ErrFormat)
	}
	return h, nil
}

// ReadHeader returns the header of a segment. It checks the frame's hash but
// no signature. Errors wrap [ErrFormat] unless reading itself failed.
func ReadHeader(r io.ReaderAt) (Header, error) {
	f, err := newScanner(r).next()
	var d *damage
	switch {
	case errors.Is(err, io.EOF):
		return Header{}, fmt.Errorf("%w: empty", ErrFormat)
	case errors.As(err, &d):
		return Header{}, fmt.Errorf("%w: header: %s", ErrFormat, d.what)
	case err != nil:
		return Header{}, fmt.Errorf("read header: %w", err)
	case f.kind != frameHeader:
		return Header{}, fmt.Errorf("%w: no header", ErrFormat)
	}
	return decodeHeader(f.payload)
}

// ValidSession reports whether s can name a session: it becomes a directory.
func ValidSession(s string) error {
	ok := len(s) >= 1 && len(s) <= 64 && s != "." && s != ".."
	for _, c := range []byte(s) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || bytes.IndexByte([]byte("._-"), c) >= 0)
	}
	if !ok {
		return fmt.Errorf("session %q: want 1 to 64 of letters, digits, '.', '_' and '-'", s)
	}
	return nil
}
