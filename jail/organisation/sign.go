package organisation

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentos/agentos/policy/minisign"
)

// keysName is the file of trusted keys, beside the directory of policies: who may put
// policies there need not be who says whose signatures count.
const keysName = "trusted_keys"

// requireLine is the line of trusted_keys by which every policy must be signed. Unlike the
// same in a policy it cannot go with that policy.
const requireLine = `signed = "require"`

// parseKeys reads trusted_keys: public keys, each a line of base64, comments (lines that
// begin with # or with "untrusted comment:", so that .pub files can be joined), and
// [requireLine].
func parseKeys(path string, text []byte) (keys []minisign.Key, required bool, err error) {
	if !utf8.Valid(text) {
		return nil, false, fmt.Errorf("%s: is not UTF-8", path)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "", line[0] == '#', strings.HasPrefix(line, "untrusted comment:"):
		case line == requireLine:
			required = true
		default:
			k, err := minisign.ParseKey(line)
			if err != nil {
				return nil, false, fmt.Errorf("%s:%d: %w", path, n, err)
			}
			keys = append(keys, k)
		}
	}
	return keys, required, nil
}

// signed are the names that there is a signature for, sorted.
func (r *raw) signed() []string { return slices.Sorted(maps.Keys(r.signatures)) }

// verify checks every signature, and that there is one for each file where one is
// required. A signature whose file is gone is a mistake, too.
func (r *raw) verify(out *Rules, keys []minisign.Key, required bool, why string) error {
	for _, name := range r.signed() {
		i := slices.IndexFunc(r.files, func(f file) bool { return f.name == name })
		path := filepath.Join(out.dir, name+suffix)
		if i < 0 {
			return fmt.Errorf("%s: the file that it signs is not there", path)
		}
		s, err := minisign.Parse(r.signatures[name])
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		key, err := s.Verify(r.files[i].data, keys)
		if err != nil {
			return fmt.Errorf("%s: the signature with key %s %w", path, s.Key, err)
		}
		out.Files[i].Signer, out.Files[i].Said = key.ID.String(), s.Comment
	}
	for _, f := range out.Files {
		if required && f.Signer == "" {
			return fmt.Errorf("%s is not signed, and %s requires it", f.Path, why)
		}
	}
	return nil
}
