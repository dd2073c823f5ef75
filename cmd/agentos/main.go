//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentos runs AI coding agents in jails and shows what they did.
//
// It has the rights of the user who calls it. What needs root is asked of
// agentos-helper over its socket; see package jail/rpc for that conversation and
// package orchestrator for everything this command does with it. The files here
// parse flags and print.
//
// Data goes to stdout and nothing else does; stderr is for people: lines begin
// with "agentos: ", and one that begins with "hint: " follows when there is
// something to do. Every listing has --json. Names that an agent may have chosen
// are printed through event.Printable.
//
// Exit statuses: the agent's own; 3 trust --check found something; 125 AgentOS failed, 126 refused by policy, 127
// command not found.
//
// No package it imports may be slow to initialise: a command reaches the helper
// within 15 ms of its start. For that reason, too, the runtime does not read the
// CPU limit of the cgroup at each start: this program hardly computes.
package main

import (
	"context"
	"os"
	"runtime"
)

func main() {
	if len(os.Args) > 1 && (os.Args[1] == "run" || os.Args[1] == "exec") {
		runtime.GOMAXPROCS(1) // they carry bytes: waking threads for it takes longer than it takes
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
