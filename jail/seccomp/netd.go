package seccomp

import "strings"

// netd lists what agentos-netd calls: a Go program that moves bytes between sockets. Everything else is
// refused, above all programs, files by path, processes of others, and sockets that listen.
func netd() []group {
	return []group{
		{Allow, "sockets that it was handed, and dialling; no bind and no listen", `
			connect accept4 getsockname getpeername getsockopt setsockopt shutdown
			sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg`},
		{Allow, "bytes by descriptor: relaying, rules in memory files", `
			read write readv writev pread64 pwrite64 splice pipe2 close fcntl fstat lseek`},
		{Allow, "waiting", `
			epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 poll ppoll nanosleep clock_nanosleep clock_gettime gettimeofday`},
		{Allow, "memory of the caller", `mmap munmap mprotect madvise brk mincore`},
		{Allow, "Go's threads and their signals: in its process namespace nobody else is there", `
			futex sched_yield sched_getaffinity set_robust_list rseq exit exit_group gettid getpid
			tgkill rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall`},
		{Allow, "facts", `getrandom uname getuid geteuid getgid getegid getrlimit prlimit64`},
		{Check, "threads only: no process, no namespace", `clone`},
		{Check, "TCP, UDP and questions about routes", `socket`},
		{Hide, "its flags lie in memory where a filter cannot look; Go falls back to clone", `clone3`},
	}
}

// newNetdPlan decides every number for agentos-netd.
func newNetdPlan(number resolver) *plan {
	const cloneThread = 0x10000
	decisions := make(map[int]decision)
	enter := func(name string, class Class) {
		d := decision{class: class, name: name}
		switch name {
		case "clone":
			d.refusals = append(namespaceRefusals(false), refuse(eperm, bits(0, cloneThread, 0)))
		case "socket":
			d.refusals = append(socketRefusals(), refuse(eafnosupport, is(0, afUnix)))
		}
		if nr, ok := number(name); ok && nr >= 0 && nr < limit {
			decisions[nr] = d
		}
	}
	for _, call := range Calls() {
		enter(call.Name, Never)
	}
	for _, g := range netd() {
		for _, name := range strings.Fields(g.names) {
			enter(name, g.class)
		}
	}
	return compiled(decisions, Spec{})
}
