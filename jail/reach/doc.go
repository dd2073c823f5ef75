// Package reach makes of the [net] section of a resolved policy the rules that
// netd serves a jail by. It is pure: it opens nothing and asks nobody.
//
//	policy.Resolved, grants --Rules--> netpolicy.Rules
//
// Layers stay layers: what is allowed has a rule in each layer that has such a
// list, and no denial in any. So netd can grant nothing that
// [policy.Resolved.Explain] would not; a test compares the two.
//
// A [Grant], what a user said of a jail that runs, stands in the lists of the
// user, the project and the profile; those of the organisation still have to
// allow it, and every denial holds. A test compares that with
// [policy.Resolved.CheckGrant], which only says it earlier.
//
// What netd cannot carry is an error and not left out: [ErrUnserved].
package reach
