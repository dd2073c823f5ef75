//go:build linux

// Command count measures, inside the machine of tests/kernel/count.sh, what the kernel programs cost: system calls bare, with
// the programs attached but outside of all jails, and in jails under policies of 10 and of 1,000 mixed globs. The machine's
// clock counts instructions, so the figures do not depend on what else the host does. It prints one line for each call
// and contestant; the script makes the table.
//
// It asserts nothing but that every call succeeds.
package main
