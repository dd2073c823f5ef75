// Package timeline reads the logs of several sessions as one: their records in
// the order of their wall clocks.
//
// A [Timeline] opens a log when the others have come to the time at which it
// began, and closes it at its end, so that ten thousand sessions need the
// descriptors and the memory of those that ran at the same time. With
// [Timeline.Follow] logs stay open at their end and [Timeline.Next] goes on
// where they have grown.
//
// Within a session the order is that of the sequence numbers, whatever its clock
// did: a record counts as not older than the one before it. Between sessions
// the clock is all there is; it proves nothing.
//
// It opens nothing itself: callers give it functions that do.
package timeline
