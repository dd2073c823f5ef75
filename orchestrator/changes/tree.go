package changes

import "os"

// Limits bound one walk.
type Limits struct {
	Names int // seen in all; 0 = [DefaultNames]
}

// DefaultNames is how many names a walk looks at: about 200 bytes of memory each.
const DefaultNames = 1 << 20

// Kind is what a name stands for.
type Kind string

// Kinds of names. Removed ones are in overlays only.
const (
	File    Kind = "file"
	Dir     Kind = "dir"
	Link    Kind = "link"
	FIFO    Kind = "fifo"
	Socket  Kind = "socket"
	Device  Kind = "device"
	Removed Kind = "removed" // was removed from what the overlay lies over
)

// Tree is a directory that was handed out, and where it is in the jail.
type Tree struct {
	Path    string // absolute, inside
	Overlay bool   // it holds only what differs from the host's
	dir     *os.File
}

// Entry is one name in a tree.
type Entry struct {
	Rel  string // below the tree; "" is its top
	Kind Kind
	Size int64 // bytes that a file says it has
	Disk int64 // bytes that it takes, 0 for a further name of the same file
	Mode uint32
	Own  bool // the agent made it; else a place for a mount, or a copy of the host's

	ino, nlink uint64
}

// Totals are over a walk.
type Totals struct {
	Names  int   `json:"names"`          // walked
	Size   int64 `json:"size"`           // bytes, of files
	Disk   int64 `json:"disk"`           // bytes on disk
	Unread int   `json:"unread"`         // directories that could not be read, or lie too deep
	More   bool  `json:"more,omitempty"` // the walk ended at its bound
}
