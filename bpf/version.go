//go:build linux && amd64

package bpf

import (
	"crypto/sha256"
	"encoding/hex"
)

// Version names this set of programs: hex digits that change with any object.
func Version() string {
	h := sha256.New()
	for _, object := range [][]byte{_TraceBytes, _NetBytes, _FilesBytes, _GuardBytes} {
		h.Write(object)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
