// Package install loads a seccomp filter on the calling thread. It has no cgo,
// so that init can link it; package seccomp builds the programs.
//
// A loaded filter stays for the life of the thread and of everything it forks
// or executes. It is never spread to other threads of the process (no TSYNC): init's
// broker threads must stay outside.
package install
