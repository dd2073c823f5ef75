// Package network is the network of one running jail: from the rules of its policy
// and what its user grants meanwhile to the namespace, netd and the kernel, and from
// what they tell to the record and to the user.
//
//	policy, grants --Open, Set, Grant--> rules in netd, reach in the kernel
//	events of netd --------------------> record, traffic by destination, questions
//
// What it promises:
//
//   - What is not allowed any more is cut before a change is answered, and what
//     netd refuses changes nothing, there or in the kernel.
//   - A grant is bounded by the organisation's lists and by every denial, twice:
//     it is refused when it asks for more, and the rules that netd gets say no
//     (package jail/reach). It ends within [expireEvery] of its time.
//   - Each change, its end and its refusal is a record with the user who did it.
//
// What it does not do: it judges no connection (netd does), and decides no right of
// a caller but one: what root said only root takes back.
package network
