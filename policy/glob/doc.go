// Package glob compiles path globs to one component automaton, and walks it.
//
// It promises that the cost of a path component does not depend on the number of
// globs, that the answer is that of [Reference] on every path, and that the compiled
// form, one block of bytes, is what all evaluators read: this package, the broker, and
// BPF programs through bpf/include/match.h.
//
// Syntax: a glob is absolute ("/etc/*.conf") or floating ("**/.env"). Within a
// component "*" matches any bytes, "?" one byte, "[a-z]" and "[!a-z]" one byte of a
// set. "**" is a whole component and matches any number of components, none included,
// so that "/a/**" matches /a itself. "{x,y}" is expanded first and may contain "/".
// "\" takes the next byte literally. Matching is byte-exact: no case folding, no
// Unicode, no special treatment of leading dots. "." and ".." match nothing and are
// refused.
//
// How it works. Globs become a tree whose edges are component patterns; a core state is
// a set of its nodes, and the trees ("/a/**") that were entered. One name is looked at
// in three stages, each of which ends the walk as soon as the answer is known: a trie
// over its beginning yields a symbol for all literals and prefixes at once, a trie
// over its end one for all suffixes, and a small DFA one for the remaining patterns. Small
// sets ("*.py[cod]") are written out and belong to the tries, too.
// The cells of a stage are packed in one array; a row holds only what differs from its
// parent row. A name that overlaps its own pre*suf pattern ("a" for "a*a") is a literal
// of its own, so no length is ever checked. The decision belongs to the last step and
// not to the core state: globs that end in a file make no states.
//
// Decisions. Bits are exact always. With [Compile], rules are exact too, and a policy of
// many trees and many floating globs multiplies until the cap refuses it. [CompileKinds]
// knows which globs are interchangeable: when the exact form does not fit the small
// table it keeps one glob of each kind, and patterns that then lead to the same places
// share their symbols. Bits stay exact; the rule is [SomeRule] where its kind has more than
// one, and [Reference] with the path says which.
//
// Limits, each a typed [Error]: 4,096 bytes, 64 braces and 256 alternatives per glob;
// 8,192 globs; 65,520 rows and finals; 2,048 classes of states; 4,096 states of the DFA;
// 2 MiB; and bounds on the work, so that hostile globs end soon. What multiplies states is
// a "**" between names ("**/x/**/y"): n different ones make 2^n states, and a dozen is
// the most. Within a component several "*" multiply only if they lead to different places: "*a*"
// and "*b*" in one list do not, "*a*/x" and "*b*/y" do. Names over 255 bytes are refused at run time ([Bad]): Linux has none.
//
// NoGain may be false without need if general patterns ("a?b", "*a*b") take part: it
// assumes that every result of the DFA can meet every prefix and suffix.
package glob
