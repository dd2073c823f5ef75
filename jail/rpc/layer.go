package rpc

import "time"

// LayerRef asks for the layers of a running session, by id or name.
type LayerRef struct {
	Session string `json:"session"`
}

// Layers answers changes. Its first descriptor is a sealed memfd with the deny and
// protect rules that the session was started under (policy.Bars as JSON); one
// O_PATH descriptor of a directory for each of Trees follows, in order.
type Layers struct {
	Session string      `json:"session"`
	Name    string      `json:"name"`
	Home    string      `json:"home"` // absolute path inside
	Trees   []LayerTree `json:"trees"`
}

// LayerTree is one directory that the session has of its own.
type LayerTree struct {
	Path    string `json:"path"`              // absolute, inside: the home or a directory below it
	Overlay bool   `json:"overlay,omitempty"` // it holds only what differs from the host's
}

// KeptRef asks for kept directories after that id, in the order of ids; "" = from
// the first one on.
type KeptRef struct {
	After string `json:"after,omitempty"`
}

// KeptTrees answers kept: as many O_PATH descriptors as Trees, in order. More is
// true when there are others after the last one.
type KeptTrees struct {
	Trees []KeptTree `json:"trees"`
	More  bool       `json:"more,omitempty"`
}

// KeptTree is a directory of the home that sessions of a workspace share.
type KeptTree struct {
	ID        string    `json:"id"`
	UID       int       `json:"uid"`
	Workspace string    `json:"workspace"`
	Path      string    `json:"path"` // below the home, such as ".npm"
	Made      time.Time `json:"made"`
	InUse     bool      `json:"in_use"`
}

// DropKept asks for the removal of the kept directory of that id.
type DropKept struct {
	ID string `json:"id"`
}
