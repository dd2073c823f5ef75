package glob

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Policies come from repositories that nobody trusts: whatever they ask for ends soon,
// in a table or in a typed error.
func TestHostile(t *testing.T) {
	var prefixes, trees, deepGlobs, others, nested []string
	for i := range 8000 {
		prefixes = append(prefixes, fmt.Sprintf("**/%s%d*", strings.Repeat("a", i%200), i))
		trees = append(trees, fmt.Sprintf("**/d%d/**/e%d", i, i))
		deepGlobs = append(deepGlobs, fmt.Sprintf("/x%d/y*z/**/%d*q/?b", i, i))
	}
	for i := range 6 {
		others = append(others, fmt.Sprintf("**/*%c*%c*", 'a'+i, 'b'+i))
	}
	for i := range 250 {
		nested = append(nested, "**/"+strings.Repeat("a", i+1)+"*", "**/*"+strings.Repeat("b", i+1))
	}
	for name, c := range map[string]struct {
		globs []string
		fits  bool
	}{
		"one long chain":        {[]string{strings.Repeat("/a", 1990) + "/b"}, true},
		"two chains":            {[]string{strings.Repeat("/a", 900) + "/b", "/c" + strings.Repeat("/a", 900) + "/b"}, true},
		"floating stars":        {[]string{"**" + strings.Repeat("/*", 12) + "/b", "**/a" + strings.Repeat("/*", 9) + "/b"}, false},
		"nested prefixes":       {prefixes, true},
		"twelve inner **":       {trees[:12], true},
		"a hundred inner **":    {trees[:100], false},
		"eight thousand":        {trees, false},
		"deep":                  {deepGlobs, false},
		"several *":             {others, true},
		"nested ends":           {nested, true},
		"more than is accepted": {make([]string, maxGlobs+1), false},
	} {
		kinds := make([]uint16, len(c.globs))
		for i := range kinds {
			kinds[i] = uint16(i % 5)
		}
		a, err := CompileKinds(c.globs, kinds, layered(kinds))
		var e *Error
		if (err == nil) != c.fits || err != nil && !errors.As(err, &e) || len(a.Bytes()) > MaxBytes {
			t.Errorf("%s: %d bytes, %v", name, len(a.Bytes()), err)
		}
	}
}
