package organisation

import (
	"time"

	"github.com/agentos/agentos/policy"
)

// CheckGrant says whether the rules let entry, one of [net] allow, be granted at that moment
// to a jail with these variables: by is what refuses it, "" for nothing. They may be less than
// what the jail was started under. lifted is as in [Rules.Layers].
func (r *Rules) CheckGrant(now time.Time, lifted []string, vars policy.Vars, entry string) (by string, err error) {
	layers, err := r.Layers(now, lifted)
	if err != nil {
		return "", err
	}
	yes := true
	profile := &policy.Document{Version: 1, Name: "grant", Files: policy.Files{AnyWorkspace: &yes}}
	res, err := policy.Resolve(append(layers, policy.Layer{Kind: policy.Profile, Doc: profile}), vars)
	if err != nil {
		return "", &Error{Err: err, Hint: "ask whoever administers these files"}
	}
	return res.CheckGrant(entry)
}
