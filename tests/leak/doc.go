// Package leak holds the test that nothing is left behind: jails are made and
// ended, a third of them by SIGKILL of the helper, of a jail's init or of the
// command line at a random moment, and afterwards the machine is compared with
// what it was: mounts, cgroups on every hierarchy, BPF pins, processes, home
// layers, network namespaces, descriptors of the helper.
//
// It needs root and the built programs in AGENTOS_BIN.
package leak
