//go:build !linux

package changes

import "errors"

type walker struct{ totals Totals }

func newWalker(Limits) *walker { return &walker{} }

func (w *walker) walk(Tree, string) ([]Entry, error) { return nil, errors.ErrUnsupported }

// Keep is for Linux.
func (s *Set) Keep(Order, Limits) (Result, error) { return Result{}, errors.ErrUnsupported }
