// Package corpus draws policies, trees of files and questions for the tests of everything
// that decides file operations: the Go evaluator, the BPF programs, the broker and
// `agentos policy explain`. All of them are asked the same rows, so that one that
// disagrees is found whichever it is.
//
// Rules, paths and operations are drawn from a seed and the same for ever.
// The right answer is [Case.Allows], written from docs/policy.md; it gets the matcher as
// an argument (glob.Reference) and uses no code of an evaluator. What it leaves to
// package glob is which directories may move: that needs the whole future of a tree.
//
// It also draws the large sets of globs that compiling is measured with ([Mixed]).
//
// Nothing but tests and benchmarks imports it.
package corpus
