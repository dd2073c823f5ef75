package orchestrator

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/agentos/agentos/jail/rpc"
)

// Log is the record of one session: descriptors that the helper opened, read
// here without a privilege.
type Log struct {
	rpc.LogFiles // Names and Files are in order, oldest first, and complete
	Files        []*os.File
}

// OpenLog asks for the record of a session, by id or name; "" is the caller's
// newest one.
func OpenLog(ctx context.Context, g Gate, session string) (*Log, error) {
	l := &Log{}
	before := ""
	for {
		var part rpc.LogFiles
		files, err := g.CallFDs(ctx, rpc.Log, rpc.LogRef{Session: session, Before: before}, &part)
		if err == nil && len(files) != len(part.Names) {
			err = fmt.Errorf("helper sent %d descriptors for %d segments", len(files), len(part.Names))
		}
		if err != nil {
			closeFiles(files)
			_ = l.Close()
			return nil, fmt.Errorf("open log: %w", err)
		}
		if before != "" {
			part.Live, part.Names = l.Live, slices.Concat(part.Names, l.Names)
			files = slices.Concat(files, l.Files)
		}
		session = part.Session // the same one, should names be reused meanwhile
		l.LogFiles, l.Files = part, files
		if !part.More || len(part.Names) == 0 || part.Names[0] == before {
			l.More = false
			return l, nil
		}
		before = part.Names[0]
	}
}

// Close closes the segments.
func (l *Log) Close() error {
	closeFiles(l.Files)
	return nil
}

// Newer asks whether the log has got segments since, adds them, and returns
// those.
func (l *Log) Newer(ctx context.Context, g Gate) ([]*os.File, error) {
	var part rpc.LogFiles
	files, err := g.CallFDs(ctx, rpc.Log, rpc.LogRef{Session: l.Session}, &part)
	if err != nil {
		return nil, fmt.Errorf("follow log: %w", err)
	}
	l.Live = part.Live
	var added []*os.File
	for i, f := range files {
		if i >= len(part.Names) || slices.Contains(l.Names, part.Names[i]) {
			_ = f.Close()
			continue
		}
		l.Names, l.Files, added = append(l.Names, part.Names[i]), append(l.Files, f), append(added, f)
	}
	return added, nil
}
