// Package daemon is netd without its process: it takes requests from the helper's socket,
// one after the other, keeps the jails that it was given, and sends events.
//
// It ends when the socket does: every connection of every jail is reset, and
// nothing of it goes on. A request that is refused changes nothing. A reply to remove comes
// after the last event of the jail.
package daemon
