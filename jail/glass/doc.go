// Package glass remembers who broke the glass: which user may do without which files of
// the organisation, why, and until when.
//
// It promises that a grant ends at its time whatever is done to the machine's clock, and
// with the boot it was made in; that it survives a helper that is restarted; and that a
// file of grants that cannot be read grants nothing. Who may have a grant is said by the
// organisation's files (jail/organisation), at each use again; each grant is recorded
// before it holds.
package glass
