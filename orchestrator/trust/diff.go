package trust

import (
	"fmt"
	"strings"
)

// What a difference shows at most.
const (
	maxCells = 4 << 20 // of the table of common lines; beyond it, all lines in between count as replaced
	maxShown = 400     // lines
	around   = 3       // lines of context
)

// edit is one line of a difference.
type edit struct {
	op   byte // ' ', '-' or '+'
	text string
}

// unified returns the difference of two texts in the unified form without a
// header, cut at 400 lines; "" when they are the same.
func unified(before, after string) string {
	all := edits(lines(before), lines(after))
	var b strings.Builder
	shown, left := 0, 1
	a, c := 1, 1 // line numbers
	for i := 0; i < len(all); {
		if all[i].op == ' ' {
			i, a, c = i+1, a+1, c+1
			continue
		}
		from := max(i-around, left-1)
		to := hunkEnd(all, i)
		na, nc := 0, 0
		for _, e := range all[from:to] {
			if e.op != '+' {
				na++
			}
			if e.op != '-' {
				nc++
			}
		}
		back := i - from
		_, _ = fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@\n", a-back-none(na), na, c-back-none(nc), nc)
		for _, e := range all[from:to] {
			if shown++; shown > maxShown {
				_, _ = fmt.Fprintf(&b, "... cut after %d lines\n", maxShown)
				return b.String()
			}
			b.WriteByte(e.op)
			b.WriteString(e.text)
			b.WriteByte('\n')
		}
		a, c = a-back+na, c-back+nc
		i, left = to, to+1
	}
	return b.String()
}

// none is 1 for a hunk without lines on one side: by custom that side then names
// the line before it (diff(1)).
func none(lines int) int {
	if lines == 0 {
		return 1
	}
	return 0
}

// hunkEnd returns where a hunk that has a change at i ends.
func hunkEnd(all []edit, i int) int {
	last := i
	for j := i; j < len(all) && j <= last+2*around; j++ {
		if all[j].op != ' ' {
			last = j
		}
	}
	return min(last+around+1, len(all))
}

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// edits turns a into b: what both begin and end with, and in between the longest
// common lines.
func edits(a, b []string) []edit {
	var head, tail []edit
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, edit{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	for _, l := range a[len(a)-n:] {
		tail = append(tail, edit{' ', l})
	}
	a, b = a[:len(a)-n], b[:len(b)-n]
	return append(append(head, middle(a, b)...), tail...)
}

func middle(a, b []string) (out []edit) {
	if len(a)*len(b) > maxCells {
		for _, l := range a {
			out = append(out, edit{'-', l})
		}
		for _, l := range b {
			out = append(out, edit{'+', l})
		}
		return out
	}
	// common[i*w+j]: how many lines a[i:] and b[j:] have in common.
	w := len(b) + 1
	common := make([]int32, (len(a)+1)*w)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*w+j] = common[(i+1)*w+j+1] + 1
			} else {
				common[i*w+j] = max(common[(i+1)*w+j], common[i*w+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, edit{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[(i+1)*w+j] >= common[i*w+j+1]:
			out = append(out, edit{'-', a[i]})
			i++
		default:
			out = append(out, edit{'+', b[j]})
			j++
		}
	}
	return out
}
