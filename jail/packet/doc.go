// Package packet carries one JSON object per datagram, with descriptors beside
// it, over a SOCK_SEQPACKET unix socket. Both gates of AgentOS use it: client to
// helper (jail/rpc) and helper to a jail's init (jail).
//
// It promises that a message arrives whole or not at all, that no message is
// larger than [MaxSize] or carries more than [MaxFDs] descriptors, that every
// received descriptor is close-on-exec, and that descriptors of a refused
// message are closed. It knows no verbs and trusts no length it is told.
//
// Decoding is strict: unknown fields, trailing data, duplicate objects in one
// datagram and truncated messages are errors.
//
// Why not a stream: a SEQPACKET datagram needs no framing code that could be
// led astray, and descriptors stay attached to the message they belong to.
package packet
