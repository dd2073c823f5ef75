package inside

import (
	"errors"
	"fmt"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/jail"
)

// Rights by what needs them (landlock(7)).
const (
	readFile = ll.AccessFSReadFile
	readTree = ll.AccessFSReadFile | ll.AccessFSReadDir
	editFile = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev
	editDir  = ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeDir | ll.AccessFSMakeReg |
		ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeSym | ll.AccessFSRefer
	// never are rights no rule gives.
	never = ll.AccessFSMakeChar | ll.AccessFSMakeBlock
)

// landlock makes the ruleset of the plan's mounts; the launch thread takes it,
// and with it the agent and everything it starts. Init's own threads stay out: a
// domain of their own would, before ABI 8, be a sibling of the agent's, and
// Landlock lets nobody look into a sibling, which the broker must.
func (s *state) landlock() error {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		s.abi = 0 // reported, judged by the helper
		return nil
	}
	s.abi = abi
	attr := &ll.RulesetAttr{HandledAccessFS: handled(abi)}
	if abi >= 6 {
		attr.Scoped = ll.ScopeAbstractUnixSocket | ll.ScopeSignal
	}
	if s.ruleset, err = ll.LandlockCreateRuleset(attr, 0); err != nil {
		return fmt.Errorf("create ruleset: %w", err)
	}
	unix.CloseOnExec(s.ruleset)
	for _, a := range s.spec.Allow {
		if err := s.allow(a, access(a)&attr.HandledAccessFS); err != nil {
			return fmt.Errorf("allow %s: %w", a.Path, err)
		}
	}
	return nil
}

func (s *state) allow(a jail.Allow, rights uint64) error {
	fd, err := unix.Open(a.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // nothing there, nothing to allow
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return ll.LandlockAddPathBeneathRule(s.ruleset, &ll.PathBeneathAttr{ParentFd: fd, AllowedAccess: rights}, 0)
}

// handled are the rights that the ABI knows; all of them are denied unless a
// rule gives them.
func handled(abi int) uint64 {
	set := uint64(readTree | ll.AccessFSExecute | ll.AccessFSWriteFile | (editDir &^ ll.AccessFSRefer) | never)
	if abi >= 2 {
		set |= ll.AccessFSRefer
	}
	if abi >= 3 {
		set |= ll.AccessFSTruncate
	}
	if abi >= 5 {
		set |= ll.AccessFSIoctlDev
	}
	return set
}

func access(a jail.Allow) uint64 {
	if a.List {
		return ll.AccessFSReadDir
	}
	set := uint64(readFile)
	if a.Exec {
		set |= ll.AccessFSExecute
	}
	if a.Write {
		set |= editFile
	}
	if a.File {
		return set
	}
	set |= ll.AccessFSReadDir
	if a.Write {
		set |= editDir
	}
	return set
}
