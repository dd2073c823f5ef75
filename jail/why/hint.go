package why

// Hint is what an agent is told about the jail that it runs in.
const Hint = `You run inside an AgentOS jail: files, programs and network are limited by a policy.
When something fails with "Permission denied" or "Operation not permitted" it may be the policy.
Run ` + "`agentos why`" + ` to see what was denied last, by which rule, and how a person can allow it;
` + "`agentos why PATH`" + ` for one path; ` + "`agentos why read|write|exec PATH`" + ` asks before you try.
Do not look for a way around a denial: tell the user which rule it was, and go on without it.
`
