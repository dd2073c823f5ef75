package lint_test

import (
	"strings"
	"testing"

	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/lint"
)

const careless = `version = 1
name = "careless"
extends = ["builtin:base"]

[files]
read = [
  "${workspace}/**",
  "${workspace}/src/**",
  "/srv/data/**",
  "/srv/data/**",
  "/opt/private/x",
  "/**",
]
write = ["${workspace}/**", "~/.bashrc"]
deny = [
  "**/*.pem",
  "${workspace}/**/*.pem",
  "!${workspace}/**/test.pem",
  "${workspace}/a/*.pem",
  "${workspace}/a/test.pem",
  "${workspace}/late/**",
  "/opt/private/**",
]

[net]
allow = ["*:*", "a.example:443"]

[env]
pass = ["*"]
`

// Each finding with the line it is about; lines that are not here have none.
func TestFindings(t *testing.T) {
	doc, err := policy.Parse("f", []byte(careless))
	if err != nil {
		t.Fatal(err)
	}
	found, err := lint.Document(doc)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"f:1:1: no-tests: there are no [[tests]]",
		"f:7:3: secret: ${workspace}/.env, ${workspace}/.env.production, ${workspace}/server.key and ",
		"f:7:3: shadowed: read ${workspace}/** says nothing that ${workspace}/** does not say (builtin:base:",
		"f:8:3: shadowed: read ${workspace}/src/** says nothing that ${workspace}/** does not say (",
		"f:10:3: shadowed: read /srv/data/** says nothing that /srv/data/** does not say (f:9:3)",
		"f:11:3: no-effect: read /opt/private/x never allows anything: deny /opt/private/** covers it (f:22:3)",
		"f:12:3: too-wide: read /**",
		"f:14:10: runs-here: ${workspace}/.git/hooks/pre-commit, ${workspace}/.git/config, ${workspace}/.envrc and ",
		"f:14:10: shadowed: write ${workspace}/** says nothing that ${workspace}/** does not say (builtin:base:",
		"f:14:29: runs-here: ~/.bashrc: which",
		"f:17:3: shadowed: deny ${workspace}/**/*.pem says nothing that **/*.pem does not say (f:16:3)",
		"f:20:3: shadowed: deny ${workspace}/a/test.pem says nothing that ${workspace}/a/*.pem does not say (f:19:3)",
		"f:26:10: too-wide: net allow *:*",
		"f:29:9: too-wide: env pass *",
	}
	var got []string
	for _, f := range found {
		got = append(got, f.Pos+": "+f.Check+": "+f.Text)
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			t.Errorf("more: %s", got[i])
		case i >= len(got):
			t.Errorf("missing: %s", want[i])
		case !strings.HasPrefix(got[i], want[i]):
			t.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
}

// A rule below an exception is no repetition: it takes back what the exception gave.
func TestTakenBack(t *testing.T) {
	doc, err := policy.Parse("f", []byte("version = 1\nname = \"x\"\n[files]\nread = [\"/srv/a/**\"]\ndeny = [\"/srv/a/**/k\", \"!/srv/a/b/**\", \"/srv/a/b/c/**/k\"]\n[[tests]]\nwant = \"deny\"\nread = [\"/srv/a/k\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := lint.Document(doc); err != nil || len(found) != 0 {
		t.Errorf("%v %v", found, err)
	}
}

func TestExceptionToNothing(t *testing.T) {
	doc, err := policy.Parse("f", []byte("version = 1\nname = \"x\"\n[files]\nread = [\"/srv/a/**\"]\ndeny = [\"!${workspace}/k\", \"${workspace}/**/*.pem\", \"!${workspace}/**/*.key\", \"!${workspace}/ca.pem\"]\n[[tests]]\nwant = \"deny\"\nread = [\"/srv/k\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := lint.Document(doc)
	if err != nil || len(found) != 2 || found[0].Pos != "f:5:9" || found[1].Pos != "f:5:53" || found[0].Check != lint.NoEffect || found[1].Check != lint.NoEffect {
		t.Errorf("%v %v", found, err)
	}
}

// The builtin policies say nothing in vain.
func TestBuiltins(t *testing.T) {
	for _, name := range []string{"base", "strict", "standard"} {
		doc, err := policy.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		found, err := lint.Document(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Check == lint.NoEffect || f.Check == lint.Shadowed && f.Pos != "builtin:strict:44:3" { // .env is said by *.env, too; it is what readers look for
				t.Error(f)
			}
		}
	}
}
