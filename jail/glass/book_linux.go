package glass

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Grant is one breaking of the glass.
type Grant struct {
	ID     string    `json:"id"` // of the session whose log has the record of it
	UID    int       `json:"uid"`
	Reason string    `json:"reason"`
	Files  []string  `json:"files"` // of the organisation, that it does without
	From   time.Time `json:"from"`  // by the wall clock, to be shown
	Until  time.Time `json:"until"` // the same

	Boot string        `json:"boot"` // the boot it holds in
	Ends time.Duration `json:"ends"` // CLOCK_BOOTTIME at which it does not hold any more
}

// Book keeps the grants in a file. Its methods may be called by many goroutines.
type Book struct {
	path string
	boot string
	now  func() time.Duration // CLOCK_BOOTTIME

	mu   sync.Mutex
	list []Grant
}

// Open reads the grants that are kept in the file at path, which need not exist; the
// directory must be root's alone. On an error the book is usable and empty.
func Open(path string) (*Book, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	b := &Book{path: path, boot: strings.TrimSpace(string(boot)), now: bootTime}
	if err != nil {
		return b, fmt.Errorf("tell boots apart: %w", err)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &b.list)
	}
	if err != nil {
		b.list = nil
		return b, fmt.Errorf("read grants: %w", err)
	}
	return b, nil
}

// bootTime is CLOCK_BOOTTIME, which no user sets and which goes on in suspension
// (clock_gettime(2)).
func bootTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 1<<63 - 1 // cannot happen; nothing holds then
	}
	return time.Duration(ts.Nano())
}

// Begin starts a grant for d, in the place of one that its user has, and answers it with
// its times. It holds once it is on disk.
func (b *Book) Begin(g Grant, d time.Duration) (Grant, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.boot == "" {
		return g, errors.New("boots cannot be told apart: a grant would outlive this one")
	}
	g.From = time.Now().UTC()
	g.Until, g.Boot, g.Ends = g.From.Add(d), b.boot, b.now()+d
	return g, b.replace(g.UID, &g)
}

// End ends the grant of a user, and answers the one that there was.
func (b *Book) End(uid int) (g Grant, was bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g, was = b.of(uid)
	if was {
		err = b.replace(uid, nil)
	}
	return g, was, err
}

// Of is the grant that a user has at this moment.
func (b *Book) Of(uid int) (Grant, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(uid)
}

// Holds reports whether g still is in force: not over, not ended, and not another's turn.
func (b *Book) Holds(g Grant) bool {
	now, ok := b.Of(g.UID)
	return ok && now.ID == g.ID
}

func (b *Book) of(uid int) (Grant, bool) {
	for _, g := range b.list {
		if g.UID == uid && b.holds(g) {
			return g, true
		}
	}
	return Grant{}, false
}

func (b *Book) holds(g Grant) bool { return b.boot != "" && g.Boot == b.boot && b.now() < g.Ends }

// replace writes the list with g, or nothing, in the place of what the user has. What is
// over goes. b.mu is held.
func (b *Book) replace(uid int, g *Grant) error {
	list := slices.DeleteFunc(slices.Clone(b.list), func(o Grant) bool { return o.UID == uid || !b.holds(o) })
	if g != nil {
		list = append(list, *g)
	} else {
		b.list = list // what ends has ended, whatever the disk says
	}
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := write(b.path, append(data, '\n')); err != nil {
		return fmt.Errorf("keep grants: %w", err)
	}
	b.list = list
	return nil
}

// write replaces the file at once, and returns when it is on disk.
func write(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
