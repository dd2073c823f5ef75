// Package proxy takes the TCP connections of a jail, decides about each, and moves its
// bytes.
//
// The kernel has accepted a connection before netd sees it, so a refusal cannot be
// ECONNREFUSED: it is a reset at once (SO_LINGER of 0), which the client's first read or
// write reports as ECONNRESET. What no rule could ever allow is refused by the cgroup hook
// before it gets here, with EACCES.
//
//	accepted -> what was connected to -> rules -> resolve, check, dial  -> first bytes -> relay
//	                                           \-> the client's first bytes /
//
// Dialling and the client's first bytes go on side by side: the name and port are allowed,
// whatever the bytes say. Whoever speaks first decides what is looked at:
//
//   - The client with TLS: the ClientHello has to ask for the name that was connected to.
//   - The client with HTTP/1: each request of the connection has to name it, and pass the rule's methods and
//     paths. Requests are followed to their last byte, so keep-alive and pipelining work; what comes after a request
//     that ends the connection (Connection: close, HTTP/1.0) is cut. A WebSocket upgrade has to be the connection's first request; what
//     follows the server's 101 is no longer looked at.
//   - The client with something else, or the server (SSH, SMTP, MySQL): passed on, but not on ports 80 and 443, where
//     only TLS and HTTP/1 are spoken, nor where a rule names methods or paths. What would hide a name (an HTTP/2 preface without TLS, a
//     PROXY header, CONNECT, SSL 2) never is. No time passes for this: nobody waits to see whether a client is silent.
//
// Nothing is looked at where the rule says opaque, for the machine outside, and for destinations that were
// connected to by address, unless a rule names methods or paths.
package proxy
