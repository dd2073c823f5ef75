//go:build linux && amd64

package bpf

// Version names this set of programs: hex digits that change with any object. It is
// made when they are, so that a helper that only uses what is pinned never touches them.
func Version() string { return version }
