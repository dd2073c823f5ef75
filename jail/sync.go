package jail

// Messages between helper and init, one const block. The drawing is in doc.go.
const (
	OpBuild   = "build"   // helper: this is your Spec, its parts come along; again for more parts
	OpMounted = "mounted" // init: the view is whole; only with Spec.Opens
	OpMarked  = "marked"  // helper: its mounts are marked
	OpReady   = "ready"   // init: jail is built and checked
	OpFailed  = "failed"  // init: a step or a request failed
	OpLook    = "look"    // helper: is the view still as you would make it now? init: it is
	OpRun     = "run"     // helper: start a process; with a sealed memfd, a Process as JSON, and without TTY three pipes
	OpRunning = "running" // init: it was started
	OpSignal  = "signal"  // helper: signal the foreground of a process
	OpResize  = "resize"  // helper: set a terminal's size
	OpChanged = "changed" // init: a process exited or stopped
	OpRules   = "rules"   // helper: these rules, a sealed memfd, hold from now on; init: they do
	OpWhy     = "why"     // init: somebody in the jail asks this; helper: the answer
)

// Message is every datagram on the control socket. Op says which fields count.
type Message struct {
	Op     string  `json:"op"`
	ID     uint64  `json:"id,omitempty"`   // request and its answer
	Proc   int     `json:"proc,omitempty"` // 1 is the agent
	Step   string  `json:"step,omitempty"`
	Text   string  `json:"text,omitempty"`
	Errno  int     `json:"errno,omitempty"`
	Pid    int     `json:"pid,omitempty"` // inside the jail
	Signal int     `json:"signal,omitempty"`
	Code   int     `json:"code,omitempty"`
	What   string  `json:"what,omitempty"` // changed: "exited", "stopped"
	TTY    bool    `json:"tty,omitempty"`
	Rows   uint16  `json:"rows,omitempty"`
	Cols   uint16  `json:"cols,omitempty"`
	Steps  []Step  `json:"steps,omitempty"`
	Checks []Check `json:"checks,omitempty"`
	ABI    int     `json:"abi,omitempty"` // Landlock ABI in force
	Gen    uint32  `json:"gen,omitempty"` // rules: their generation
}

// Step is the time one step of init took.
type Step struct {
	Name   string `json:"name"`
	Micros int64  `json:"micros"`
}

// Check is one canary of the jail check.
type Check struct {
	Name string `json:"name"`
	Good bool   `json:"good"` // the forbidden act failed, as it must
	Text string `json:"text"` // the errno it got, or what happened
}
