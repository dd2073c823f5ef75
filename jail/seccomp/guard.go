package seccomp

import "encoding/binary"

// Classic BPF, as much as the guard needs (linux/filter.h, linux/seccomp.h).
const (
	opLoad  = 0x20 // BPF_LD | BPF_W | BPF_ABS
	opJumpE = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
	opJumpG = 0x35 // BPF_JMP | BPF_JGE | BPF_K
	opRet   = 0x06 // BPF_RET | BPF_K

	dataNR   = 0 // offsetof(struct seccomp_data, nr)
	dataArch = 4

	retErrno = 0x00050000 // SECCOMP_RET_ERRNO
)

// insn is one instruction.
type insn struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// guard returns the instructions in front of libseccomp's: a foreign
// architecture, numbers from limit up (x32 numbers among them) and the spans answer
// ENOSYS; -1 and everything else falls through.
func guard(arch uint32, spans []span) []insn {
	absent := insn{opRet, 0, 0, retErrno | uint32(enosys)}
	out := []insn{
		{opLoad, 0, 0, dataArch},
		{opJumpE, 1, 0, arch},
		absent,
		{opLoad, 0, 0, dataNR},
	}
	// -1 jumps over everything that follows: 2 instructions for the limit, 3 for each span.
	out = append(out,
		insn{opJumpE, uint8(2 + 3*len(spans)), 0, 0xffffffff},
		insn{opJumpG, 0, 1, limit},
		absent)
	for _, s := range spans {
		out = append(out,
			insn{opJumpG, 2, 0, uint32(s.to)},
			insn{opJumpG, 0, 1, uint32(s.from)},
			absent)
	}
	return out
}

// encode returns instructions as the kernel reads them.
func encode(insns []insn) Program {
	out := make(Program, 0, 8*len(insns))
	for _, i := range insns {
		out = binary.NativeEndian.AppendUint16(out, i.code)
		out = append(out, i.jt, i.jf)
		out = binary.NativeEndian.AppendUint32(out, i.k)
	}
	return out
}

// decode is the inverse of encode.
func decode(p Program) []insn {
	var out []insn
	for ; len(p) >= 8; p = p[8:] {
		out = append(out, insn{
			binary.NativeEndian.Uint16(p), p[2], p[3], binary.NativeEndian.Uint32(p[4:]),
		})
	}
	return out
}
