package view

import (
	"fmt"

	"github.com/agentos/agentos/policy/glob"
)

// PathGlob returns a matcher of one glob of the policy language: absolute
// ("/w/**") or floating ("**/.env"). Only absolute, clean paths match.
func PathGlob(pattern string) (func(path string) bool, error) {
	a, err := glob.Compile([]string{pattern}, func(matched []uint16) glob.Accept {
		if len(matched) == 0 {
			return glob.Accept{}
		}
		return glob.Accept{Bits: 1 << glob.Read}
	})
	if err != nil {
		return nil, fmt.Errorf("path %q: %w", pattern, err)
	}
	return func(path string) bool { return a.Match(path).Allows(glob.Read) }, nil
}
