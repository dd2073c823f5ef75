// Package upstream is netd's way out: it resolves names with the host's
// resolvers and files, and dials addresses, or asks the host's proxy to.
//
// [Resolver] asks the servers of the host's resolv.conf in their order, A and AAAA side by side, and believes
// an answer only for the question, the id and, along a chain of CNAMEs, the names that it asked for. Answers
// are kept for their time to live, at most [maxKeep]. The host's search list does not apply: names in rules
// are whole. What nsswitch.conf may name beyond files and DNS is not asked.
//
// [Dialer] dials exactly the addresses it is given, two families side by side
// (RFC 8305). It resolves nothing, so that nothing can change between a check and the dial.
//
// With a proxy the proxy resolves the name and chooses the address: what
// it can reach, names that rules allow can reach through it, and the classes
// of package address are not checked. What Direct names is resolved, checked and dialled here.
package upstream
