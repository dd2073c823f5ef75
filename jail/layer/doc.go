// Package layer keeps on disk what jails write besides the workspace: the home
// layer of each session, which goes with it, and the directories that the
// sessions of one user and workspace share ([files] persist of a policy).
//
//	STATE/layers/SESSION/home               the jail's home
//	STATE/layers/SESSION/overlay-N/upper    what was written over a tree of the host
//	STATE/layers/SESSION/overlay-N/work     overlayfs' own
//	STATE/persist/ID/about.json             whose it is, of which workspace, at which path
//	STATE/persist/ID/tree                   its content
//
// Everything below home, upper and tree is an agent's work: hard links, sockets,
// a million files, names with newlines, trees deeper than a path may be long.
// So the package promises:
//
//   - It resolves no name that an agent chose but single components, relative to
//     a held descriptor, never through a link. It opens no file of an agent and
//     copies nothing: the only thing root does with such a tree is to remove it.
//   - Removing needs two descriptors and no recursion, whatever the depth.
//   - A kept directory belongs to one uid, one workspace and one path below the
//     home. The workspace is known by its path and by its file handle
//     (name_to_handle_at(2)): a directory that was removed and made anew at the
//     same path is another workspace. Policies have no part in the key.
//   - A kept directory that a session uses is not removed.
//
// Who looks at a tree is its owner, with their own rights: package jail/helper
// hands out descriptors of read-only, idmapped mounts that are attached nowhere
// (jail.Handout), and orchestrator/changes walks them. The other way, a walk in
// the helper that answers with names, would have root read what an agent wrote,
// hold the answer in memory and be kept busy by any user.
//
// Not promised: a bound on the bytes of a kept directory. Its files belong to
// the user, so quotas of the file system hold, and agentos changes --persisted
// says its size.
package layer
