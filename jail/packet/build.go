package packet

import "runtime/debug"

// build is set by the linker: see STAMP in the Makefile.
var build string

// Build identifies the build of the running binary: what make stamped it with
// (the commit, marked when the tree was changed), else what the go command
// recorded: the revision, or the module version. Binaries of one build say the
// same; a helper and an init of different builds refuse each other.
func Build() string {
	if build != "" {
		return build
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				modified = "+"
			}
		}
	}
	if revision == "" {
		return info.Main.Version
	}
	return revision[:min(12, len(revision))] + modified
}
