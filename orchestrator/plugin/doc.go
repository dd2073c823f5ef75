// Package plugin knows how to run one agent: its command, the state it keeps,
// the hosts and variables it needs, and where its program is installed.
//
// A [Plugin] is a TOML file, strict like a policy. Eight are embedded; files
// of the user's directories add to them and replace them by name.
//
// [Locate] answers what must be visible for the program to start, and nothing
// more. From the file that PATH finds it follows every symbolic link, and the
// interpreter that a script's first line names (which again may be found
// through PATH and again be a script), and gives each of them its smallest
// tree that works:
//
//	below /usr, /opt, /nix/store, ...            nothing: every policy shows it
//	PREFIX/lib/node_modules/PKG/...              that package, with its nested node_modules
//	.../node_modules/... (project, pnpm, bun)    the outermost node_modules
//	a Python virtual environment                 the environment
//	~/.local/share/NAME/...                      ~/.local/share/NAME
//	DIR/bin/NAME (nvm, fnm, uv, unpacked)        DIR, unless DIR is the home or one of its shared directories
//	anything else                                the one file
//
// What it does not do: it starts nothing, and it does not follow a program
// that runs another one from elsewhere. Shims of version managers (volta,
// asdf, mise, pyenv, ...) decide only when they run; they are an error that
// says how to name the real program. A tree is never the home, a directory
// above it, or a directory known to hold credentials.
//
// The result is a set of paths for the caller to open with its own rights. The
// helper checks the opened objects again; nothing here is trusted by root.
package plugin
