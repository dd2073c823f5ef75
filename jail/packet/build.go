package packet

import "runtime/debug"

// Build identifies the build of the running binary: the version control
// revision, marked when the tree was changed, or the module version. Binaries of
// one build say the same; a helper and an init of different builds refuse each
// other.
func Build() string {
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
