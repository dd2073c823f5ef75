// Package selftest holds kernel programs that exist only to test package bpf's headers
// with real maps and a real verifier. Nothing but tests imports it.
//
// It promises nothing to users of AgentOS: its one program walks a compiled
// automaton with the headers' two ways of doing so, and a test compares both with
// the evaluator in Go.
package selftest

//go:generate go tool bpf2go -tags linux -target amd64 -no-global-types -type question Step step.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu
