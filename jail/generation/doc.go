// Package generation is about the file rules of a running jail when others take
// their place: what a running jail can take, and which rules an event was judged by.
//
// Each set of rules that a jail has had is a generation, numbered from 0. A [Book]
// keeps the last few with what explains them. Producers of events name a rule by its
// generation and number: init writes both (jail.RuleRef); the kernel's records have
// 16 bits for it, so each generation's automaton gets numbers of its own
// ([Renumber]), and all records of one are read before its numbers come again.
//
// What is mounted and what Landlock allows stay as they were at the start: they can
// only be tighter than new rules, and such a difference would be a rule that promises
// what nobody can do. So [Beyond] names each path that new rules grant and the jail
// does not have, and [Changes] each section other than the file rules that differs;
// both refuse a swap.
//
// It is pure: no file, no kernel.
package generation
