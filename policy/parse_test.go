package policy

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const head = "version = 1\nname = \"x\"\n"

func TestParseErrors(t *testing.T) {
	tests := []struct{ name, text, want, hint string }{
		{"empty", "", `p:1:1: key "version" is missing`, "version = 1"},
		{"version", "version = 2\nname = \"x\"", "p:1:11: version 2 is not known", ""},
		{"no name", "version = 1", `key "name" is missing`, "name ="},
		{"bad name", "version = 1\nname = \"A B\"", `p:2:8: name "A B" must be`, ""},
		{"unknown key", head + "[files]\nraed = []", `p:4:1: unknown key "raed" in [files]`, `did you mean "read"?`},
		{"unknown section", head + "[file]\nread = []", `unknown key "file" in the document`, `did you mean "files"?`},
		{"unknown in test", head + "[[tests]]\nwant = \"deny\"\nreed = [\"/a\"]", `unknown key "reed" in [[tests]]`, `"read"`},
		{"nothing near", head + "[resources]\nxyzzyplugh = 1", `unknown key "xyzzyplugh"`, "known here: memory"},
		{"duplicate key", head + "[files]\nread = []\nread = []", "p:5:1: ", "only once"},
		{"duplicate section", head + "[files]\n[files]", "p:4:", ""},
		{"duplicate inline", head + "env = { set = { A = \"1\", A = \"2\" } }", "p:3:", ""},
		{"not toml", head + "[files", "p:3:", ""},
		{"bom", "\xef\xbb\xbf" + head, "p:1:1: begins with a byte order mark", "UTF-8"},
		{"utf16", "\xff\xfev\x00", "byte order mark", ""},
		{"not utf8", head + "description = \"\xff\"", "is not UTF-8", ""},
		{"large", head + strings.Repeat("# comment\n", 30_000), "p: larger than 256 KiB", ""},
		{"type list", head + "[files]\nread = \"/a\"", "p:4:8: files.read wants a list, not a string", ""},
		{"type item", head + "[files]\nread = [\"/a\",\n  7]", "p:5:3: files.read wants a list of strings, not an integer", ""},
		{"type string", head + "[audit]\nfiles = true", "audit.files wants a string, not true or false", ""},
		{"type bool", head + "[terminal]\ntitle = \"yes\"", "terminal.title wants true or false, not a string", ""},
		{"type int", head + "[resources]\npids = \"many\"", "resources.pids wants an integer, not a string", ""},
		{"type table", head + "files = 3", "files wants a table, not an integer", ""},
		{"int range", head + "[resources]\npids = 0", "p:4:8: resources.pids = 0 is out of range", ""},
		{"too little memory", head + "[resources]\nmemory = \"1KB\"", `p:4:10: resources.memory = "1kB" is less than a jail takes to start; 8MB is the least`, ""},
		{"too few processes", head + "[resources]\npids = 3", "p:4:8: resources.pids = 3 is less than a jail takes to start; 20 is the least", ""},
		{"too few files", head + "[resources]\nopen_files = 8", "p:4:14: resources.open_files = 8 is less than a jail takes to start; 32 is the least", ""},
		{"unit", head + "[resources]\nmemory = \"4GG\"", `p:4:10: resources.memory: unknown unit "GG"`, ""},
		{"no size", head + "[resources]\nmemory = \"much\"", "resources.memory: ", ""},
		{"cpu", head + "[resources]\ncpu = \"120%\"", "p:4:7: resources.cpu: want", ""},
		{"empty string", head + "[audit]\nfiles = \"\"", "audit.files is empty", "remove the line"},
		{"enum", head + "[audit]\nfiles = \"al\"", `p:4:9: audit.files = "al" is not known`, `"all"`},
		{"overload", head + "[audit]\non_overload = \"drop\"", `audit.on_overload = "drop"`, "hold"},
		{"guarantee", head + "[require]\nbpf_lsm = \"require\"", `p:4:1: unknown guarantee "bpf_lsm"`, `did you mean "bpf-lsm"?`},
		{"level", head + "[require]\nbpf-lsm = \"must\"", `want "require", "prefer" or "ignore"`, ""},
		{"relative glob", head + "[files]\ndeny = [\"secrets/**\"]", `p:4:9: "secrets/**": is relative`, "${workspace}/secrets/**"},
		{"other home", head + "[files]\nread = [\"~bob/x\"]", "homes of other users", "variables: ~"},
		{"variable", head + "[files]\nread = [\"${worksapce}/x\"]", "unknown variable ${worksapce}", "${workspace}"},
		{"variable inside", head + "[files]\nread = [\"/a/${workspace}\"]", "may only stand at the beginning", ""},
		{"variable glued", head + "[files]\nread = [\"${workspace}x\"]", "must be followed by /", ""},
		{"variable open", head + "[files]\nread = [\"${workspace\"]", "no closing brace", ""},
		{"bad glob", head + "[files]\nread = [\"/a/[b\"]", `p:4:9: "/a/[b": `, ""},
		{"hide in read", head + "[files]\nread = [{ glob = \"/a\", hide = true }]", "p:4:9: files.read wants a list of strings, not a table", ""},
		{"hide what", head + "[files]\ndeny = [{ hide = true }]", "an entry of files.deny has no glob", "hide = true"},
		{"hide how", head + "[files]\ndeny = [{ glob = \"/a\", hide = 1 }]", "hide of files.deny wants true or false, not an integer", ""},
		{"hide glob", head + "[files]\ndeny = [{ glob = 3 }]", "glob of files.deny wants a string, not an integer", ""},
		{"hide key", head + "[files]\ndeny = [{ glob = \"/a\", hid = true }]", `unknown key "hid" in an entry of files.deny`, `"hide"`},
		{"hide bad glob", head + "[files]\ndeny = [\n  { glob = \"a\", hide = true }]", `p:5:12: "a": is relative`, ""},
		{"hide exception", head + "[files]\ndeny = [{ glob = \"!/a\", hide = true }]", "is an exception and cannot hide", ""},
		{"except in read", head + "[files]\nread = [\"!/a\"]", "read has no exceptions", "deny and protect"},
		{"extends file", head + "extends = [\"./other.toml\"]", "p:3:12: cannot extend", "builtin:NAME"},
		{"extends unknown", head + "extends = [\"builtin:strcit\"]", `no builtin policy "strcit"`, `"strict"`},
		{"dest", head + "[net]\nallow = [\"example.com\"]", `p:4:10: "example.com": want NAME:PORT`, "example.com:443"},
		{"dest mask", head + "[net]\nallow = [\"10.0.0.1/8:80\"]", "want 10.0.0.0/8", ""},
		{"listen", head + "[net]\nlisten = \"all\"", "p:4:10: net.listen wants", ""},
		{"unix", head + "[net]\nunix = [\"docker.sock\"]", "is not an absolute path", "absolute"},
		{"syscall", head + "[syscalls]\nallow = [\"mount(2)\"]", "is not the name of a system call", ""},
		{"env", head + "[env]\npass = [\"A B\"]", "is not the name of a variable", "letters"},
		{"env set", head + "[env]\nset = { \"1A\" = \"x\" }", `"1A" is not the name`, ""},
		{"test verdict", head + "[[tests]]\nread = [\"/a\"]", "p:3:3: test has no verdict", "want ="},
		{"test nothing", head + "[[tests]]\nwant = \"deny\"", "test tries nothing", ""},
		{"test relative", head + "[[tests]]\nwant = \"deny\"\nread = [\"a\"]", `"a" is relative`, ""},
		{"test connect", head + "[[tests]]\nwant = \"deny\"\nconnect = [\"10.0.0.0/8:1\"]", "want one address", ""},
		{"control bytes", "version = 1\nname = \"x\"\ndescription = \"a\\u001b[31m\"", "control characters", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("p", []byte(tt.text))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *Error with %q", err, tt.want)
			}
			if !strings.Contains(e.Error(), tt.want) || !strings.Contains(e.Hint, tt.hint) {
				t.Errorf("got  %s\nhint %s\nwant %s\nhint %s", e, e.Hint, tt.want, tt.hint)
			}
		})
	}
}

const full = `version = 1
name = "full"
description = "everything"
extends = ["builtin:base"]
files.read = []           # "nothing", not "not said"
[files]
write = ["${workspace}/**", '/a\*b/**']
deny = ["**/.env", "!**/.env.example"]
private = ["~", "!/etc"]
any_workspace = false
[net]
allow = ["*.example.org:443", "[2001:db8::/32]:1-9", "host:5432", "${agent.hosts}"]
deny = ["10.0.0.0/8:*"]
listen = "host:3000-3010"
unix = ["/run/x.sock"]
[syscalls]
profile = "default"
allow = ["ptrace"]
deny = ["keyctl"]
user_namespaces = true
[resources]
memory = "1.5GiB"
swap = 1048577
cpu = "80% 1.5"
pids = 0x40
disk_write = "10GB"
tmp = "1TB"
open_files = 1_000
[env]
pass = ["LC_*"]
set = { A = "", "B" = "x y" }
[audit]
files = "changes"
on_overload = "deny"
[terminal]
osc52 = "write"
title = false
[require]
landlock = "prefer"
audit = "require"
[[tests]]
want = "deny"
read = ["/x",
        "~/é/y", "z"]
`

func TestParseFull(t *testing.T) {
	text := strings.Replace(full, `, "z"]`, `, "/z"]`, 1)
	text = strings.Replace(text, "files.read = []           # \"nothing\", not \"not said\"\n[files]\n", "[files]\nread = []\n", 1)
	d, err := Parse("full.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if d.Files.Read == nil || len(d.Files.Read) != 0 || d.Files.Exec != nil {
		t.Errorf("read = [] and no exec must differ: %#v %#v", d.Files.Read, d.Files.Exec)
	}
	r := d.Resources
	if r.Memory != 3<<29 || r.Swap != 1048577 || r.CPU != (CPU{800, 1500}) || r.Pids != 64 || r.Tmp != 1e12 || r.OpenFiles != 1000 {
		t.Errorf("resources %+v", r)
	}
	if z := d.Tests[0].Read[2]; z.At != (At{Line: 44, Col: 18}) {
		t.Errorf("columns count characters: %+v", z)
	}
	if at := d.At["resources.cpu"]; at != (At{Line: 24, Col: 7}) {
		t.Errorf("resources.cpu at %v", at)
	}
	data, err := json.Marshal([]Layer{{Profile, d}})
	if err != nil {
		t.Fatal(err)
	}
	var back []Layer
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back[0].Doc, d) || back[0].Kind != Profile {
		t.Errorf("JSON loses something:\n%+v\n%+v", back[0].Doc, d)
	}
}

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.toml")
	if _, err := Load(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(file, []byte(head), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Load(file)
	if err != nil || d.File != file {
		t.Errorf("got %v %v", d, err)
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"1": 1, "4096": 4096, "4GB": 4e9, "4GiB": 4 << 30, "1.5 MiB": 3 << 19, "10kB": 10_000, "10KB": 10_000, "2TiB": 2 << 40, "7B": 7,
		"9007199254740993": 9007199254740993, "1M": 1e6,
	} {
		got, err := ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("%s: got %d %v, want %d", text, got, err, want)
		}
		if back, err := ParseBytes(got.String()); err != nil || back != got {
			t.Errorf("%s: %s does not read back: %d %v", text, got, back, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1e3", "0x10", "4 parsecs", "GB", "1.2.3GB", "99999999TB", "5000000000000000000", "0.1B", "∞"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

func TestCPU(t *testing.T) {
	for text, want := range map[string]float64{"80%": 3.2, "1.5": 1.5, "80% 1.5": 1.5, "0.5%": 0.02, "100%": 4, "0.01": 0.01} {
		c, err := ParseCPU(text)
		if err != nil || c.Limit(4) < want-1e-9 || c.Limit(4) > want+1e-9 || c.String() != text {
			t.Errorf("%s: got %v (%s) %v, want %v", text, c.Limit(4), c, err, want)
		}
	}
	for _, text := range []string{"", "%", "0%", "101%", "-1", "half", "1 2", "1% 2%", "0", "1e1"} {
		if c, err := ParseCPU(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, c)
		}
	}
	if (CPU{}).Limit(8) != 0 {
		t.Error("zero is no limit")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte(full))
	for _, n := range BuiltinNames() {
		data, err := BuiltinText(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("fuzz", data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Line < 0 || e.Col < 0 {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		js, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back Document
		if err := json.Unmarshal(js, &back); err != nil {
			t.Fatal(err)
		}
		if err := back.Validate(); err != nil {
			t.Fatalf("valid before JSON, not after: %v", err)
		}
		if !reflect.DeepEqual(&back, d) {
			t.Fatalf("JSON loses something:\n%+v\n%+v", &back, d)
		}
		r, err := Resolve([]Layer{{Org, d}, {Profile, d}}, SampleVars())
		if err == nil {
			r.View()
			r.Hash()
		}
	})
}

// FuzzLayer feeds Resolve what the helper gets from a stranger.
func FuzzLayer(f *testing.F) {
	d, err := Builtin("strict")
	if err != nil {
		f.Fatal(err)
	}
	js, err := json.Marshal(PolicyDocument{Layers: []Layer{{Profile, d}}, Vars: SampleVars()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(js)
	f.Add([]byte(`{"layers":[{"kind":"profile","doc":{"file":"x","version":1,"name":"x","files":{"read":[{"text":"/a/**","line":-1,"col":0}]}}}],"vars":{"workspace":"/w","home":"/h"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p PolicyDocument
		if json.Unmarshal(data, &p) != nil {
			return
		}
		r, err := Resolve(p.Layers, p.Vars)
		if err != nil {
			return
		}
		for _, m := range r.View() {
			if cleanPath(m.Path) != nil {
				t.Fatalf("view shows %q", m.Path)
			}
		}
		if r.Hash() == "" {
			t.Fatal("no hash")
		}
	})
}
