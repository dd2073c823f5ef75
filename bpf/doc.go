// Package bpf holds the kernel programs of AgentOS and their generated loaders.
//
// C sources and headers are the truth; the .go and .o files beside them are made by
// `go generate ./bpf` (clang, llvm-strip, libbpf-dev) and committed, so that building
// AgentOS needs no compiler for BPF. One object serves every kernel from 6.1 on: it is
// relocated at load (CO-RE) against the running kernel's BTF, and include/kernel.h
// declares only the fields that are read.
//
//	trace.c   exec, fork, exit, leaving the group; opens at sys_exit    every tier
//	net.c     cgroup socket hooks                                       every tier
//	owner.c   which process made a connection that netd took            every tier
//	steer.c   a jail's connections and DNS to netd, by namespace        every tier
//	files.c   paths: open, create, rename, link, remove, attributes     tiers A, B
//	guard.c   exec, mounts, sockets, ptrace, bpf, passed descriptors    tiers A, B
//
// files.c and guard.c are written as BPF LSM programs. audit/hook loads the same
// object as fmod_ret/security_<hook> where bpf is not an active LSM (tier B): context
// and meaning are the same.
//
//	include/record.h    layouts shared with Go
//	include/maps.h      the maps, pinned by name, one set for all objects
//	include/identity.h  which jail is this task in
//	include/walk.h      dentry to path and automaton state, safe under renames
//	include/match.h     the component automaton (policy/glob writes its tables)
//	include/emit.h      counted records
//	include/reach.h     what netd takes from a jail
//
// Nothing here decides policy; programs answer from the automaton and flags they got.
package bpf
