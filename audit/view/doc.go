// Package view shows records to people: as a table ([Table]), as JSON lines
// ([AppendLine]) and summed up ([Summary]). Which ones is package query's word.
//
// It is pure: it opens nothing, prints nothing and knows no terminal; whether
// there are colours and how wide a line may be is told by the caller (who
// honours NO_COLOR). Everything that an agent may have chosen goes through
// [event.Printable] or the JSON form, so that no control byte of a name gets
// out; the only control bytes are newlines and, with colours, our own SGR
// sequences.
//
// Memory is bounded: a summary of a hostile session counts what it has no
// room for.
package view
