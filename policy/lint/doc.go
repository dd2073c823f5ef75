// Package lint finds what is right in a policy document and probably not meant: rules
// that say nothing, rules that are too wide, secrets that can be read, and files that can
// be written and that programs outside of the jail execute or obey.
//
// It promises that a rule which it calls covered or without effect is so for every path:
// that is asked of the automaton (policy/glob), not of examples. Secrets and what is
// executed are lists of usual names; what is not on them is not found. It touches no file
// and judges no act: a document with findings is as valid as one without.
package lint
