// Package repo reads git repositories without git, so that nothing which is
// configured in one runs: no hook, filter, text converter, file system monitor,
// credential helper or remote.
//
// It reads what AgentOS needs and no more: settings of a configuration file
// ([ParseConfig]), where HEAD stands ([Head]), and what a commit had at a path
// ([Store]). It follows no include, alternate, graft or replacement, and fetches
// nothing.
//
// An object is believed when its bytes hash to its id. A commit id that was
// noted before an agent touched the repository therefore names what the
// repository held then, whatever the agent wrote since; what it deleted or
// broke is an error. (SHA-1 repositories share SHA-1's weakness: two files that
// an attacker made as a pair can have one id.)
//
// All files are opened beneath a descriptor, through no symbolic link, and sizes
// are bounded.
package repo
