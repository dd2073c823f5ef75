package event

// Linux open(2) flags that ask for more than reading: O_WRONLY, O_RDWR, O_CREAT, O_TRUNC.
const openChanges = 0o1 | 0o2 | 0o100 | 0o1000

// Asked is what e asked of the rules about files: "read", "write" or "exec", as
// policies call them; "" when it asked nothing of them.
func (e *Event) Asked() string {
	switch e.Kind {
	case Open:
		if e.Flags&openChanges != 0 {
			return "write"
		}
		return "read"
	case Exec:
		return "exec"
	case Create, Mkdir, Mknod, Symlink, Link, Rename, Unlink, Rmdir, Truncate, Chmod, Chown, Setattr:
		return "write"
	}
	return ""
}
