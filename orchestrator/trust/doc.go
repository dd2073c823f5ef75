// Package trust finds what a session leaves for others to run: files that it
// made or changed and that a tool of the user executes or obeys later, outside
// of any jail. [Table] names the kinds and who runs them.
//
// Where it looks: the paths of the session's record that were written, made,
// linked, renamed or made executable, and what lies below directories that were
// renamed or linked. Nothing else is walked. What lies there now is compared with
// the commit that HEAD stood for when the session began, which the caller noted
// then ([Begin]); a commit that the agent made is no excuse. Content that is the
// same is no change. Without a repository, or for files that it does not have,
// the earlier content is unknown and the file counts as changed.
//
// What it does not do: run anything. Repositories are read by orchestrator/repo,
// never by git, whose configuration may be the agent's. Files are opened beneath
// the directories that the session could write, through no symbolic link, without
// waiting for a FIFO, and read up to a limit.
//
// What it does not see: events that the record lost (the report says how many),
// and programs without a name that the table knows, such as a source file. It is
// no verdict on a file: read the difference.
//
// [Accepted] remembers what a user took, by content, so that it is not shown again.
// [Quarantine] moves files to a directory of the user's, puts git's version back
// where there is one, and undoes all that by [Restore].
package trust
