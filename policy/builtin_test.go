package policy

import (
	"reflect"
	"testing"
)

func TestBuiltinsPassTheirTests(t *testing.T) {
	for _, name := range BuiltinNames() {
		text, err := BuiltinText(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := Parse("builtin:"+name, text)
		if err != nil {
			t.Fatal(err)
		}
		if quick, err := Builtin(name); err != nil || !reflect.DeepEqual(quick, doc) {
			t.Errorf("%s: Builtin and Parse differ: %v", name, err)
		}
		results, err := Check(doc, Vars{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(results) < 10 {
			t.Errorf("%s has only %d tests", name, len(results))
		}
		for _, r := range results {
			if !r.OK {
				t.Errorf("%s %q: %s %s: want allow=%v: %s", r.Pos, r.Test, r.Op, r.Arg, r.Want, r.Got.Why)
			}
		}
	}
}
