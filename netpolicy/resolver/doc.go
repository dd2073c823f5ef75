// Package resolver answers the DNS questions of a jail, over UDP and TCP, whichever
// resolver's address they were sent to.
//
// Nothing is asked outside for a name that no rule allows. A and AAAA of an allowed
// name are answered from the jail's own table without asking anybody: whether the name
// exists is found out when it is connected to. SRV, TXT and MX go
// to the host's resolvers where a rule of the name says so; PTR is answered for addresses that
// were given here. HTTPS and SVCB have no data, so that clients find no address hints, no ECH keys and no HTTP/3 in them;
// nor has any other type. Names that no rule allows do not exist (NXDOMAIN), except
// those above allowed ones. "localhost" is the jail's own (RFC 6761).
//
// Questions over the jail's rate are dropped, counted, and not told one by one.
package resolver
