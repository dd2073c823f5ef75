package broker

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/policy"
	"github.com/agentos/agentos/policy/corpus"
	"github.com/agentos/agentos/policy/glob"
)

func matchOne(g, p string) bool { return len(glob.Reference([]string{g}, p)) > 0 }

// compiledRules are rules as init has them: a compiled policy.
type compiledRules struct{ *glob.Automaton }

func (r compiledRules) Match(path string) Answer { return Answer(r.Automaton.Match(path)) }

func (r compiledRules) Shows(path string) bool { return r.Along(path, glob.See) }

func (r compiledRules) Text(uint16) string { return "" }

func (r compiledRules) NoGain(from, to string) bool {
	return r.Automaton.NoGain(r.Walk(from), r.Walk(to))
}

// TestAgreement tries the rows of the agreement corpus as real calls of a process whose broker has the
// case's policy. Exec is not among them: execve does not come to the broker. audit/hook does the
// same with the kernel's programs, policy with the evaluator.
func TestAgreement(t *testing.T) {
	rows := 0
	for seed := range uint64(8) {
		var k corpus.Case
		var rules compiledRules
		c := startChild(t, func(cfg *Config) {
			base, err := filepath.EvalSymlinks(cfg.Rules.Enter().(testRules).base)
			must(t, err)
			k = corpus.New(seed, base+"/ws")
			d, err := policy.Parse("corpus.toml", k.Document())
			must(t, err)
			r, err := policy.Resolve([]policy.Layer{{Kind: policy.Profile, Doc: d}}, policy.Vars{Workspace: k.Base, Home: "/h"})
			must(t, err)
			rules.Automaton, err = r.Automaton()
			must(t, err)
			cfg.Rules = Only(rules)
		})
		for _, phase := range k.Phases() {
			if phase[0].Act == corpus.ActExec {
				continue
			}
			must(t, k.Plant(testUID, testGID))
			for _, r := range phase {
				got := unix.Errno(c.do(rowCall(r)).Errno)
				want := k.Allows(r, matchOne, rules.NoGain)
				allowed, ok := corpus.Allowed(got)
				did, known := r.Happened()
				if !ok || allowed != want || known && did != want {
					t.Errorf("case %d: %s %s %s: %v, happened %v, allowed by the definition: %v\n%s", seed, r.Act, r.Path, r.To, got, did, want, k.Document())
				}
				rows++
			}
		}
	}
	t.Logf("%d rows", rows)
}

// rowCall is the system call of a row.
func rowCall(r corpus.Row) command {
	switch r.Act {
	case corpus.ActRead:
		return sysCommand(unix.SYS_OPENAT, fdcwd, r.Path, unix.O_RDONLY, 0)
	case corpus.ActWrite:
		return sysCommand(unix.SYS_OPENAT, fdcwd, r.Path, unix.O_WRONLY, 0)
	case corpus.ActCreate:
		return sysCommand(unix.SYS_OPENAT, fdcwd, r.Path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
	case corpus.ActTruncate:
		return sysCommand(unix.SYS_TRUNCATE, r.Path, 0)
	case corpus.ActChmod:
		return sysCommand(unix.SYS_FCHMODAT, fdcwd, r.Path, 0o600)
	case corpus.ActMkdir:
		return sysCommand(unix.SYS_MKDIRAT, fdcwd, r.Path, 0o755)
	case corpus.ActUnlink:
		return sysCommand(unix.SYS_UNLINKAT, fdcwd, r.Path, 0)
	case corpus.ActLink:
		return sysCommand(unix.SYS_LINKAT, fdcwd, r.Path, fdcwd, r.To, 0)
	default:
		return sysCommand(unix.SYS_RENAMEAT2, fdcwd, r.Path, fdcwd, r.To, 0)
	}
}
