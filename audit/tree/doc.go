// Package tree shows the processes of a session as a tree, with what each did.
//
// A [Builder] takes the records of one session in order; [Builder.Result] is the
// tree. A process is its host id and the time of its start, which nothing can
// forge or reuse; its parent is the process that had the parent's id then. What
// a record says of a process without the time of its start belongs to the one
// that had the id last; where a record knows only the id inside the jail (what init
// did for a process), to the one that had it then, also if it is told of later.
//
// A process without a known parent is a root: the agent (its parent is init), what
// "agentos exec" started, and what was there before the record began. Children of a
// process that ended before them stay where they were started, unlike in ps(1):
// the tree says who started what.
//
// Names are hostile: [Text] prints them through [event.Printable]. Memory is bounded:
// beyond 100,000 processes and 8 examples of each thing, only counts grow.
package tree
