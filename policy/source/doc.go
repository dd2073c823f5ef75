// Package source reads the TOML of a policy file into nodes that know where they
// stand, and says what is wrong with it at file:line:col.
//
// It promises that all of TOML's own rules are checked, duplicate keys among them,
// and that every node has a place. It knows no key of a policy: package policy does.
// It is apart from it so that what only rewrites or compares text needs no policy.
package source
