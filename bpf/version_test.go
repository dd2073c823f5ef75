//go:build linux && amd64

package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

func TestVersionIsOfTheseObjects(t *testing.T) {
	h := sha256.New()
	for _, object := range [][]byte{_TraceBytes, _NetBytes, _FilesBytes, _GuardBytes, _AttrBytes, _OwnerBytes, _SteerBytes} {
		h.Write(object)
	}
	if want := hex.EncodeToString(h.Sum(nil))[:16]; Version() != want {
		t.Errorf("version %s, want %s: run bpf/version.sh", Version(), want)
	}
}
