// Package changes reads what a session made in its home, and what sessions of a
// workspace share, and copies files of it to the host.
//
// The helper hands out O_PATH descriptors of directories in read-only mounts that
// are attached nowhere, with the user's ids (jail/layer says why); everything here
// runs with the user's rights. What is read is an agent's work and hostile. So:
//
//   - Every name is resolved from the held descriptor with openat2(2),
//     RESOLVE_BENEATH | NO_SYMLINKS | NO_MAGICLINKS | NO_XDEV: no link that an
//     agent planted leads anywhere, also when it appears between two steps.
//   - Only regular files are opened, and only after a look at the very inode
//     through O_PATH: a FIFO cannot hold the caller, a device is not touched.
//   - A walk ends after [Limits] names; deeper than a path may be long (PATH_MAX)
//     is counted and not walked. What is left out is said ([Totals]).
//   - Sizes are what a file says and what it takes on disk, hard links counted
//     once; holes stay holes when a file is copied.
//
// What is copied ([Keep]) belongs to the caller, has no set-id bits, replaces
// nothing and takes no name that the session's policy denies or protects, nor one
// that programs of the host obey without being asked ([Startup]), unless forced. Everything is checked before the first
// byte is written. Links are copied when they stay inside of what is kept; FIFOs,
// sockets and devices are not.
//
// A running session may change what is read meanwhile: a listing is then of no
// single moment, a copied file may be of two. Kept at the end (agentos run
// --keep), nothing changes any more but by processes that the agent left behind.
package changes
