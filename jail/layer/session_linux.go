package layer

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Session is the layer of one session.
type Session struct {
	dir      string
	uid, gid int
	overlays int
}

// Make makes the layer of a session in dir, which must not exist; its directories
// belong to the host ids uid and gid, the agent's. Nobody but root reaches them
// by their paths.
func Make(dir string, uid, gid int) (*Session, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Session{dir: dir, uid: uid, gid: gid}
	return s, s.mkdir(s.Home(), 0o750)
}

// Home is the path of the home.
func (s *Session) Home() string { return filepath.Join(s.dir, "home") }

func (s *Session) mkdir(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if err := os.Chown(path, s.uid, s.gid); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask is
}

// Overlay makes the directories of one more overlay and returns the path of the
// one that holds [Upper] and [Work]. mode is of the overlay's top: that of what
// it lies over.
func (s *Session) Overlay(mode os.FileMode) (string, error) {
	dir := filepath.Join(s.dir, "overlay-"+strconv.Itoa(s.overlays))
	s.overlays++
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", err
	}
	for name, mode := range map[string]os.FileMode{Upper: mode.Perm(), Work: 0o700} {
		if err := s.mkdir(filepath.Join(dir, name), mode); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Names in the directory that [Session.Overlay] returns.
const (
	Upper = "upper"
	Work  = "work"
)

// Remove removes the layer with all that is in it. Its processes have ended.
func (s *Session) Remove() error {
	if err := Remove(s.dir); err != nil {
		return fmt.Errorf("remove home layer: %w", err)
	}
	return nil
}
