package glob

import "strings"

// Reference answers the indexes of the globs that match an absolute, clean path,
// ascending. It is the definition that the automaton is tested against, and slow: it
// parses every glob anew and tries all ways. Globs that are not valid match nothing.
func Reference(globs []string, path string) []uint16 {
	names, ok := clean(path)
	if !ok {
		return nil
	}
	var out []uint16
	for i, g := range globs {
		if i >= maxGlobs {
			break
		}
		alts, err := parse(g)
		if err != nil {
			continue
		}
		for _, parts := range alts {
			if matchParts(parts, names) {
				out = append(out, uint16(i))
				break
			}
		}
	}
	return out
}

// clean splits a path at its slashes; ok is false if no kernel would show it like that.
func clean(path string) (names []string, ok bool) {
	if path == "/" {
		return nil, true
	}
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return nil, false
	}
	names = strings.Split(rest, "/")
	for _, n := range names {
		if n == "" || n == "." || n == ".." || len(n) > nameMax {
			return nil, false
		}
	}
	return names, true
}

func matchParts(parts []pattern, names []string) bool {
	switch {
	case len(parts) == 0:
		return len(names) == 0
	case parts[0].kind == deep:
		return matchParts(parts[1:], names) || len(names) > 0 && matchParts(parts, names[1:])
	}
	return len(names) > 0 && parts[0].matches(names[0]) && matchParts(parts[1:], names[1:])
}
