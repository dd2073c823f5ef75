//go:build linux && amd64

package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// What the verifier allows (MAX_BPF_STACK, MAX_CALL_FRAMES): bytes of all frames of a chain of calls, and how many.
const (
	stackBytes  = 512
	stackFrames = 8
)

// TestStack: no chain of calls needs more stack than Linux 6.1 gives, which rounds each frame up to 32 bytes (check_max_stack_depth in
// kernel/bpf/verifier.c; callbacks of bpf_loop are calls). It is an upper bound: code counts that the verifier finds unreachable on some kernel.
func TestStack(t *testing.T) {
	most, deepest, where := 0, 0, ""
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"attr": LoadAttr, "files": LoadFiles, "guard": LoadGuard, "net": LoadNet, "owner": LoadOwner, "steer": LoadSteer, "trace": LoadTrace,
	} {
		spec, err := load()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range spec.Programs {
			frames := framesOf(p.Instructions)
			bytes, calls := chain(frames, p.Name)
			if bytes > stackBytes || calls > stackFrames {
				t.Errorf("%s: %s needs %d bytes of stack in %d frames, more than %d in %d", name, p.Name, bytes, calls, stackBytes, stackFrames)
			}
			deepest = max(deepest, calls)
			if bytes > most {
				most, where = bytes, name+": "+p.Name
			}
		}
	}
	if most == 0 {
		t.Fatal("no program uses any stack")
	}
	t.Logf("most: %d of %d bytes (%s), %d of %d frames", most, stackBytes, where, deepest, stackFrames)
}

// frame is one function: how far below its frame pointer it reaches, and what it calls.
type frame struct {
	depth int
	calls []string
}

func framesOf(insns asm.Instructions) map[string]frame {
	frames := map[string]frame{}
	at, f := "", frame{}
	pointer := map[asm.Register]bool{} // registers that are copies of the frame pointer
	for _, in := range insns {
		if s := in.Symbol(); s != "" {
			if at != "" {
				frames[at] = f
			}
			at, f, pointer = s, frame{}, map[asm.Register]bool{}
		}
		op := in.OpCode
		switch {
		case in.IsFunctionReference():
			f.calls = append(f.calls, in.Reference())
		case op.Class().IsLoad() && in.Src == asm.RFP, op.Class().IsStore() && in.Dst == asm.RFP:
			f.depth = max(f.depth, -int(in.Offset))
		case op.Class().IsALU() && op.ALUOp() == asm.Mov:
			pointer[in.Dst] = op.Source() == asm.RegSource && in.Src == asm.RFP
		case op.Class().IsALU() && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && pointer[in.Dst]:
			f.depth = max(f.depth, -int(in.Constant))
			pointer[in.Dst] = false
		}
	}
	frames[at] = f
	return frames
}

// chain is the deepest chain of calls that begins with a function: its bytes and its frames.
func chain(frames map[string]frame, name string) (bytes, calls int) {
	f := frames[name]
	for _, callee := range f.calls {
		b, c := chain(frames, callee)
		bytes, calls = max(bytes, b), max(calls, c)
	}
	return bytes + (max(f.depth, 1)+31)&^31, calls + 1
}
