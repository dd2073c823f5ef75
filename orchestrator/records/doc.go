// Package records reads the logs of a user's sessions, of one or of all, through the
// helper: for whatever shows, searches and counts them.
//
// A [Reader] opens logs by the descriptors that the helper hands out, in the order of
// time (package timeline), asks a filter (package query) about each record, and follows
// those of sessions that run. It has no privilege: whose logs it gets is the
// helper's decision.
//
// A place of a log that is damaged is reported and passed over; [Reader.Close] is an error
// then, so that no answer from a damaged record looks like one from a whole one.
package records
