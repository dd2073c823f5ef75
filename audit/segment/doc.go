// Package segment is the append-only log of one session: events in, records
// with sequence numbers out, and a proof that nothing was removed, changed or
// added.
//
// A log is a directory of files 000001.seg, 000002.seg, ... Each file is a row
// of frames; every frame carries the SHA-256 of the frame before it, across
// files too. A frame is a header (first in a file), a block of compressed
// records, or a head: an Ed25519 signature over the chain so far. The format
// is docs/audit-log.md, with test vectors in testdata.
//
//	000001.seg  H S B B S B ... S(rotated)
//	000002.seg  H S B B S ... S(closed)        H header, B block, S signed head
//
// Promises of the [Writer]:
//
//   - Append is memory only. An owned goroutine writes blocks; another one
//     fsyncs. A SIGKILL of the process loses at most Options.Flush of events
//     (plus one write), a power cut at most Options.SyncEvery more.
//   - Nothing is half-written: a failed write is cut back to the last good
//     frame, the events stay in memory and are tried again, in order.
//     Meanwhile the log is held, [Writer.Append] says [ErrHeld], and the caller
//     stops the jail. It never drops an event that it took.
//   - Heads are signed at least every Options.HeadEvery while there is
//     something to sign, at [Writer.Sync] and at [Writer.Close].
//
// [Resume] goes on after a crash: it cuts an incomplete tail and records a Gap.
// [Open] reads and [Verify] proves; both work from descriptors, unprivileged,
// on any OS, and only with positioned reads, so that a descriptor may be
// shared.
//
// Limits: records after the last head are chained but not signed yet. Whoever
// can write the files and has no key can cut those, or the whole end back to
// any head; the log is then not closed ([Report.Closed]), and a head that was
// kept elsewhere (a witness) shows what is missing. Order is the sequence
// number; times are only told, so that clock jumps change nothing.
package segment
