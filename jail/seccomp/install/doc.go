// Package install loads a seccomp filter on the calling thread, or on all threads of
// the process. It has no cgo, so that init and netd can link it; package seccomp builds the programs.
//
// A loaded filter stays for the life of the thread and of everything it forks
// or executes. [Load] never spreads it to other threads: init's broker threads must
// stay outside. [LoadAll] does, at once (netd).
package install
