// Package machine finds out, without any privilege, what this machine can
// enforce: the part of `agentos doctor` that works when no helper does.
//
// [Read] collects what the kernel shows to any process; [Assess] is pure and
// turns that into facts, each with good or bad and the one thing to do about it.
// Facts that a helper tells as well have the same names; the helper's count,
// because it tried where this package only read.
//
// Limits: files that only root may read are unknown here, and said to be. A
// feature that is present may still be refused at use: what a jail really has is
// in its receipt.
package machine
