// Package orchestrator runs agents for a user: it turns "run claude here under
// strict" into what the helper needs, and carries the terminal while the agent
// runs. It has the user's rights and no more.
//
//	Options --Prepare--> Plan       what would run: command, environment, policy
//	Plan    --Launch---> Proc       in a jail, through a Gate (Connect)
//	Proc    --Attach---> Exit       our streams in between, until it ends
//
// It is a library, so that `agentos run` can host it in its own process now and
// a daemon later: nothing here reads os.Args, os.Environ or prints, except
// Attach, which is given the streams.
//
// It promises that
//
//   - every path that is handed to the helper was opened with the user's rights,
//     by descriptor, and is named as the kernel names it; a workspace that is
//     swapped for something else while it is opened does not get in;
//   - the jail never gets one of our own descriptors, only pipe ends made for it;
//   - of the caller's environment enters what the policy passes, what the user
//     set for this run, and HOME, PATH, USER, LOGNAME, SHELL, TERM;
//   - the terminal is given back as it was found (see package terminal).
//
// State that an agent keeps in single files: some agents write such a file by
// renaming a new one over it. In the jail the file is a mount, which no rename
// can replace (EBUSY); the agents known to the plugins then write in place. A
// missing one is created before the start, or else the agent would make it in
// the home layer of the jail, where the next session would still find it but the
// user would not.
//
// What this package decides protects the user from mistakes; the helper believes
// none of it and checks again.
package orchestrator
