package rpc

import "time"

// BreakGlassAsk asks to do without those files of the organisation that permit it, in the
// sessions that the caller starts within a time.
type BreakGlassAsk struct {
	Reason string        `json:"reason"`         // printable, 1 to [MaxReason] bytes
	For    time.Duration `json:"for,omitempty"`  // ns; 0: as long as the files permit, at most [DefaultBreak]
	End    bool          `json:"end,omitempty"`  // end the grant instead; Reason may be empty
	Show   bool          `json:"show,omitempty"` // say only what there is
}

// Limits of [BreakGlassAsk].
const (
	MaxReason    = 500
	DefaultBreak = 30 * time.Minute
)

// GlassBroken answers it.
type GlassBroken struct {
	Session string    `json:"session,omitempty"` // id of the record of it, for log
	Reason  string    `json:"reason,omitempty"`
	Files   []string  `json:"files,omitempty"` // that are done without
	Until   time.Time `json:"until,omitzero"`  // zero: nothing is in force
}

// GlassDetail is the detail of the record of a grant, in JSON.
type GlassDetail struct {
	What    string   `json:"break_glass"` // "begin" or "end"
	UID     int      `json:"uid"`
	PID     int      `json:"pid"`
	Reason  string   `json:"reason"`
	Files   []string `json:"files"`
	Seconds int64    `json:"seconds,omitempty"`
}
