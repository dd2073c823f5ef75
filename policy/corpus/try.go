package corpus

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
)

// Plant makes the case's tree anew, owned by uid and gid (-1: as it comes). Files are text of mode 0755
// without an interpreter: who may execute them gets ENOEXEC.
func (c *Case) Plant(uid, gid int) error {
	old, err := os.ReadDir(c.Base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range old {
		if err := os.RemoveAll(path.Join(c.Base, e.Name())); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.Base, 0o755); err != nil {
		return err
	}
	for _, d := range c.Dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for _, f := range c.Files {
		if err := os.WriteFile(f, []byte("text\n"), 0o755); err != nil {
			return err
		}
	}
	for _, p := range slices.Concat([]string{c.Base}, c.Dirs, c.Files) {
		if err := os.Lchown(p, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// Phases are the rows by act. The tree is planted before each.
func (c *Case) Phases() [][]Row {
	var out [][]Row
	for i, r := range c.Rows {
		if i == 0 || c.Rows[i-1].Act != r.Act {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

// Allowed reads the errno of an attempt: whether it was allowed, and ok whether it is one of those
// that say so. EXDEV is the refusal to move a directory that makes mv copy.
func Allowed(e syscall.Errno) (allowed, ok bool) {
	switch e {
	case 0, syscall.ENOEXEC:
		return true, true
	case syscall.EACCES, syscall.EPERM, syscall.EXDEV:
		return false, true
	}
	return false, false
}

// Happened looks from outside whether a row's act took place; known is false for acts
// that leave nothing to see.
func (r Row) Happened() (did, known bool) {
	exists := func(p string) bool { _, err := os.Lstat(p); return err == nil }
	switch r.Act {
	case ActCreate, ActMkdir:
		return exists(r.Path), true
	case ActLink:
		return exists(r.To), true
	case ActRename, ActMoveDir:
		return exists(r.To) && !exists(r.Path), true
	case ActUnlink:
		return !exists(r.Path), true
	case ActTruncate:
		fi, err := os.Lstat(r.Path)
		return err == nil && fi.Size() == 0, true
	}
	return false, false
}
