package policy

import (
	"encoding/json"
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

// A reference crosses the gate in place of the policy: it must mean the same.
func TestBuiltinReference(t *testing.T) {
	for _, name := range BuiltinNames() {
		whole, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		whole.Tests = nil
		ref, err := BuiltinReference(name)
		if err != nil {
			t.Fatal(err)
		}
		var hashes []string
		for _, doc := range []*Document{whole, ref} {
			r, err := Resolve([]Layer{{Profile, doc}}, SampleVars())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			hashes = append(hashes, r.Hash())
		}
		if hashes[0] != hashes[1] {
			t.Errorf("%s: the reference resolves to another policy", name)
		}
		for _, doc := range []*Document{whole, ref} { // the short way of encoding is no other one
			type plain Layer
			quick, err := json.Marshal(Layer{Profile, doc})
			slow, err2 := json.Marshal(plain{Profile, doc})
			if err != nil || err2 != nil || string(quick) != string(slow) {
				t.Errorf("%s (%v, %v):\n%s\n%s", name, err, err2, quick, slow)
			}
		}
	}
	if _, err := BuiltinReference("none"); err == nil {
		t.Error("there is a reference to a policy that does not exist")
	}
}

// What a caller does to a copy must not change the policy of the next one.
func TestBuiltinIsACopy(t *testing.T) {
	spoil := func(d *Document) {
		for _, kind := range ruleKinds {
			for i := range *d.list(kind) {
				(*d.list(kind))[i].Text = "spoilt"
			}
		}
		for i := range d.Extends {
			d.Extends[i].Text = "spoilt"
		}
		for i := range d.Tests {
			d.Tests[i].Read = append(d.Tests[i].Read[:0], Item{Text: "spoilt"})
		}
		if d.Terminal.Title != nil {
			*d.Terminal.Title = !*d.Terminal.Title
		}
		clear(d.Env.Set)
		clear(d.Require)
		clear(d.At)
	}
	for _, name := range BuiltinNames() {
		first, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		spoil(first)
		second, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := BuiltinText(name)
		if err != nil {
			t.Fatal(err)
		}
		if doc, err := Parse("builtin:"+name, text); err != nil || !reflect.DeepEqual(second, doc) {
			t.Errorf("%s: a change of one copy is seen in the next (%v)", name, err)
		}
	}
}
