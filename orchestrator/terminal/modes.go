package terminal

import (
	"slices"
	"strconv"
	"strings"
)

type privateMode struct {
	mode    int
	initial bool
}

// private are the DEC private modes that are followed, with what they are by
// default and, for [Filter.Undo], the order in which they are put back.
var private = []privateMode{
	{2026, false},                                                          // synchronised output: a terminal left in it shows nothing
	{9, false}, {1000, false}, {1001, false}, {1002, false}, {1003, false}, // mouse
	{1005, false}, {1006, false}, {1015, false}, {1016, false}, // its encodings
	{1004, false},                // focus reports
	{2004, false},                // bracketed paste
	{2031, false}, {2048, false}, // colour scheme and in-band size reports
	{1, false}, {66, false}, {5, false}, {6, false}, {69, false}, {7, true}, {45, false}, {9001, false}, // cursor keys, keypad, reverse, origin, margins, wrap, win32 keys
	{47, false}, {1047, false}, {1049, false}, // alternate screen
	{25, true}, // cursor
}

// modes is what a terminal was told, as far as it has to be taken back.
type modes struct {
	set      map[int]bool // private mode -> value, for those that differ from their initial value
	keys     [2][]string  // kitty keyboard flags pushed on the main and alternate screen
	keysSet  [2]bool      // flags set without a push
	modKeys  bool         // xterm modifyOtherKeys
	keypad   bool         // ESC =
	cursor   bool         // DECSCUSR
	region   bool         // DECSTBM
	style    bool         // SGR
	charset  bool         // a charset was designated or shifted to
	title    bool         // a title was set, after the old one was pushed
	progress bool         // OSC 9;4
	link     bool         // OSC 8 is open
	colours  map[string]bool
}

func (m *modes) reset() { *m = modes{title: m.title} }

func (m *modes) alt() bool { return m.set[1049] || m.set[1047] || m.set[47] }

func (m *modes) screen() int {
	if m.alt() {
		return 1
	}
	return 0
}

// csi takes one complete control sequence: its bytes between CSI and the final
// byte, and the final byte.
func (m *modes) csi(body string, final byte) {
	switch {
	case (final == 'h' || final == 'l') && strings.HasPrefix(body, "?"):
		for p := range strings.SplitSeq(body[1:], ";") {
			if n, err := strconv.Atoi(p); err == nil {
				m.private(n, final == 'h')
			}
		}
	case final == 'u' && body != "":
		m.keyboard(body)
	case final == 'm' && strings.HasPrefix(body, ">4"):
		m.modKeys = body != ">4" && body != ">4;0"
	case final == 'm' && !strings.ContainsAny(body, "<=>?"):
		m.style = body != "" && body != "0"
	case final == 'q' && strings.HasSuffix(body, " "):
		m.cursor = body != " " && body != "0 "
	case final == 'r' && !strings.ContainsAny(body, "<=>?$ "):
		m.region = body != ""
	case final == 'p' && body == "!": // soft reset
		alt, keys, title := m.alt(), m.keys, m.title
		m.reset()
		m.keys, m.title = keys, title
		if alt {
			m.private(1049, true)
		}
	}
}

func (m *modes) private(mode int, on bool) {
	i := slices.IndexFunc(private, func(p privateMode) bool { return p.mode == mode })
	if i < 0 {
		return
	}
	if on == private[i].initial {
		delete(m.set, mode)
		return
	}
	if m.set == nil {
		m.set = map[int]bool{}
	}
	m.set[mode] = on
}

func (m *modes) keyboard(body string) {
	s := m.screen()
	switch body[0] {
	case '>':
		if len(m.keys[s]) < 32 { // terminals keep fewer
			m.keys[s] = append(m.keys[s], body[1:])
		}
	case '<':
		n, err := strconv.Atoi(body[1:])
		if err != nil {
			n = 1
		}
		m.keys[s] = m.keys[s][:max(0, len(m.keys[s])-n)]
	case '=':
		m.keysSet[s] = !strings.HasPrefix(body, "=0") && body != "="
	}
}

// osc takes the first bytes of an operating system command, as many as were
// kept.
func (m *modes) osc(body string) {
	kind, rest, _ := strings.Cut(body, ";")
	switch kind {
	case "8":
		_, uri, ok := strings.Cut(rest, ";")
		m.link = ok && uri != ""
	case "9":
		if strings.HasPrefix(rest, "4;") {
			m.progress = !strings.HasPrefix(rest, "4;0")
		}
	case "4", "10", "11", "12", "17", "19":
		if rest == "" || strings.HasSuffix(rest, "?") {
			return
		}
		if m.colours == nil {
			m.colours = map[string]bool{}
		}
		m.colours["1"+strings.Repeat("0", 2-len(kind))+kind] = true
	case "104", "110", "111", "112", "117", "119":
		delete(m.colours, kind)
	}
}

// undo returns what takes everything back, and redo what then brings it back.
func (m *modes) undo() (undo, redo string) {
	var u, r strings.Builder
	if m.link {
		u.WriteString("\x1b]8;;\x1b\\")
	}
	if m.progress {
		u.WriteString("\x1b]9;4;0\x1b\\")
	}
	for _, c := range sortedKeys(m.colours) {
		u.WriteString("\x1b]" + c + "\x1b\\")
	}
	for _, p := range private {
		if _, differs := m.set[p.mode]; !differs {
			continue
		}
		if p.mode == 47 || p.mode == 1047 || p.mode == 1049 {
			m.undoKeys(&u, 1)
			r.WriteString("\x1b[?" + strconv.Itoa(p.mode) + "h")
			m.redoKeys(&r, 1)
			u.WriteString("\x1b[?" + strconv.Itoa(p.mode) + "l")
			continue
		}
		u.WriteString(setting(p.mode, p.initial))
		r.WriteString(setting(p.mode, !p.initial))
	}
	var main strings.Builder
	m.redoKeys(&main, 0)
	m.undoKeys(&u, 0)
	for _, s := range []struct {
		on         bool
		undo, redo string
	}{
		{m.modKeys, "\x1b[>4m", ""},
		{m.keypad, "\x1b>", "\x1b="},
		{m.cursor, "\x1b[0 q", ""},
		{m.region, "\x1b7\x1b[r\x1b8", ""},
		{m.charset, "\x0f\x1b(B", ""},
		{m.style, "\x1b[0m", ""},
		{m.title, "\x1b[23;0t", "\x1b[22;0t"},
	} {
		if s.on {
			u.WriteString(s.undo)
			r.WriteString(s.redo)
		}
	}
	return u.String(), main.String() + r.String()
}

func setting(mode int, on bool) string {
	if on {
		return "\x1b[?" + strconv.Itoa(mode) + "h"
	}
	return "\x1b[?" + strconv.Itoa(mode) + "l"
}

func (m *modes) undoKeys(b *strings.Builder, screen int) {
	if n := len(m.keys[screen]); n > 0 {
		b.WriteString("\x1b[<" + strconv.Itoa(n) + "u")
	}
	if m.keysSet[screen] {
		b.WriteString("\x1b[=0u")
	}
}

func (m *modes) redoKeys(b *strings.Builder, screen int) {
	for _, flags := range m.keys[screen] {
		b.WriteString("\x1b[>" + flags + "u")
	}
}

func sortedKeys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
