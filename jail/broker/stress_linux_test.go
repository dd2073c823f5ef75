package broker

import (
	"fmt"
	"testing"
)

// TestTools runs ordinary programs side by side: nothing they do may fail.
func TestTools(t *testing.T) {
	c := startChild(t, quiet)
	for d := range 40 {
		for f := range 4 {
			c.put(fmt.Sprintf("tree/d%d/f%d", d, f), "x")
		}
	}
	script := `for i in 1 2 3 4 5; do
		ls -R tree >/dev/null && grep -r x tree >/dev/null && find tree -name 'f1' -exec cat {} + >/dev/null || exit 1
		rm -rf copy$0 && cp -a tree copy$0 && diff -r tree copy$0 && tar cf t$0.tar copy$0 && rm -r copy$0 && tar xf t$0.tar && diff -r tree copy$0 || exit 1
	done`
	var all []chan result
	for i := range 4 {
		all = append(all, c.begin(command{Op: "run", Argv: []string{"sh", "-c", script, fmt.Sprint(i)}}))
	}
	for _, ch := range all {
		if r := <-ch; r.Errno != 0 {
			t.Errorf("%s", r.Data)
		}
	}
}
