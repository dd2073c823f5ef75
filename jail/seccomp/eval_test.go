package seccomp

import (
	"encoding/binary"
	"testing"
)

// data is struct seccomp_data.
type data struct {
	nr   uint32
	arch uint32
	ip   uint64
	args [6]uint64
}

func (d data) bytes() []byte {
	b := binary.NativeEndian.AppendUint32(nil, d.nr)
	b = binary.NativeEndian.AppendUint32(b, d.arch)
	b = binary.NativeEndian.AppendUint64(b, d.ip)
	for _, a := range d.args {
		b = binary.NativeEndian.AppendUint64(b, a)
	}
	return b
}

// result is what a filter answered, and whether it read anything beyond number and
// architecture to get there: if not, and it allows, the kernel serves the call from its
// bitmap (kernel/seccomp.c, seccomp_is_const_allow).
type result struct {
	ret      uint32
	constant bool
	steps    int
}

// eval runs classic BPF as the kernel does. It fails the test on anything
// that libseccomp and the guard do not use.
func eval(t *testing.T, prog []insn, d data) result {
	t.Helper()
	var a, x uint32
	var mem [16]uint32
	in := d.bytes()
	out := result{constant: true}
	for pc := 0; pc < len(prog); pc++ {
		i := prog[pc]
		out.steps++
		jump := func(yes bool) {
			if yes {
				pc += int(i.jt)
			} else {
				pc += int(i.jf)
			}
		}
		switch i.code {
		case 0x20: // ld [k]
			a = binary.NativeEndian.Uint32(in[i.k:])
			if i.k >= 8 {
				out.constant = false
			}
		case 0x60: // ld M[k]
			a = mem[i.k]
		case 0x02: // st M[k]
			mem[i.k] = a
		case 0x00: // ld #k
			a = i.k
		case 0x07: // tax
			x = a
		case 0x87: // txa
			a = x
		case 0x54: // and #k
			a &= i.k
		case 0x05: // ja
			pc += int(i.k)
		case 0x15:
			jump(a == i.k)
		case 0x25:
			jump(a > i.k)
		case 0x35:
			jump(a >= i.k)
		case 0x45:
			jump(a&i.k != 0)
		case 0x06: // ret #k
			out.ret = i.k
			return out
		default:
			t.Fatalf("instruction %d: unexpected code %#x", pc, i.code)
		}
	}
	t.Fatal("ran off the end")
	return out
}
