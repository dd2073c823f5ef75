package event

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// full has every field set, to values that are awkward.
func full() Event {
	return Event{
		Time: time.Unix(0, 1763697600123456789).UTC(), Mono: math.MaxUint64, Jail: "fix-login", Kind: UnixConnect, Verdict: Allow,
		Rule: "strict.toml:12:3 **/.env", Errno: -13, Pid: math.MaxInt32, Tid: math.MinInt32, JailPid: 7, Ppid: 1, TaskStart: 1 << 63,
		Exe: "/usr/bin/\xff\xfebad", Comm: "a\nb", Path: "/w/\x1b]0;x\a\u202ecod.exe", Path2: "\x00", Dev: 1<<64 - 1, Ino: 1 << 60,
		Flags: math.MaxUint32, Argv: []string{"sh", "", "-c", "\xc3\x28", "é\ufffd"}, Cut: true, Addr: "@abs\x00tract", Name: "\"q\\",
		Code: -1, Count: math.MaxUint64, Detail: "{\"a\":1}\u2028",
	}
}

func TestFullSetsEveryField(t *testing.T) {
	v := reflect.ValueOf(full())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is zero: extend full()", v.Type().Field(i).Name)
		}
	}
}

func TestKindNames(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		name := k.String()
		if name == "" || seen[name] || strings.ToLower(name) != name {
			t.Errorf("kind %d: bad name %q", k, name)
		}
		seen[name] = true
		if got, err := ParseKind(name); err != nil || got != k {
			t.Errorf("ParseKind(%q) = %v, %v", name, got, err)
		}
		if k != Unknown && k.Class() == Other {
			t.Errorf("kind %v has no class", k)
		}
	}
	if Kind(len(kindNames)-1) != Grant {
		t.Errorf("a kind after grant has no name")
	}
	for _, n := range []uint16{uint16(len(kindNames)), 999, math.MaxUint16} {
		if got, err := ParseKind(Kind(n).String()); err != nil || got != Kind(n) {
			t.Errorf("ParseKind(%q) = %v, %v", Kind(n), got, err)
		}
	}
	for _, bad := range []string{"", "Open", "kind-1", "kind-0999", "kind-70000", "kind--1", "kind-+999", "open "} {
		if k, err := ParseKind(bad); err == nil {
			t.Errorf("ParseKind(%q) = %v, want an error", bad, k)
		}
	}
	for v := range 256 {
		if got, err := ParseVerdict(Verdict(v).String()); err != nil || got != Verdict(v) {
			t.Errorf("ParseVerdict(%q) = %v, %v", Verdict(v), got, err)
		}
	}
	for c := Other; c <= System; c++ {
		if got, err := ParseClass(c.String()); err != nil || got != c {
			t.Errorf("ParseClass(%q) = %v, %v", c, got, err)
		}
	}
}

func TestJSONGolden(t *testing.T) {
	e := full()
	want := `{"time":"2025-11-21T04:00:00.123456789Z","mono":18446744073709551615,"jail":"fix-login","kind":"unix-connect","verdict":"allow",` +
		`"rule":"strict.toml:12:3 **/.env","errno":-13,"pid":2147483647,"tid":-2147483648,"jail_pid":7,"ppid":1,"task_start":9223372036854775808,` +
		`"exe":"/usr/bin/` + "\ufffd\ufffd" + `bad","exe_b64":"L3Vzci9iaW4v//5iYWQ=","comm":"a\nb","path":"/w/\u001b]0;x\u0007\u202ecod.exe","path2":"\u0000",` +
		`"dev":18446744073709551615,"ino":1152921504606846976,"flags":4294967295,"argv":["sh","","-c","` + "\ufffd" + `(","é` + "\ufffd" + `"],` +
		`"argv_b64":["c2g=","","LWM=","wyg=","w6nvv70="],"cut":true,"addr":"@abs\u0000tract","name":"\"q\\","code":-1,"count":18446744073709551615,"detail":"{\"a\":1}\u2028"}`
	if got := string(e.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string((&Event{}).AppendJSON(nil)); got != `{"kind":"unknown","verdict":"deny"}` {
		t.Errorf("zero event: %s", got)
	}
}

func TestRoundTrips(t *testing.T) {
	for name, e := range map[string]Event{
		"full":     full(),
		"zero":     {},
		"epoch":    {Time: time.Unix(0, 0).UTC()},
		"mono":     {Mono: 5},
		"unknown":  {Kind: 4711, Verdict: 9},
		"no time":  {Mono: 1 << 63, Path: "/x"},
		"old time": {Time: time.Unix(-9e9, 1).UTC(), Mono: 1},
	} {
		roundTrip(t, name, e)
	}
}

func roundTrip(t *testing.T, name string, e Event) {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatalf("%s: marshal: %v", name, err)
	}
	var back Event
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, e) {
		t.Errorf("%s: JSON: %v\n got %#v\nwant %#v\n in %s", name, err, back, e, data)
	}
	bin := e.AppendBinary(nil)
	if back, err = DecodeBinary(bin); err != nil || !reflect.DeepEqual(back, e) {
		t.Errorf("%s: binary: %v\n got %#v\nwant %#v", name, err, back, e)
	}
}

func TestJSONRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"twin":        `{"kind":"open","path":"/etc/passwd","path_b64":"L2V0Yy9zaGFkb3c="}`,
		"argv twin":   `{"kind":"exec","argv":["a"],"argv_b64":["Yg=="]}`,
		"argv length": `{"kind":"exec","argv":["a"],"argv_b64":[]}`,
		"kind":        `{"kind":"opened"}`,
		"verdict":     `{"kind":"open","verdict":"yes"}`,
		"type":        `{"kind":"open","pid":"1"}`,
		"base64":      `{"kind":"open","path":"x","path_b64":"!"}`,
		"not JSON":    `{`,
	} {
		var e Event
		if err := json.Unmarshal([]byte(in), &e); err == nil {
			t.Errorf("%s: accepted as %+v", name, e)
		}
	}
	var e Event
	if err := json.Unmarshal([]byte(`{"kind":"open","later":{"x":[1]}}`), &e); err != nil || e.Kind != Open || e.Verdict != Deny {
		t.Errorf("unknown key: %v, %+v", err, e)
	}
}

func TestCoderRun(t *testing.T) {
	base := time.Unix(1763697600, 0).UTC()
	run := []Event{
		{Kind: Open, Mono: 1e12, Time: base},
		{Kind: Open, Mono: 1e12 + 50, Time: base.Add(50)},
		{Kind: Open, Mono: 1e12 + 20, Time: base.Add(20)},     // out of order
		{Kind: Open, Mono: 1e12 + 30, Time: base.Add(-1e9)},   // the wall clock jumped
		{Kind: Loss, Count: 4},                                // no times at all
		{Kind: Open, Mono: math.MaxUint64, Time: base.Add(1)}, // wraps
		{Kind: Open, Mono: 1, Time: base.Add(2)},
	}
	var enc, dec Coder
	for i := range run {
		data := enc.Append(nil, &run[i])
		if i == 1 && len(data) > 6 {
			t.Errorf("a step of 50 ns takes %d bytes", len(data))
		}
		var got Event
		if err := dec.Decode(string(data), &got); err != nil || !reflect.DeepEqual(got, run[i]) {
			t.Fatalf("event %d: %v\n got %#v\nwant %#v", i, err, got, run[i])
		}
	}
}

func TestBinaryLimits(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	argv := make([]string, 10000)
	for i := range argv {
		argv[i] = big[:i%300]
	}
	e := Event{
		Kind: Exec, Jail: big, Rule: big, Exe: big, Comm: big, Path: big, Path2: big, Addr: big, Name: big, Detail: big, Argv: argv,
		Dev: math.MaxUint64, Ino: math.MaxUint64, Mono: math.MaxUint64, Count: math.MaxUint64, TaskStart: math.MaxUint64,
	}
	data := e.AppendBinary(nil)
	if len(data) > MaxBinary {
		t.Fatalf("encoded event has %d bytes", len(data))
	}
	got, err := DecodeBinary(data)
	if err != nil || !got.Cut || len(got.Path) != MaxString || len(got.Detail) != MaxDetail || len(got.Argv) == 0 {
		t.Fatalf("decode: %v, cut %v, path %d, detail %d, argv %d", err, got.Cut, len(got.Path), len(got.Detail), len(got.Argv))
	}
	many := Event{Argv: make([]string, MaxArgs+1)}
	if got, err := DecodeBinary(many.AppendBinary(nil)); err != nil || len(got.Argv) != MaxArgs || !got.Cut {
		t.Errorf("many arguments: %v, %d, cut %v", err, len(got.Argv), got.Cut)
	}
	for _, field := range []func(*Event){
		func(e *Event) { e.Addr = big },
		func(e *Event) { e.Name = big },
		func(e *Event) { e.Detail = big },
		func(e *Event) { e.Argv = []string{big} },
	} {
		var one Event
		field(&one)
		if got, err := DecodeBinary(one.AppendBinary(nil)); err != nil || !got.Cut {
			t.Errorf("one long field: %v, cut %v", err, got.Cut)
		}
	}
}

func TestBinaryForwardCompatible(t *testing.T) {
	e := Event{Kind: Open, Path: "/x", Mono: 3}
	data := e.AppendBinary(nil)
	data = binary.AppendUvarint(data, 100<<1) // a number of a later version
	data = binary.AppendUvarint(data, 1<<40)
	data = binary.AppendUvarint(data, 2000<<1|1) // bytes of a later version
	data = append(binary.AppendUvarint(data, 3), "new"...)
	if got, err := DecodeBinary(data); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("unknown fields: %v, %+v", err, got)
	}
}

func TestBinaryRefuses(t *testing.T) {
	for name, data := range map[string][]byte{
		"tag 0":         {0, 1},
		"descending":    {tagPid << 1, 2, tagKind << 1, 8},
		"twice":         {tagKind << 1, 8, tagKind << 1, 8},
		"no number":     {tagKind << 1},
		"kind size":     {tagKind << 1, 0x80, 0x80, 4},
		"pid size":      {tagPid << 1, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"bytes as int":  {tagPath << 1, 1},
		"int as bytes":  {tagKind<<1 | 1, 1, 'x'},
		"short bytes":   {tagPath<<1 | 1, 9, 'x'},
		"varint size":   append([]byte{tagDev << 1}, bytes.Repeat([]byte{0xff}, 11)...),
		"varint 65 bit": append(append([]byte{tagDev << 1}, bytes.Repeat([]byte{0xff}, 9)...), 2),
		"long path":     append([]byte{tagPath<<1 | 1, 0x81, 0x80, 0x01}, make([]byte, MaxString+1)...),
		"huge":          make([]byte, MaxBinary+1),
	} {
		if e, err := DecodeBinary(data); !errors.Is(err, ErrBinary) {
			t.Errorf("%s: %v, %+v", name, err, e)
		}
	}
	argv := bytes.Repeat([]byte{tagArgv<<1 | 1, 0}, MaxArgs+1)
	if _, err := DecodeBinary(argv); !errors.Is(err, ErrBinary) {
		t.Errorf("too many arguments: %v", err)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"/usr/bin/ls":          "/usr/bin/ls",
		"grüße 日本 🙂":           "grüße 日本 🙂",
		"a\nb\tc\rd":           `a\nb\tc\rd`,
		"\x1b[31m":             `\x1b[31m`,
		"\x7f\x00":             `\x7f\x00`,
		"\u009b31m":            `\u009b31m`, // CSI as one C1 character
		"x\u202ecod":           `x\u202ecod`,
		"\u2066\u200b\u200d":   `\u2066\u200b\u200d`,
		"\u2028\u2029\u00a0":   `\u2028\u2029\u00a0`,
		"\xff\xc3":             `\xff\xc3`,
		`C:\x1b`:               `C:\\x1b`,
		"\u3164\ufe0f":         `\u3164\ufe0f`,
		"\U000e0041":           `\U000e0041`,
		"e\u0301":              "e\u0301",
		"\u0301x":              `\u0301x`,
		"e\u0301\u0301\u0301x": "e\u0301\u0301" + `\u0301x`,
		"\ufffd":               "\ufffd",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
	for i := range 256 {
		got := Printable(string([]byte{byte(i)}))
		if len(got) == 0 || !plain(strings.ReplaceAll(got, `\`, "")) {
			t.Errorf("byte %#x prints as %q", i, got)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := Printable(s)
		if !utf8.ValidString(got) {
			t.Fatalf("not UTF-8: %q", got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q has %U", got, r)
			}
		}
	})
}

func FuzzBinary(f *testing.F) {
	e := full()
	f.Add(e.AppendBinary(nil))
	f.Add([]byte{})
	f.Add([]byte{tagPath<<1 | 1, 2, '/', 'x', 200, 1, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeBinary(data)
		if err != nil {
			if !errors.Is(err, ErrBinary) {
				t.Fatalf("untyped error: %v", err)
			}
			return
		}
		roundTrip(t, "fuzz", e)
	})
}

func FuzzJSON(f *testing.F) {
	e := full()
	f.Add(e.AppendJSON(nil))
	f.Add([]byte(`{"kind":"open","path":"\ud800","time":"2025-01-01T00:00:00+14:00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		out := e.AppendJSON(nil)
		if !json.Valid(out) {
			t.Fatalf("invalid JSON: %s", out)
		}
		for _, r := range string(out) {
			if !visible(r) {
				t.Fatalf("%U in %s", r, out)
			}
		}
		var back Event
		if err := json.Unmarshal(out, &back); err != nil || !reflect.DeepEqual(back, e) {
			t.Fatalf("%v\n got %#v\nwant %#v", err, back, e)
		}
	})
}

func BenchmarkAppendBinary(b *testing.B) {
	e := full()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = e.AppendBinary(buf[:0])
	}
}

func BenchmarkDecode(b *testing.B) {
	e := full()
	e.Argv = nil
	data := string(e.AppendBinary(nil))
	b.ReportAllocs()
	for b.Loop() {
		var c Coder
		if err := c.Decode(data, &e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	e := full()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = e.AppendJSON(buf[:0])
	}
}

func TestDenied(t *testing.T) {
	for _, c := range []struct {
		e    Event
		want bool
	}{
		{Event{Kind: Open}, true},
		{Event{Kind: Open, Verdict: Allow}, false},
		{Event{Kind: Open, Verdict: 7}, true}, // unknown verdicts permit nothing
		{Event{Kind: Limit}, true},
		{Event{Kind: Escape}, true},
		{Event{Kind: Start}, false},
		{Event{Kind: Loss}, false},
		{Event{Kind: Exit}, false},
		{Event{}, false},
	} {
		if got := c.e.Denied(); got != c.want {
			t.Errorf("%v %v: %v", c.e.Kind, c.e.Verdict, got)
		}
	}
}
