// Package rpc is the gate between users and the root helper: the closed list of
// verbs, their messages and limits, and the client and server ends that speak
// them over jail/packet.
//
//	client (any local user)                    helper (root)
//	hello {protocol}                     ->
//	create {} + [document memfd]         ->    resolves the policy again
//	give {paths} + [O_PATH ...]          ->    repeated; each descriptor was
//	                                           opened with the user's rights
//	start {terminal} | {} + [in out err] ->
//	wait {session, proc}                 ->    as soon as the session's id is known
//	                                     <-    {protocol, build, tier}
//	                                     <-    {session}
//	                                     <-    {} for each give
//	                                           builds the jail, runs the check
//	                                     <-    {report, receipt} + [pty master]
//	                                     <-    {exited | stopped | notice}
//	policy {session} + [document memfd]  ->    resolves it, swaps the file rules
//	                                     <-    {generation, policy}
//	spawn, signal, resize, kill, list, log, probe at any time
//	changes {session}                    ->
//	                                     <-    {trees} + [deny and protect rules,
//	                                           O_PATH of each tree, read-only]
//	network, rules {session}             ->
//	                                     <-    {} + [memfd: Network or NetRules]
//	grant {session, entry | revoke}      ->    netd and the kernel have it when
//	                                     <-    {grants}
//	kept {after}, drop {id}              ->    what sessions of a workspace share
//	break-glass {reason, for}            ->    without the organisation's files that permit it
//
// Requests carry an id and may be in flight together up to [MaxInFlight];
// replies carry the id of their request and come in any order. Nothing has to be
// waited for: hello, create and give are done in the order they came, and start
// is about what came before it (see [Verb.Ordered]). They are about the one draft
// of their conversation, so they need no name of it. If one of them fails, the
// draft is gone, and what comes after it fails too: a jail is never started
// without a path that was to be in it. A session lives as long as the connection
// that made it.
//
// The package promises that the server never acts on a message that is larger,
// carries other descriptors or other fields than its verb allows. It gives no
// authority: who may do what is decided by jail/helper from SO_PEERCRED.
//
// Why JSON: the messages are few and small, strict decoding is in the standard
// library, and a human can read a trace of them.
package rpc
