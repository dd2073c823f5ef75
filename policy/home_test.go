package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const homely = "extends = [\"builtin:base\"]\n[files]\n"

func TestHomeLists(t *testing.T) {
	prof := parse(t, "prof", homely+`persist = ["~/.npm", "~/.cache/pip", "~/.cache/uv"]
overlay = ["~/.cache/go-build", "~/go/pkg"]
deny = ["~/.npm/_logs/**"]
`)
	v := SampleVars()
	in := func(names ...string) []string {
		for i := range names {
			names[i] = v.Home + "/" + names[i]
		}
		return names
	}
	tests := []struct {
		name             string
		org              string // lists of [files]
		persist, overlay []string
		refused          []string
	}{
		{"no opinion", "", in(".cache/pip", ".cache/uv", ".npm"), in(".cache/go-build", "go/pkg"), nil},
		{"none", "persist = []\noverlay = []", nil, nil, []string{"persist ~/.npm", "persist ~/.cache/pip", "persist ~/.cache/uv", "overlay ~/.cache/go-build", "overlay ~/go/pkg"}},
		{"below a directory", `persist = ["~/.cache"]`, in(".cache/pip", ".cache/uv"), in(".cache/go-build", "go/pkg"), []string{"persist ~/.npm"}},
		{"denied by org", `deny = ["~/.cache/**"]`, in(".npm"), in("go/pkg"), []string{"persist ~/.cache/pip", "persist ~/.cache/uv", "overlay ~/.cache/go-build"}},
		{"not readable under org", `read = ["/usr/**", "${workspace}/**"]`, nil, nil, []string{"persist ~/.npm", "overlay ~/go/pkg"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := resolve(t, v, Layer{Org, parse(t, "org", "[files]\n"+tt.org)}, Layer{Profile, prof})
			if !slices.Equal(r.Home.Persist, tt.persist) || !slices.Equal(r.Home.Overlay, tt.overlay) {
				t.Errorf("persist %q\noverlay %q", r.Home.Persist, r.Home.Overlay)
			}
			for _, w := range tt.refused {
				if !slices.ContainsFunc(r.Refused, func(f Refusal) bool { return f.What == w }) {
					t.Errorf("%s is not among the refused: %v", w, r.Refused)
				}
			}
			for _, p := range tt.overlay {
				if !slices.Contains(r.View(), Mount{p, Layered, true, true}) {
					t.Errorf("view has no overlay %s: %v", p, r.View())
				}
			}
		})
	}
}

// What is read, or even written, on the host is not when it is overlaid.
func TestOverlayTakesThePlace(t *testing.T) {
	r := resolve(t, Vars{}, Layer{Profile, parse(t, "p", homely+`write = ["~/.cache/**"]
read = ["~/.cache/go-build/x/**"]
overlay = ["~/.cache/go-build"]
`)})
	home := r.Vars.Home
	var got []Mount
	for _, m := range r.View() {
		if strings.HasPrefix(m.Path, home+"/.cache") {
			got = append(got, m)
		}
	}
	want := []Mount{{home + "/.cache", ReadWrite, false, true}, {home + "/.cache/go-build", Layered, true, true}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A home that lies in a tree of the host that is shown covers it.
func TestPersistBelowWhatTheHomeCovers(t *testing.T) {
	v := SampleVars()
	r := resolve(t, v, Layer{Profile, parse(t, "p", homely+"read = [\"/home/**\"]\npersist = [\"~/.npm\"]\n")})
	if len(r.Home.Persist) != 1 {
		t.Errorf("got %v, view %v", r.Home, r.View())
	}
}

func TestHomeMistakes(t *testing.T) {
	tests := []struct{ name, lists, want string }{
		{"home itself", `persist = ["~"]`, `p:5:12: "~": does not begin with ~/`},
		{"home with slash", `persist = ["~/"]`, `is not a clean path`},
		{"absolute", `overlay = ["/srv/x"]`, `p:5:12: "/srv/x": does not begin with ~/`},
		{"variable", `persist = ["${workspace}/x"]`, `does not begin with ~/`},
		{"glob", `persist = ["~/.cache/*"]`, `is a glob`},
		{"dots", `persist = ["~/../bob"]`, `is not a clean path`},
		{"dot", `persist = ["~/./x"]`, `is not a clean path`},
		{"final slash", `persist = ["~/x/"]`, `is not a clean path`},
		{"exception", `persist = ["!~/x"]`, `has no exceptions`},
		{"denied", "persist = [\"~/.ssh\"]\ndeny = [\"~/.ssh/**\"]", `p:5:12: persist ~/.ssh: p:6:9: deny ~/.ssh/** covers it`},
		{"protected", "overlay = [\"~/.git\"]\nprotect = [\"~/.git/**\"]", `overlay ~/.git: p:6:12: protect ~/.git/** covers it`},
		{"nested", `persist = ["~/.cache", "~/.cache/pip"]`, `p:5:24: `},
		{"both", "persist = [\"~/.cache\"]\noverlay = [\"~/.cache/go\"]", `lies in`},
		{"shown", "persist = [\"~/.cache/pip\"]\nread = [\"~/.cache/**\"]", `is shown from the host`},
		{"holds a mount", "persist = [\"~/.config\"]\nread = [\"~/.config/git/**\"]", `is shown from the host`},
		{"workspace", `overlay = ["~/src"]`, `holds the workspace`},
		{"many", "overlay = [" + strings.Repeat(`"~/a", `, 12) + `"~/0", "~/1", "~/2", "~/3", "~/4", "~/5", "~/6", "~/7", "~/8", "~/9", "~/b", "~/c"]`, "over 12 overlay entries"},
	}
	v := SampleVars()
	v.Workspace = v.Home + "/src/app"
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := Parse("p", []byte("version = 1\nname = \"p\"\n"+homely+tt.lists))
			if err == nil {
				_, err = Resolve([]Layer{{Profile, d}}, v)
			}
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(e.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestShares(t *testing.T) {
	r := resolve(t, Vars{}, Layer{Profile, parse(t, "p", homely+"persist = [\"~/.npm\"]\noverlay = [\"~/go\"]\n")})
	for arg, want := range map[string]Kind{"~/.npm": Persist, "~/.npm/a/../b": Persist, "~/go/x": Overlay, "~/.npmrc": "", "go/x": "", r.Vars.Home + "/go": Overlay} {
		if kind, dir := r.Shares(arg); kind != want || (dir == "") != (want == "") {
			t.Errorf("%s: %s %s, want %q", arg, kind, dir, want)
		}
	}
}

func TestBars(t *testing.T) {
	org := parse(t, "org", "[files]\ndeny = [\"~/.aws/**\"]\n")
	prof := parse(t, "p", homely+`deny = ["~/.ssh/**", "~/x/**", "!~/x/y"]
protect = ["**/.git/hooks/**"]
`)
	r := resolve(t, Vars{}, Layer{Org, org}, Layer{Profile, prof})
	b := r.Bars()
	b.Add(Rule{Kind: Protect, Glob: r.Vars.Home + "/.bashrc", Layer: -1, Pos: "keep", Text: "~/.bashrc"})
	for p, want := range map[string]string{
		"~/.ssh": "p:5:9", "~/.ssh/id": "p:5:9", "~/.aws/credentials": "org:4:9", "~/x/z": "p:5:", "~/x/y": "", "~/y": "", "/srv/a/.git/hooks/pre-commit": "p:6:12", "~/.bashrc": "keep",
	} {
		p = strings.Replace(p, "~", r.Vars.Home, 1)
		got := b.Named(p)
		if (got == nil) != (want == "") || got != nil && !strings.HasPrefix(got.Pos, want) {
			t.Errorf("%s: %v, want %q", p, got, want)
		}
	}
}
