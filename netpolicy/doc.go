// Package netpolicy is what the helper and netd say to each other: the rules of
// a jail's network as data, the verbs, the events, and their strict form on a
// SOCK_SEQPACKET socket. It decides nothing and opens nothing.
//
//	helper                                             netd
//	  | hello {protocol, build}                           |   first, once
//	  |------------------------------------------------->|
//	  | reply {id, hello}                                 |
//	  |<-------------------------------------------------|
//	  | configure {resolv.conf, hosts, upstream}          |   before the first add, and when one of them changed
//	  | add {jail, generation, rules, limits} + 4 fds     |   made in the jail's network namespace, in this order:
//	  |     [tcp4 listener, tcp6 listener, udp4, udp6]    |   the datagram sockets are bound to port 53
//	  | set {jail, generation, rules}                     |   all of the jail's rules: what they no longer allow is cut
//	  | remove {jail}                                     |   the jail's connections are cut, its sockets closed
//	  | counters {jail}   connections {jail, after}       |
//	  | decide {jail, ask}                                |   the question of an ask event: look at the rules again
//	  |------------------------------------------------->|
//	  | reply {id, error | ok | counters | connections}   |   one for each request, in their order
//	  |<-------------------------------------------------|
//	  | event {asked|opened|closed|denied|cut|ask|lost}   |   at any time; unsolicited
//	  |<-------------------------------------------------|
//
// A message is one datagram of at most [packet.MaxSize] bytes. A request that is
// larger travels as {"verb", "id", "large": true} with its body in a sealed
// memfd, the last descriptor of the datagram, of at most [MaxDocument] bytes.
// Unknown verbs, unknown fields, missing and additional descriptors, and rules
// that [Rules.Check] refuses are errors; a refused set leaves the rules that
// were there. A datagram that cannot be decoded at all ends the conversation:
// both sides are ours.
//
// When the socket closes, netd closes every connection and ends. The helper keeps
// copies of the four sockets of each jail and hands them to the next netd; in
// between, the kernel queues connections and drops datagrams, and nothing leaves.
//
// Rules know no policy language: the helper wrote them from the resolved policy.
// The zero [Rules] allow nothing.
package netpolicy
