//go:build root

package script

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// gitRow is what an agent does with git, and how its effect is looked at from outside.
type gitRow struct {
	name   string
	only   string // policy, "" = strict and permissive
	in     string // workspace below the world, "" = ws
	needs  string // program without which the row says nothing
	before string // on the host, in the world
	short  bool   // also on an emulated machine
	plant  string // in the jail, a hostile act that works under permissive
	inside string // in the jail, in the workspace
	after  string // on the host, in the workspace
}

// gitWorld is a developer's directory: a repository with a remote, a submodule and a linked worktree; another repository; all of it with
// paths that begin with W. The user has a name, and files may be cloned from files.
const gitWorld = `
git config --global user.name dev && git config --global user.email dev@x && git config --global init.defaultBranch main
git config --global protocol.file.allow always && git config --global advice.detachedHead false
git init -q lib && (cd lib && echo one >lib.txt && git add . && git commit -q -m lib)
git init -q --bare origin.git
git init -q ws && cd ws
printf '1\n2\n3\n4\n5\n' >file && git add . && git submodule --quiet add ../lib sub && git commit -q -m first
git branch topic && git remote add origin "$W/origin.git" && git push -q origin main topic main:feature && git branch -q -u origin/main
git commit -q --allow-empty -m second
git worktree add -q -b linked ../linked && git worktree add -q -b other ../other
`

// TestGitPlants: the hostile rows plant something that runs.
func TestGitPlants(t *testing.T) {
	if os.Getenv("AGENTOS_MACHINE") != "" {
		t.Skip("wanted a machine that is not emulated; what is planted is the same there")
	}
	g, root := newGitStage(t)
	for i, r := range gitHostile {
		t.Run(r.name, func(t *testing.T) { g.control(t, g.world(t, root, fmt.Sprintf("plant-%d", i)), r) })
	}
}

// gitCopy makes a world like the template. What names the old place is told the new one.
const gitCopy = `A=%s B=%s; cp -a $A $B; grep -rIl --null -F $A $B | xargs -0 sed -i "s|$A|$B|g"
for d in ws ws/sub linked other; do git -C $B/$d update-index -q --refresh; done
`

// gitInside comes before what is done in the jail: refused COMMAND... fails for want of permission and leaves no lock behind; commit FILE TEXT.
const gitInside = `
export GIT_TERMINAL_PROMPT=0 LC_ALL=C
G=$(git rev-parse --git-dir) C=$(git rev-parse --git-common-dir)
refused() {
	if out=$("$@" 2>&1); then echo "POSSIBLE: $*: $out"; exit 1; fi
	case $out in *ermission\ denied* | *not\ permitted*) echo "refused $*: $out" ;; *) echo "OTHER: $*: $out"; exit 1 ;; esac
	locks=$(find "$C" -name '*.lock'); [ -z "$locks" ] || { echo "LOCKS: $locks"; exit 1; }
}
commit() { echo "$2" >"$1" && git add "$1" && git commit -q -m "$2"; }
`

// gitAfter comes before what is looked at on the host: the repository is whole, no lock is left, and nothing that was planted runs while a
// developer works in it.
const gitAfter = `
export GIT_TERMINAL_PROMPT=0 LC_ALL=C
[ ! -e "$W/ran" ] || { echo "something planted ran in the jail"; exit 1; }
work() { git status && git diff && git log --oneline -3 && git branch -a && git stash list && git worktree list && git submodule status; }
work >/dev/null
git fsck --strict --no-dangling
locks=$(find "$(git rev-parse --git-common-dir)" -name '*.lock'); [ -z "$locks" ] || { echo "LOCKS: $locks"; exit 1; }
is() { [ "$1" = "$2" ] || { echo "got $1, want $2"; exit 1; }; }
`

// gitGuarded prints what git obeys or follows: no agent under strict may change it.
const gitGuarded = `cd "$W" && for f in ws/.git ws/.git/* ws/.git/info/* ws/.git/objects/info/* ws/.gitmodules ws/sub/.git linked/.git \
	$(find ws/.git/hooks ws/.git/modules ws/.git/worktrees -name config -o -name config.worktree -o -name commondir -o -name gitdir -o -path '*/hooks*'); do
	case ${f##*/} in config* | commondir | gitdir | attributes | grafts | *alternates | remotes | branches | hooks | *.sample | post-* | pre-* | .git*) ;; *) continue ;; esac
	[ ! -e "$f" ] || stat -c '%n %i %F %a' "$f"; [ ! -f "$f" ] || sha256sum "$f"; done
`

// gitEnd comes after: a developer changes and commits something, here and in the main repository.
const gitEnd = `
touch developer && git add developer && git commit -q -m developer && git checkout -q -b developer && git gc -q && git fetch -q . && work >/dev/null
(cd "$W/ws" && work >/dev/null && git commit -q --allow-empty -m there)
[ ! -e "$W/ran" ] || { echo "something planted ran on the host: $(cat "$W/ran")"; exit 1; }
`

func TestGit(t *testing.T) {
	g, root := newGitStage(t)
	rows := slices.Concat(gitWorks, gitRefused, gitHostile)
	if os.Getenv("AGENTOS_MACHINE") != "" { // emulated: minutes a row
		rows = slices.DeleteFunc(rows, func(r gitRow) bool { return !r.short })
	}
	for i, r := range rows {
		for _, policy := range []string{"strict", "permissive"} {
			if r.only != "" && r.only != policy {
				continue
			}
			t.Run(policy+"/"+r.name, func(t *testing.T) {
				if r.needs != "" {
					if _, err := exec.LookPath(r.needs); err != nil {
						t.Skipf("wanted %s, got %v", r.needs, err)
					}
				}
				world := g.world(t, root, fmt.Sprintf("%s-%d", policy, i))
				g.play(t, world, policy, r)
				if !t.Failed() {
					_ = os.RemoveAll(world)
				}
			})
		}
	}
}

// newGitStage makes the template of all worlds.
func newGitStage(t *testing.T) (g gitStage, root string) {
	t.Helper()
	bin, root, socket := stage(t)
	root = filepath.Join(root, "git")
	template := filepath.Join(root, "template")
	if err := os.MkdirAll(filepath.Join(template, "home"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{root, template, filepath.Join(template, "home")} {
		if err := os.Chown(d, developer, developer); err != nil {
			t.Fatal(err)
		}
	}
	g = gitStage{bin: bin, socket: socket}
	if out, err := g.sh(template, template, gitWorld); err != nil {
		t.Fatalf("world: %v\n%s", err, out)
	}
	return g, root
}

// world copies the template.
func (g gitStage) world(t *testing.T, root, name string) string {
	t.Helper()
	world := filepath.Join(root, name)
	if out, err := g.sh(root, root, fmt.Sprintf(gitCopy, filepath.Join(root, "template"), world)); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	return world
}

// developer is the user whose repositories these are: to root, files look differently inside (owned by the agent), and git then reads all again.
const developer = 60231

// control plays a hostile row under permissive, where what is planted must run: else the row proves nothing.
func (g gitStage) control(t *testing.T, world string, r gitRow) {
	t.Helper()
	ws := filepath.Join(world, "ws")
	if r.in != "" {
		ws = filepath.Join(world, r.in)
	}
	if out, err := g.sh(world, world, r.before); err != nil {
		t.Fatalf("before: %v\n%s", err, out)
	}
	run := filepath.Join(g.bin, "agentos") + " run --policy permissive --env W=$W -- sh -e -c " + quote(gitInside+gitPlant+r.plant)
	inside, err := g.sh(world, ws, run)
	if err != nil {
		t.Logf("inside: %v", err)
	}
	const work = `set +e; git status; git commit --allow-empty -m x; git log -1 -p; for d in . evil evil/deep/deeper b ../linked ../ws ../ws/sub; do (cd $d && git status; git commit --allow-empty -m x; git fetch new); done; [ -e "$W/ran" ]`
	if out, err := g.sh(world, ws, work); err != nil {
		t.Errorf("what was planted does not run: %v\n%s\n%s", err, inside, out)
	}
}

// acts is the script of a row for the jail.
func (r gitRow) acts() string {
	if r.plant == "" {
		return gitInside + r.inside
	}
	return gitInside + gitPlant + r.plant + "\n" + r.inside
}

type gitStage struct{ bin, socket string }

// sh runs a script on the host as the developer, in dir of the world.
func (g gitStage) sh(world, dir, script string) (string, error) {
	cmd := exec.Command("sh", "-e", "-c", script)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + world + "/home", "PATH=/usr/local/bin:/usr/bin:/bin", "W=" + world, "AGENTOS_SOCKET=" + g.socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: developer, Gid: developer}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g gitStage) play(t *testing.T, world, policy string, r gitRow) {
	t.Helper()
	ws := filepath.Join(world, "ws")
	if r.in != "" {
		ws = filepath.Join(world, r.in)
	}
	if out, err := g.sh(world, world, r.before); err != nil {
		t.Fatalf("before: %v\n%s", err, out)
	}
	guarded, err := g.sh(world, world, gitGuarded)
	if err != nil {
		t.Fatalf("before: %v\n%s", err, guarded)
	}
	run := strings.Join([]string{"exec", filepath.Join(g.bin, "agentos"), "run --policy", policy, "--env W=$W", "-- sh -e -c", quote(r.acts())}, " ")
	if out, err := g.sh(world, ws, run); err != nil {
		t.Errorf("inside: %v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
	if now, err := g.sh(world, world, gitGuarded); policy == "strict" && now != guarded {
		t.Errorf("what git obeys changed (%v) from\n%s\nto\n%s", err, guarded, now)
	}
	if out, err := g.sh(world, ws, gitAfter+r.after+gitEnd); err != nil {
		t.Errorf("after: %v\n%s", err, out)
	}
}

// quote makes one word of a shell of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
