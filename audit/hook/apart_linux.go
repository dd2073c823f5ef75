package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// installEnv holds the order for a child of [Load].
const installEnv = "AGENTOS_INSTALL"

// order is what the child installs: the part of [Options] that [Install] looks at.
type order struct {
	PinDir, Group string
	Tier          Tier
}

// installation is what became of an order.
type installation struct {
	Features Features
	Failed   string // "" = installed
	Cause    int    // index in causes, or -1
}

// causes are the errors that callers of [Install] tell apart.
var causes = []error{ErrTier, ErrOther}

// apartError is an error of the child.
type apartError struct {
	text  string
	cause error
}

func (e *apartError) Error() string { return e.text }
func (e *apartError) Unwrap() error { return e.cause }

// installApart is [Install] in a child: what parsing the kernel's types leaves behind in
// memory ends with it. Everything that it makes is pinned.
func installApart(o Options) (Features, error) {
	o, err := o.defaults()
	if err != nil {
		return Features{}, err
	}
	if err := mountBPFFS(filepath.Dir(o.PinDir), o.Logger); err != nil { // here, so that it is logged
		return Features{}, err
	}
	text, err := json.Marshal(order{o.PinDir, o.Group, o.Tier})
	if err != nil {
		return Features{}, err
	}
	var stderr bytes.Buffer
	c := exec.Command(o.Executable)
	c.Env = append(os.Environ(), installEnv+"="+string(text))
	c.Stderr = &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // half an installation is removed by the next one
	runtime.LockOSThread()                                           // the signal comes when this thread ends
	defer runtime.UnlockOSThread()
	out, err := c.Output()
	if err != nil {
		return Features{}, fmt.Errorf("install kernel programs: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var done installation
	if err := json.Unmarshal(out, &done); err != nil || done.Cause < -1 || done.Cause >= len(causes) {
		return Features{}, fmt.Errorf("install kernel programs: the child said %q: %w", out, errors.Join(err, ErrTier))
	}
	if done.Failed == "" {
		return done.Features, nil
	}
	failed := &apartError{text: done.Failed}
	if done.Cause >= 0 {
		failed.cause = causes[done.Cause]
	}
	return done.Features, failed
}

// installFor is the child.
func installFor(text string) int {
	os.Unsetenv(installEnv)
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, "read order:", err)
		return 1
	}
	f, err := Install(Options{PinDir: o.PinDir, Group: o.Group, Tier: o.Tier})
	done := installation{Features: f, Cause: -1}
	if err != nil {
		done.Failed = err.Error()
		for i, c := range causes {
			if errors.Is(err, c) {
				done.Cause = i
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(done); err != nil {
		return 1
	}
	return 0
}
