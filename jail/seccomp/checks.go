package seccomp

import "slices"

// Argument checks. Numbers are those of the kernel's ABI, written out because
// this part of the package builds on every OS.
//
// The kernel reads most arguments as 32-bit int and ignores the upper half of
// the register; libseccomp compares 64 bits. Equality therefore always goes
// through a mask (TIOCSTI | 1<<32 is TIOCSTI); "above" may look at all 64 bits,
// which then refuses odd upper halves too.

// op is how a condition compares an argument.
type op uint8

const (
	masked op = iota // arg & mask == value
	above            // arg > value, 64 bits
	other            // arg != value, 64 bits
)

// cond is one comparison of one argument.
type cond struct {
	arg   uint
	op    op
	value uint64
	mask  uint64
}

// refusal answers errno when all conditions hold. A filter may look at one
// argument only once in a rule.
type refusal struct {
	errno errno
	conds []cond
}

// errno is a Linux error number (asm-generic, the same on amd64 and arm64).
type errno int16

const (
	eperm           errno = 1
	enosys          errno = 38
	eprotonosupport errno = 93
	eafnosupport    errno = 97
)

const low32 = 0xffffffff

func is(arg uint, value uint64) cond        { return cond{arg, masked, value, low32} }
func bits(arg uint, mask, val uint64) cond  { return cond{arg, masked, val, mask} }
func over(arg uint, value uint64) cond      { return cond{arg, above, value, 0} }
func isNot(arg uint, value uint64) cond     { return cond{arg, other, value, 0} }
func refuse(e errno, conds ...cond) refusal { return refusal{e, conds} }

// refusals returns what a checked call refuses, or nil for a call that is not
// checked.
func refusals(name string, userns bool) []refusal {
	switch name {
	case "clone", "unshare":
		return namespaceRefusals(userns)
	case "socket":
		return socketRefusals()
	case "socketpair":
		return []refusal{refuse(eafnosupport, isNot(0, afUnix))}
	case "ioctl":
		return ioctlRefusals()
	case "prctl":
		return []refusal{refuse(eperm, is(0, 35))} // PR_SET_MM
	case "personality":
		return personalityRefusals()
	case "seccomp":
		// SECCOMP_SET_MODE_FILTER with SECCOMP_FILTER_FLAG_NEW_LISTENER
		return []refusal{refuse(eperm, is(0, 1), bits(1, 1<<3, 1<<3))}
	case "mknod":
		return deviceRefusals(1)
	case "mknodat":
		return deviceRefusals(2)
	}
	return nil
}

// namespaceRefusals: CLONE_NEW* in the flags. CLONE_NEWTIME (0x80) is a signal
// bit in clone, but no signal number that clone takes has it.
func namespaceRefusals(userns bool) []refusal {
	const (
		newTime, newNS, newCgroup, newUTS = 0x80, 0x20000, 0x2000000, 0x4000000
		newIPC, newUser, newPID, newNet   = 0x8000000, 0x10000000, 0x20000000, 0x40000000
	)
	flags := []uint64{newTime, newNS, newCgroup, newUTS, newIPC}
	if !userns {
		flags = append(flags, newUser, newPID, newNet)
	}
	var out []refusal
	for _, f := range flags {
		out = append(out, refuse(eperm, bits(0, f, f)))
	}
	return out
}

const (
	afUnix, afInet, afInet6, afNetlink = 1, 2, 10, 16
	protoTCP, protoUDP                 = 6, 17
)

// socketRefusals: the families are refused by one "above" and the gaps below it,
// so the list is complete. For inet, the type nibble must be stream (1) or
// datagram (2) and the protocol 0, TCP or UDP: no raw, no ICMP, and none of
// SCTP, DCCP, UDP-Lite, MPTCP (Go falls back) and SMC. Several reasons may hold at
// once; which error then wins is libseccomp's choice.
func socketRefusals() []refusal {
	out := []refusal{
		refuse(eafnosupport, over(0, afNetlink)),
		refuse(eprotonosupport, is(0, afNetlink), isNot(2, 0)), // NETLINK_ROUTE
	}
	for _, c := range except(0, afNetlink, afUnix, afInet, afInet6, afNetlink) {
		out = append(out, refuse(eafnosupport, c))
	}
	for _, family := range []uint64{afInet, afInet6} {
		f := is(0, family)
		out = append(out,
			refuse(eperm, f, bits(1, 4, 4)),   // DCCP (6), SEQPACKET (5), RDM (4)
			refuse(eperm, f, bits(1, 8, 8)),   // PACKET (10)
			refuse(eperm, f, bits(1, 3, 3)),   // RAW (3)
			refuse(eperm, f, bits(1, 0xf, 0)), // none
			refuse(eprotonosupport, f, over(2, protoUDP)))
		for _, c := range except(2, protoUDP, 0, protoTCP, protoUDP) {
			out = append(out, refuse(eprotonosupport, f, c))
		}
	}
	return out
}

// except returns conditions that together cover the values from 0 to last of a
// 32-bit argument without the kept ones (ascending), in as few aligned blocks
// as possible.
func except(arg uint, last uint64, kept ...uint64) []cond {
	var out []cond
	for from := uint64(0); from <= last; {
		if slices.Contains(kept, from) {
			from++
			continue
		}
		size := uint64(1)
		for from%(2*size) == 0 && from+2*size-1 <= last && !slices.ContainsFunc(kept, func(k uint64) bool {
			return from <= k && k < from+2*size
		}) {
			size *= 2
		}
		out = append(out, bits(arg, low32&^(size-1), from))
		from += size
	}
	return out
}

// ioctlRefusals: pushing input (TIOCSTI, TIOCLINUX; CVE-2017-5226,
// CVE-2023-28339), taking the console, and line disciplines, which load
// modules.
func ioctlRefusals() []refusal {
	var out []refusal
	for _, request := range []uint64{
		0x5412, // TIOCSTI
		0x541c, // TIOCLINUX
		0x541d, // TIOCCONS
		0x5423, // TIOCSETD
	} {
		out = append(out, refuse(eperm, is(1, request)))
	}
	return out
}

// personalityRefusals: everything but 0 (PER_LINUX) and 0xffffffff (query).
// A word of 32 bits that is neither all zeros nor all ones has, going round, a
// one whose next higher neighbour is a zero.
func personalityRefusals() []refusal {
	var out []refusal
	for i := range 32 {
		one, zero := uint64(1)<<i, uint64(1)<<((i+1)%32)
		out = append(out, refuse(eperm, bits(0, one|zero, one)))
	}
	return out
}

// deviceRefusals: S_IFCHR and S_IFBLK in the mode.
func deviceRefusals(mode uint) []refusal {
	const format, char, block = 0xf000, 0x2000, 0x6000
	return []refusal{
		refuse(eperm, bits(mode, format, char)),
		refuse(eperm, bits(mode, format, block)),
	}
}
