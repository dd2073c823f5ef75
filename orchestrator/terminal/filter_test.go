package terminal

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func run(f *Filter, in string) string { return string(f.Write(nil, []byte(in))) }

// byByte feeds one byte at a time: where reads fall must not matter.
func byByte(f *Filter, in string) string {
	var out []byte
	for i := range len(in) {
		out = f.Write(out, []byte{in[i]})
	}
	return string(out)
}

func TestFilterPassesEverythingElse(t *testing.T) {
	for _, in := range []string{
		"plain text\r\n", "日本語 👩‍👩‍👧‍👦 ✅", "\u00a0\u00bf\u0085", "\x1b[31mred\x1b[0m", "\x1b[?1049h\x1b[2J\x1b[H",
		"\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "\x1bP0;1|17/ab\x1b\\", "\x1b]4;1;rgb:ff/00/00\x07", "\x1b(0lqk\x1b(B",
		"\xff\xfe\x80broken", "\x1b]1337;SetMark\x07", "\x1b_Gf=24;AAAA\x1b\\", "\x1b\x1b[A", "\x1bPtmux;\x1b\x1b]0;x\x07\x1b\\", "\x1b]52;c;aGk=\x07",
	} {
		f := Filter{}
		if got := run(&f, in+"."); got != in+"." {
			t.Errorf("%q became %q", in, got)
		}
		f = Filter{}
		if got := byByte(&f, in+"."); got != in+"." {
			t.Errorf("byte by byte: %q became %q", in, got)
		}
	}
}

func TestFilterDeniesClipboard(t *testing.T) {
	for _, in := range []string{
		"\x1b]52;c;aGVsbG8=\x07", "\x1b]52;c;aGVsbG8=\x1b\\", "\x1b]52;;?\x07", "\x1b]052;c;eA==\x07", "\x1b]0000000000052;c;eA==\x07",
		"\u009d52;c;eA==\x07", "\u009d52;c;eA==\u009c", "\x1b]5\x002;c;eA==\x07", "\x1b\x00]52;c;eA==\x07", "\x1b]5522;type=write\x07",
		"\x1b]1337;Copy=:eA==\x07", "\x1b[\x1b]52;c;eA==\x07", "\x1b[\u009d52;c;eA==\x07", "\x1b(\x1b]52;c;eA==\x07", "\x1b\x1b]52;c;eA==\x07",
		"\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\", "\x1bP\x1b]52;c;eA==\x07\x1b\\", "\x1b]0;t\x1b]52;c;eA==\x07", "\x1b_x\x1b]52;c;eA==\x07", "\x1b\u009d52;c;eA==\x07",
		"\x1b]52;c;eA==\x1b]52;c;eA==\x07", "\x1b]52\x07",
	} {
		for _, feed := range []func(*Filter, string) string{run, byByte} {
			f := Filter{DenyClipboard: true}
			got := feed(&f, "a"+in+"b")
			if strings.Contains(got, "eA==") || strings.Contains(got, "aGVs") || strings.Contains(got, "52") || strings.Contains(got, "Copy") {
				t.Errorf("%q let through: %q", in, got)
			}
			if !strings.HasPrefix(got, "a") || !strings.HasSuffix(got, "b") {
				t.Errorf("%q took text with it: %q", in, got)
			}
		}
	}
}

func TestFilterChunksDoNotMatter(t *testing.T) {
	parts := []string{
		"text", "\x1b", "]52;c;", "\x07", "\x1b\\", "\xc2", "\x9d", "\x9c", "[?1049h", "[>1u", "P", "tmux;", ";", "0", "\x18", "m", "日", "\xe6", "\x00", "(",
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var in strings.Builder
		for range 1 + r.IntN(12) {
			in.WriteString(parts[r.IntN(len(parts))])
		}
		deny := r.IntN(2) == 0
		a, b := Filter{DenyClipboard: deny}, Filter{DenyClipboard: deny}
		x, y := run(&a, in.String()), byByte(&b, in.String())
		if x != y {
			t.Fatalf("%q: whole %q, byte by byte %q", in.String(), x, y)
		}
		ux, rx := a.Undo()
		uy, ry := b.Undo()
		if ux != uy || rx != ry {
			t.Fatalf("%q: undo %q %q, byte by byte %q %q", in.String(), ux, rx, uy, ry)
		}
	}
}

func TestUndo(t *testing.T) {
	for _, c := range []struct{ in, undo, redo string }{
		{"hello\r\n", "", ""},
		{"\x1b[1;31mred\x1b[0m", "", ""},
		{"\x1b[31mred", "\x1b[0m", ""},
		{"\x1b[?1049h\x1b[?25l", "\x1b[?1049l\x1b[?25h", "\x1b[?1049h\x1b[?25l"},
		{"\x1b[?1049h\x1b[?1049l", "", ""},
		{"\x1b[?1000;1006h\x1b[?2004h\x1b[?1004h", "\x1b[?1000l\x1b[?1006l\x1b[?1004l\x1b[?2004l", "\x1b[?1000h\x1b[?1006h\x1b[?1004h\x1b[?2004h"},
		{"\x1b[?1049h\x1b[>1u", "\x1b[<1u\x1b[?1049l", "\x1b[?1049h\x1b[>1u"},
		{"\x1b[>1u\x1b[>5u\x1b[<u", "\x1b[<1u", "\x1b[>1u"},
		{"\x1b[>4;2m", "\x1b[>4m", ""},
		{"\x1b[5 q", "\x1b[0 q", ""},
		{"\x1b=\x1b>", "", ""},
		{"\x1b[2;10r", "\x1b7\x1b[r\x1b8", ""},
		{"\x1b]9;4;1;50\x07", "\x1b]9;4;0\x1b\\", ""},
		{"\x1b]8;;http://x\x07link", "\x1b]8;;\x1b\\", ""},
		{"\x1b]11;#000\x07", "\x1b]111\x1b\\", ""},
		{"\x1b]11;?\x07", "", ""},
		{"\x1b]4;1;red\x07", "\x1b]104\x1b\\", ""},
		{"\x1b]0;title\x07", "\x1b[23;0t", "\x1b[22;0t"},
		{"\x1b[?1049h\x1bc", "", ""},
		{"\x1b[3", "\x18", ""},
		{"\x1b]0;tit", "\x18\x1b[23;0t", "\x1b[22;0t"},
		{"\x1b", "", ""},
		{"\x1bP0;1|x\x1b\\", "", ""},
	} {
		f := Filter{}
		run(&f, c.in)
		if undo, redo := f.Undo(); undo != c.undo || redo != c.redo {
			t.Errorf("%q: undo %q redo %q, want %q %q", c.in, undo, redo, c.undo, c.redo)
		}
	}
}

func TestTitleIsKept(t *testing.T) {
	f := Filter{}
	if got := run(&f, "\x1b]0;a\x07\x1b]2;b\x07"); got != "\x1b[22;0t\x1b]0;a\x07\x1b]2;b\x07" {
		t.Errorf("got %q", got)
	}
	f = Filter{DenyTitle: true}
	if got := run(&f, "\x1b]0;a\x07x\x1b]2;b\x1b\\y"); got != "xy" {
		t.Errorf("denied titles: %q", got)
	}
}

func FuzzFilter(f *testing.F) {
	f.Add([]byte("\x1b]52;c;x\x07text\xc2\x9d"), 3)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		if len(in) == 0 {
			return
		}
		cut = (cut&0x7fffffff)%len(in) + 0
		a, b := Filter{DenyClipboard: true}, Filter{DenyClipboard: true}
		x := a.Write(nil, in)
		y := b.Write(b.Write(nil, in[:cut]), in[cut:])
		if string(x) != string(y) {
			t.Fatalf("cut at %d: %q against %q", cut, x, y)
		}
		for _, bad := range []string{"\x1b]52;", "\u009d52;"} {
			if strings.Contains(string(x), bad) {
				t.Fatalf("%q passed in %q", bad, x)
			}
		}
	})
}

func BenchmarkFilter(b *testing.B) {
	in := []byte(strings.Repeat("\x1b[38;5;120msome text of a line that a program prints\x1b[0m\r\n", 1000))
	f := Filter{DenyClipboard: true}
	var out []byte
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		out = f.Write(out[:0], in)
	}
}
