package orchestrator

import (
	"errors"

	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// Exit statuses of AgentOS itself; every other one is the agent's.
const (
	StatusFailed   = 125
	StatusRefused  = 126
	StatusNotFound = 127
)

// Error is a failure that a user can act on.
type Error struct {
	Status int    // exit status that follows; 0 means [StatusFailed]
	Err    error  // what happened, in one sentence
	Hint   string // what to do about it, "" if nothing
}

// Error returns the sentence without the hint.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Status returns the exit status that follows from err: 0 for nil, that of an
// [*Error] or [*rpc.Error] in its chain, else [StatusFailed].
func Status(err error) int {
	var e *Error
	var r *rpc.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e) && e.Status != 0:
		return e.Status
	case errors.As(err, &r):
		return r.ExitStatus()
	}
	return StatusFailed
}

// Hint returns the hint of the first error in err's chain that has one.
func Hint(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch h := e.(type) { //nolint:errorlint // the chain is walked here
		case *Error:
			if h.Hint != "" {
				return h.Hint
			}
		case *rpc.Error:
			return h.Hint
		case *policy.Error:
			return h.Hint
		}
	}
	return ""
}

func refuse(err error, hint string) error { return &Error{StatusRefused, err, hint} }

func missing(err error, hint string) error { return &Error{StatusNotFound, err, hint} }
