package repo

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestParseConfig(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []Setting
		bad  bool
	}{
		"empty":        {"", nil, false},
		"comments":     {"# a\n; b\n\n  \t\n", nil, false},
		"plain":        {"[core]\n\tbare = false\n", []Setting{{"core", "", "bare", "false"}}, false},
		"case":         {"[CoRe]\nHooksPath=X\n", []Setting{{"core", "", "hookspath", "X"}}, false},
		"one line":     {"[user] name = a b  # c\n", []Setting{{"user", "", "name", "a b"}}, false},
		"subsection":   {"[remote \"a \\\"b\\\\\"]\nurl = x", []Setting{{"remote", `a "b\`, "url", "x"}}, false},
		"old style":    {"[branch.Main]\nremote = o\n", []Setting{{"branch", "main", "remote", "o"}}, false},
		"no value":     {"[core]\nbare\nx = y\n", []Setting{{"core", "", "bare", "true"}, {"core", "", "x", "y"}}, false},
		"empty value":  {"[a]\nb =\nc = d\n", []Setting{{"a", "", "b", ""}, {"a", "", "c", "d"}}, false},
		"quotes":       {"[a]\nb = \" x;# \" y\n", []Setting{{"a", "", "b", " x;#  y"}}, false},
		"escapes":      {"[a]\nb = a\\n\\t\\\\\\\"\n", []Setting{{"a", "", "b", "a\n\t\\\""}}, false},
		"goes on":      {"[a]\nb = x \\\n  y\n", []Setting{{"a", "", "b", "x   y"}}, false},
		"carriage":     {"[a]\r\nb = x\r\n", []Setting{{"a", "", "b", "x"}}, false},
		"mark":         {"\ufeff[a]\nb = x\n", []Setting{{"a", "", "b", "x"}}, false},
		"no section":   {"a = b\n", nil, true},
		"open section": {"[a\nb = c\n", nil, true},
		"open sub":     {"[a \"b]\nc = d\n", nil, true},
		"open quote":   {"[a]\nb = \"c\n", nil, true},
		"bad escape":   {"[a]\nb = \\x\n", nil, true},
		"junk":         {"[a]\n=b\n", nil, true},
		"end escape":   {"[a]\nb = \\", nil, true},
	} {
		got, err := ParseConfig(c.text)
		if (err != nil) != c.bad || !c.bad && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, c.want)
		}
	}
}

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	own, first := file("own", "[user]\nname = A\nemail = a@x\n"), file("first", "[user]\nname = B\n")
	email, include := file("email", "[user]\nemail = b@x\n"), file("include", "[user]\nname = A\n[includeIf \"gitdir:~/w\"]\npath = x\n")
	broken := file("broken", "[user\n")
	name, mail := Setting{Section: "user", Name: "name", Value: "A"}, Setting{Section: "user", Name: "email", Value: "a@x"}
	for what, c := range map[string]struct {
		user, repository []string
		want             []Setting
	}{
		"both":                {[]string{own}, nil, []Setting{name, mail}},
		"the later file wins": {[]string{first, own}, nil, []Setting{name, mail}},
		"the repository's":    {[]string{own}, []string{email}, []Setting{name}},
		"includes":            {[]string{include}, nil, nil},
		"broken, missing":     {[]string{broken, filepath.Join(dir, "none"), dir}, nil, nil},
	} {
		if got := Identity(c.user, c.repository); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("[a \"b\"]\nc = \"d\\\n e\" ; f\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseConfig(text)
		for _, s := range all {
			if err == nil && (s.Section == "" || s.Name == "") {
				t.Fatalf("%+v", s)
			}
		}
	})
}
