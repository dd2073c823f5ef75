// Package query is the filter language over audit records: text in, a decision
// for each record out.
//
//	kind=exec exe~node verdict=deny path=**/.env since=2h session=fix-login
//	denied and (class=net or path=~/.ssh/**) and not comm=git
//
// Words side by side must all hold; "and", "or", "not" and parentheses combine
// them. A word is FIELD OP VALUE[,VALUE...] or a field alone (it is set):
//
//   - "=" is the whole value. Paths take the globs of policies (".env" means
//     "**/.env"), other text takes "*" and "?", addresses a CIDR, times and
//     numbers themselves. Of several values, any.
//   - "~" is a regular expression (RE2) found anywhere in the value, so that a
//     plain word is "contains".
//   - "<", "<=", ">", ">=" compare numbers and times.
//   - "!=" and "!~" are exactly the opposite, also where a record has no such
//     field.
//
// A value is bare, or quoted: 'as it is' or "with \n escapes of Go". [Fields]
// tells every field; it is the source of the help texts, too.
//
// [Parse] is pure: what the present time and the home are is told to it. What is
// wrong with a text is a [*SyntaxError], with the place. A [Query] never changes;
// [Query.Matcher] makes what reads the records of one session in order, because
// "denied" leaves out what the jail check tried before its receipt.
//
// Limits: a text has at most 64 KiB, 1000 words and 64 levels of parentheses, so
// that one from a stranger costs what its length costs. Regular expressions are
// RE2: linear in the record.
package query
