// Command agentos-init is pid 1 of every jail. It is static, has no cgo, is
// started by agentos-helper only, and does nothing but jail/inside.
//
// The helper runs a sealed copy of it, so that what builds a jail cannot be
// replaced while jails start. Under the name agentos-canary it is the child that
// tries the forbidden acts of the jail check where rules live in the kernel. Under the
// name agentos, which the jail shows it by, it is `agentos why` for those inside, and under
// the name agentos-job it stands between init and a command on a further terminal.
package main

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/agentos/agentos/jail"
	"github.com/agentos/agentos/jail/inside"
	"github.com/agentos/agentos/jail/job"
	"github.com/agentos/agentos/jail/packet"
)

// The group leader is what /proc/1 and prlimit(1, ...) mean by pid 1: main stays
// on it, so that no thread in the agent's posture ever becomes it. Only an init
// function runs there for certain (runtime.LockOSThread).
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) > 0 && os.Args[0] == inside.CanaryName {
		os.Exit(inside.Canary(os.Args))
	}
	if len(os.Args) > 0 && os.Args[0] == job.Name {
		os.Exit(job.Main(os.Args[1:]))
	}
	if len(os.Args) > 0 && filepath.Base(os.Args[0]) == filepath.Base(jail.ToolPath) {
		os.Exit(inside.Tool(os.Args[1:]))
	}
	os.Exit(inside.Main(packet.Build(), os.Args))
}
