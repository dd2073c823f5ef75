package changes

import (
	"fmt"

	"github.com/agentos/agentos/policy"
)

// Order says what to copy and where to.
type Order struct {
	Path  string // absolute in the jail, in its home
	To    string // directory of the host; "" = the same place in the home
	Force bool   // replace files, and take names that are barred
}

// Result says what was copied.
type Result struct {
	Path  string   // on the host, of what was kept
	Files int      // files and links copied
	Bytes int64    // of their content
	Left  []string // what was not copied, and why; at most maxLeft
	More  int      // further ones that were not
}

// maxLeft bounds what a result names one by one.
const maxLeft = 20

func (r *Result) leave(name, why string) {
	if len(r.Left) == maxLeft {
		r.More++
		return
	}
	r.Left = append(r.Left, name+": "+why)
}

// Refusal is why nothing was copied.
type Refusal struct {
	Path string       // on the host
	Why  string       // without a rule
	Rule *policy.Rule // that bars the name, or nil
	More int          // other names that are refused, too
	Hint string
}

// Error is one sentence.
func (r *Refusal) Error() string {
	why := r.Why
	switch {
	case r.Rule == nil:
	case r.Rule.Pos == "": // of Startup
		why = "your host would obey it: " + r.Rule.Text
	default:
		why = fmt.Sprintf("%s says %s %s", r.Rule.Pos, r.Rule.Kind, r.Rule.Text)
	}
	text := fmt.Sprintf("%s is not kept: %s", r.Path, why)
	if r.More > 0 {
		text += fmt.Sprintf(" (and %d more like it)", r.More)
	}
	return text
}
