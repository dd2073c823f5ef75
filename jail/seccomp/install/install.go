package install

// insnSize is sizeof(struct sock_filter).
const insnSize = 8

// maxInsns is the kernel's limit (BPF_MAXINSNS).
const maxInsns = 4096

// valid reports whether a program has a length that the kernel would take.
func valid(program []byte) bool {
	n := len(program)
	return n > 0 && n%insnSize == 0 && n/insnSize <= maxInsns
}
