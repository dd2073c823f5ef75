package event

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MarshalJSON returns e as one JSON object; see [Event.AppendJSON]. It never
// fails.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// AppendJSON appends e to dst as one JSON object on one line. Keys and their
// order are stable; "kind" and "verdict" are always there, others only when
// they are not zero. Strings are ASCII where a character could act on a
// terminal; a string that is not UTF-8 has a twin "<key>_b64" with its bytes.
func (e *Event) AppendJSON(dst []byte) []byte {
	w := jsonWriter{dst: append(dst, '{')}
	if ns, ok := unixNano(e.Time); ok {
		w.key("time")
		w.dst = append(w.dst, '"')
		w.dst = time.Unix(0, ns).UTC().AppendFormat(w.dst, time.RFC3339Nano)
		w.dst = append(w.dst, '"')
	}
	w.uint("mono", e.Mono)
	w.string("jail", e.Jail)
	w.key("kind")
	w.dst = appendQuoted(w.dst, e.Kind.String())
	w.key("verdict")
	w.dst = appendQuoted(w.dst, e.Verdict.String())
	w.string("rule", e.Rule)
	w.int("errno", int64(e.Errno))
	w.int("pid", int64(e.Pid))
	w.int("tid", int64(e.Tid))
	w.int("jail_pid", int64(e.JailPid))
	w.int("ppid", int64(e.Ppid))
	w.uint("task_start", e.TaskStart)
	w.string("exe", e.Exe)
	w.string("comm", e.Comm)
	w.string("path", e.Path)
	w.string("path2", e.Path2)
	w.uint("dev", e.Dev)
	w.uint("ino", e.Ino)
	w.uint("flags", uint64(e.Flags))
	w.list("argv", e.Argv)
	if e.Cut {
		w.key("cut")
		w.dst = append(w.dst, "true"...)
	}
	w.string("addr", e.Addr)
	w.string("name", e.Name)
	w.int("code", int64(e.Code))
	w.uint("count", e.Count)
	w.string("detail", e.Detail)
	return append(w.dst, '}')
}

type jsonWriter struct {
	dst  []byte
	some bool // a key has been written
}

func (w *jsonWriter) key(k string) {
	if w.some {
		w.dst = append(w.dst, ',')
	}
	w.some = true
	w.dst = append(append(append(w.dst, '"'), k...), '"', ':')
}

func (w *jsonWriter) uint(k string, v uint64) {
	if v != 0 {
		w.key(k)
		w.dst = strconv.AppendUint(w.dst, v, 10)
	}
}

func (w *jsonWriter) int(k string, v int64) {
	if v != 0 {
		w.key(k)
		w.dst = strconv.AppendInt(w.dst, v, 10)
	}
}

func (w *jsonWriter) string(k, v string) {
	if v == "" {
		return
	}
	w.key(k)
	w.dst = appendQuoted(w.dst, v)
	if !utf8.ValidString(v) {
		w.key(k + "_b64")
		w.dst = appendBase64(w.dst, v)
	}
}

func (w *jsonWriter) list(k string, v []string) {
	if len(v) == 0 {
		return
	}
	valid := true
	w.key(k)
	for i, s := range v {
		w.dst = append(w.dst, "[,"[min(i, 1)])
		w.dst = appendQuoted(w.dst, s)
		valid = valid && utf8.ValidString(s)
	}
	w.dst = append(w.dst, ']')
	if valid {
		return
	}
	w.key(k + "_b64")
	for i, s := range v {
		w.dst = append(w.dst, "[,"[min(i, 1)])
		w.dst = appendBase64(w.dst, s)
	}
	w.dst = append(w.dst, ']')
}

func appendBase64(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, []byte(s))
	return append(dst, '"')
}

// appendQuoted appends s as a JSON string in which every character that is
// not visible is escaped and every byte that is not UTF-8 is U+FFFD.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			dst = appendASCII(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError: // also a real U+FFFD
			dst = append(dst, string(utf8.RuneError)...)
		case visible(r):
			dst = append(dst, s[i:i+n]...)
		case r < 0x10000:
			dst = appendU(dst, uint16(r))
		default:
			r -= 0x10000
			dst = appendU(dst, 0xd800|uint16(r>>10))
			dst = appendU(dst, 0xdc00|uint16(r&0x3ff))
		}
		i += n
	}
	return append(dst, '"')
}

func appendASCII(dst []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c == '\n':
		return append(dst, '\\', 'n')
	case c == '\t':
		return append(dst, '\\', 't')
	case c < ' ' || c == 0x7f:
		return appendU(dst, uint16(c))
	}
	return append(dst, c)
}

func appendU(dst []byte, v uint16) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[v>>12], hex[v>>8&15], hex[v>>4&15], hex[v&15])
}

// wire is the JSON form for decoding.
type wire struct {
	Time      time.Time `json:"time"`
	Mono      uint64    `json:"mono"`
	Kind      Kind      `json:"kind"`
	Verdict   Verdict   `json:"verdict"`
	Errno     int       `json:"errno"`
	Pid       int32     `json:"pid"`
	Tid       int32     `json:"tid"`
	JailPid   int32     `json:"jail_pid"`
	Ppid      int32     `json:"ppid"`
	TaskStart uint64    `json:"task_start"`
	Dev       uint64    `json:"dev"`
	Ino       uint64    `json:"ino"`
	Flags     uint32    `json:"flags"`
	Cut       bool      `json:"cut"`
	Code      int       `json:"code"`
	Count     uint64    `json:"count"`
	Argv      []string  `json:"argv"`
	ArgvB64   [][]byte  `json:"argv_b64"`

	Jail      string `json:"jail"`
	JailB64   []byte `json:"jail_b64"`
	Rule      string `json:"rule"`
	RuleB64   []byte `json:"rule_b64"`
	Exe       string `json:"exe"`
	ExeB64    []byte `json:"exe_b64"`
	Comm      string `json:"comm"`
	CommB64   []byte `json:"comm_b64"`
	Path      string `json:"path"`
	PathB64   []byte `json:"path_b64"`
	Path2     string `json:"path2"`
	Path2B64  []byte `json:"path2_b64"`
	Addr      string `json:"addr"`
	AddrB64   []byte `json:"addr_b64"`
	Name      string `json:"name"`
	NameB64   []byte `json:"name_b64"`
	Detail    string `json:"detail"`
	DetailB64 []byte `json:"detail_b64"`
}

// UnmarshalJSON sets e from the form that [Event.AppendJSON] writes. Unknown
// keys are skipped; an unknown kind name and a twin that says something else
// than its readable key are errors. A key that is absent is zero, and so
// denies.
func (e *Event) UnmarshalJSON(data []byte) error {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("decode event: %w", err)
	}
	got := Event{
		Mono: w.Mono, Kind: w.Kind, Verdict: w.Verdict, Errno: w.Errno,
		Pid: w.Pid, Tid: w.Tid, JailPid: w.JailPid, Ppid: w.Ppid, TaskStart: w.TaskStart,
		Dev: w.Dev, Ino: w.Ino, Flags: w.Flags, Cut: w.Cut, Code: w.Code, Count: w.Count,
	}
	if ns, ok := unixNano(w.Time); ok {
		got.Time = time.Unix(0, ns).UTC()
	}
	for _, f := range []struct {
		key  string
		dst  *string
		text string
		raw  []byte
	}{
		{"jail", &got.Jail, w.Jail, w.JailB64},
		{"rule", &got.Rule, w.Rule, w.RuleB64},
		{"exe", &got.Exe, w.Exe, w.ExeB64},
		{"comm", &got.Comm, w.Comm, w.CommB64},
		{"path", &got.Path, w.Path, w.PathB64},
		{"path2", &got.Path2, w.Path2, w.Path2B64},
		{"addr", &got.Addr, w.Addr, w.AddrB64},
		{"name", &got.Name, w.Name, w.NameB64},
		{"detail", &got.Detail, w.Detail, w.DetailB64},
	} {
		s, err := untwin(f.key, f.text, f.raw)
		if err != nil {
			return err
		}
		*f.dst = s
	}
	if w.ArgvB64 != nil && len(w.ArgvB64) != len(w.Argv) {
		return fmt.Errorf("decode event: argv and argv_b64 differ in length")
	}
	for i, s := range w.Argv {
		if w.ArgvB64 != nil {
			var err error
			if s, err = untwin("argv", s, w.ArgvB64[i]); err != nil {
				return err
			}
		}
		got.Argv = append(got.Argv, s)
	}
	*e = got
	return nil
}

// untwin returns the bytes of a string with a twin and refuses a pair that
// shows one name and means another.
func untwin(key, text string, raw []byte) (string, error) {
	if len(raw) == 0 {
		return text, nil
	}
	if readable(string(raw)) != text {
		return "", fmt.Errorf("decode event: %s and %s_b64 differ", key, key)
	}
	return string(raw), nil
}

// readable replaces each byte that is not UTF-8 by U+FFFD, one for one (unlike
// [strings.ToValidUTF8], which replaces runs).
func readable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

// unixNano returns t in ns since 1970 and whether there is such a number: not
// for the zero time, nor before 1678 or after 2262.
func unixNano(t time.Time) (int64, bool) {
	if t.IsZero() {
		return 0, false
	}
	sec := t.Unix()
	const limit = math.MaxInt64/int64(time.Second) - 1
	if sec <= -limit || sec >= limit {
		return 0, false
	}
	return t.UnixNano(), true
}
