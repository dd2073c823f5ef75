package segment

import (
	"fmt"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Compressor compresses the blocks of any number of logs, one at a time: some
// hundred MB a second. What it needs for that, 300 KB, it has while one of them is
// written to. The zero value is ready; its use is safe by several goroutines.
type Compressor struct {
	mu    sync.Mutex
	zstd  *zstd.Encoder
	users int         // logs that are written to
	idle  *time.Timer // until the memory is given back; nil before the first time
}

// take returns the encoder, which may be used until give.
func (c *Compressor) take() (*zstd.Encoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zstd == nil {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(128<<10))
		if err != nil {
			return nil, fmt.Errorf("make zstd encoder: %w", err)
		}
		c.zstd = z
	}
	c.users++
	return c.zstd, nil
}

// give ends a use. The memory stays for a while: the next log is often not far.
func (c *Compressor) give() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users > 0 {
		return
	}
	if c.idle == nil {
		c.idle = time.AfterFunc(restAfter, c.drop)
		return
	}
	c.idle.Reset(restAfter)
}

func (c *Compressor) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users > 0 || c.zstd == nil {
		return
	}
	_ = c.zstd.Close() // nothing is on its way: EncodeAll has returned
	c.zstd = nil
}
