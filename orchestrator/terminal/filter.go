package terminal

import "bytes"

// Filter follows the output of a jailed process on its way to the user's
// terminal. The zero value is ready to use and lets everything pass.
type Filter struct {
	// DenyClipboard drops OSC 52, with which a program reads and writes the
	// clipboard of the user.
	DenyClipboard bool
	// DenyTitle drops the sequences that set the window's title.
	DenyTitle bool

	state state
	hold  []byte // bytes of a sequence that may still be dropped
	body  []byte // CSI parameters, or the start of a string
	// isCommand: the string is an OSC, not a DCS or the like.
	isCommand bool
	modes     modes
	utf8      int // continuation bytes still expected in ground state
}

type state uint8

const (
	ground     state = iota
	c1               // after 0xc2, which may begin a C1 control in UTF-8
	escape           // after ESC
	designate        // after ESC ( and the like: one more byte
	sequence         // after CSI
	command          // in an OSC, not yet known whether it passes
	str              // in a string that passes
	strEscape        // after ESC in such a string
	strC1            // after 0xc2 in such a string
	drop             // in a string that is dropped
	dropEscape       // after ESC there
	dropC1           // after 0xc2 there
)

const (
	esc = 0x1b
	// enough of a string to know its kind and whether it ends something
	maxBody = 64
	// no command has a longer number
	maxKind = 8
)

// Write appends to dst what of src goes to the terminal and returns dst. Up to
// two bytes may stay behind until the next call, when src ends within an
// introducer.
func (f *Filter) Write(dst, src []byte) []byte {
	for i := 0; i < len(src); {
		if f.state == ground && f.utf8 == 0 {
			// Most output is text: hand it on in one piece.
			n := bytes.IndexFunc(src[i:], func(r rune) bool { return r < 0x20 || r == 0xfffd || (r >= 0x80 && r <= 0x9f) })
			if n < 0 {
				n = len(src) - i
			}
			if n > 0 {
				dst = append(dst, src[i:i+n]...)
				i += n
				continue
			}
		}
		dst = f.step(dst, src[i])
		i++
	}
	return dst
}

// Ground reports whether the terminal is between sequences and characters, so
// that bytes of our own may be written.
func (f *Filter) Ground() bool { return f.state == ground && f.utf8 == 0 }

// AltScreen reports whether the terminal shows its alternate screen.
func (f *Filter) AltScreen() bool { return f.modes.alt() }

// Undo returns the bytes that put the terminal back to where it was before the
// first Write ("" when nothing has to be), and those that lead from there to
// where it is now.
func (f *Filter) Undo() (undo, redo string) {
	undo, redo = f.modes.undo()
	switch f.state {
	case ground, c1, escape, command, drop, dropEscape, dropC1: // the terminal saw nothing of these
	default:
		undo = "\x18" + undo // CAN ends a sequence that was cut off
	}
	return undo, redo
}

func (f *Filter) step(dst []byte, b byte) []byte {
	switch f.state {
	case ground:
		return f.ground(dst, b)
	case c1:
		f.hold = f.hold[:0]
		f.state = ground
		if b >= 0x80 && b <= 0x9f {
			return f.introduce(dst, b-0x40, 0xc2, b)
		}
		return f.ground(append(dst, 0xc2), b)
	case escape:
		return f.escape(dst, b)
	case designate:
		return f.designate(dst, b)
	case sequence:
		return f.sequence(dst, b)
	case command:
		return f.command(dst, b)
	case str, strEscape, strC1:
		return f.str(dst, b)
	default:
		return f.drop(dst, b)
	}
}

func (f *Filter) ground(dst []byte, b byte) []byte {
	switch {
	case f.utf8 > 0 && b >= 0x80 && b <= 0xbf:
		f.utf8--
		return append(dst, b)
	case b == esc:
		f.utf8, f.state = 0, escape
		return dst
	case b == 0xc2:
		f.utf8, f.state = 0, c1
		return dst
	case b == 0x0e || b == 0x0f: // shift out, shift in
		f.modes.charset = b == 0x0e
	}
	switch {
	case b >= 0xf0 && b < 0xf8:
		f.utf8 = 3
	case b >= 0xe0 && b < 0xf0:
		f.utf8 = 2
	case b > 0xc2 && b < 0xe0:
		f.utf8 = 1
	default:
		f.utf8 = 0
	}
	return append(dst, b)
}

func (f *Filter) escape(dst []byte, b byte) []byte {
	f.state = ground
	switch {
	case b == esc:
		f.state = escape
		return append(dst, esc) // the first one was alone
	case b == 0x18 || b == 0x1a:
	case b < 0x20 || b == 0x7f: // acted on, or ignored, within the sequence
		f.state = escape
		return append(dst, b)
	case b >= 0x80:
		return f.ground(append(dst, esc), b)
	case b == '(' || b == ')' || b == '*' || b == '+':
		f.state = designate
		f.modes.charset = true
	case b == 'c':
		f.modes.reset()
	case b == '=' || b == '>':
		f.modes.keypad = b == '='
	case b >= 0x40 && b <= 0x5f:
		return f.introduce(dst, b, esc, b)
	case b >= 0x20 && b <= 0x2f:
		f.state = designate
	}
	return append(dst, esc, b)
}

func (f *Filter) designate(dst []byte, b byte) []byte {
	switch {
	case b == esc:
		f.state = escape
		return dst
	case b >= 0x80:
		f.state = ground
		return f.ground(dst, b)
	case b == 0x18 || b == 0x1a || b > 0x2f && b != 0x7f:
		f.state = ground
	}
	return append(dst, b)
}

// introduce begins what the C1 control (given as its 7-bit letter) begins; raw
// is how it was written.
func (f *Filter) introduce(dst []byte, letter byte, raw ...byte) []byte {
	f.body = f.body[:0]
	f.isCommand = letter == ']'
	switch letter {
	case '[':
		f.state = sequence
	case ']':
		f.state = command
		f.hold = append(f.hold[:0], raw...)
		return dst
	case 'P', 'X', '^', '_': // DCS, SOS, PM, APC
		f.state = str
	}
	return append(dst, raw...)
}

func (f *Filter) sequence(dst []byte, b byte) []byte {
	switch {
	case b == esc:
		f.state = escape
		return dst
	case b >= 0x80:
		f.state = ground
		return f.ground(dst, b)
	case b == 0x18 || b == 0x1a:
		f.state = ground
	case b >= 0x40 && b <= 0x7e:
		f.state = ground
		f.modes.csi(string(f.body), b)
	case b >= 0x20 && len(f.body) < maxBody:
		f.body = append(f.body, b)
	}
	return append(dst, b)
}

// command collects an OSC up to its first ';' or its end and decides then.
func (f *Filter) command(dst []byte, b byte) []byte {
	ends := b == 0x07 || b == esc || b == 0x18 || b == 0x1a || b == 0xc2
	if !ends && (b < 0x20 || b == 0x7f) {
		return dst // terminals ignore it here; so would a comparison with "52" not
	}
	if !ends && b != ';' && len(f.body) < maxKind {
		f.body = append(f.body, b)
		f.hold = append(f.hold, b)
		return dst
	}
	long := len(f.body) == maxKind && !ends && b != ';'
	if f.denied(trimZeros(f.body)) || long && f.DenyClipboard {
		f.hold, f.state = f.hold[:0], drop
		return f.drop(dst, b)
	}
	if k := trimZeros(f.body); !f.modes.title && b == ';' && (string(k) == "0" || string(k) == "2") {
		dst = append(dst, "\x1b[22;0t"...) // keep the title there was
		f.modes.title = true
	}
	dst = append(dst, f.hold...)
	f.hold, f.state = f.hold[:0], str
	return f.str(dst, b)
}

// trimZeros: "OSC 052" means OSC 52 to terminals that parse a number.
func trimZeros(b []byte) []byte {
	for len(b) > 1 && b[0] == '0' {
		b = b[1:]
	}
	return b
}

func (f *Filter) denied(kind []byte) bool {
	switch string(kind) {
	case "52", "5522", "1337": // xterm, kitty, iTerm2 (whose command also moves files)
		return f.DenyClipboard
	case "0", "1", "2":
		return f.DenyTitle
	}
	return false
}

func (f *Filter) str(dst []byte, b byte) []byte {
	was := f.state
	f.state = str
	switch {
	case was == strEscape && b == '\\':
		f.endString()
		return append(dst, esc, '\\')
	case was == strEscape:
		// Terminals give a string up at any other escape; multiplexers hand it
		// on ("tmux;" passthrough).
		if !f.DenyClipboard && !f.isCommand && bytes.HasPrefix(f.body, []byte("tmux;")) {
			return append(dst, esc, b)
		}
		f.endString()
		if f.DenyClipboard {
			dst = append(dst, esc, '\\') // ends it for both
		}
		return f.escape(dst, b)
	case was == strC1 && b == 0x9c:
		f.endString()
		return append(dst, 0xc2, b)
	case was == strC1:
		dst = append(dst, 0xc2)
	}
	switch b {
	case esc:
		f.state = strEscape
		return dst
	case 0xc2:
		f.state = strC1
		return dst
	case 0x07, 0x18, 0x1a:
		f.endString()
	default:
		if len(f.body) < maxBody {
			f.body = append(f.body, b)
		}
	}
	return append(dst, b)
}

func (f *Filter) endString() {
	f.state = ground
	if f.isCommand {
		f.modes.osc(string(f.body))
	}
}

func (f *Filter) drop(dst []byte, b byte) []byte {
	was := f.state
	f.state = drop
	switch {
	case was == dropEscape && b == '\\', was == dropC1 && b == 0x9c:
		f.state = ground
	case was == dropEscape:
		f.state = escape
		return f.escape(dst, b)
	case b == esc:
		f.state = dropEscape
	case b == 0xc2:
		f.state = dropC1
	case b == 0x07 || b == 0x18 || b == 0x1a:
		f.state = ground
	}
	return dst
}
