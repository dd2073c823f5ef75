package install

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// TestMalformed: nothing of this reaches the thread; real loading is tested by
// package seccomp, in processes of its own.
func TestMalformed(t *testing.T) {
	for name, program := range map[string]string{
		"empty":    "",
		"half":     "1234",
		"too long": strings.Repeat("12345678", maxInsns+1),
		"not bpf":  strings.Repeat("\xff", 8),
	} {
		fd, err := Load([]byte(program), false)
		if fd != -1 || err == nil {
			t.Errorf("%s: %d, %v", name, fd, err)
		}
		if name != "not bpf" && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
