package source

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Node is one TOML value with its place. A table has keys, an array has list.
type Node struct {
	Kind unstable.Kind
	At   At
	Key  At     // of the key, for values of tables
	Text string // of scalars: the decoded text
	List []*Node
	Keys map[string]*Node
	Sort []string // keys in order of appearance
}

// At is a place in a file: line and column, both from 1, column in characters.
type At struct {
	Line int `json:"line"`
	Col  int `json:"col"`
}

// Error is a mistake in a policy file. Line and Col count from 1; 0 is "no
// place in the file".
type Error struct {
	File      string
	Line, Col int
	Msg, Hint string // Hint is what to do about it, "" if there is nothing to say
}

// Error is "file:line:col: message".
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Msg
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
}

// Source is the text of a file; it turns offsets into places.
type Source struct {
	File  string
	Data  []byte
	lines []int // offset of each line
}

// New prepares data for [Source.Tree]; file is how errors call it.
func New(file string, data []byte) *Source {
	s := &Source{File: file, Data: data, lines: []int{0}}
	for i, c := range data {
		if c == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

func (s *Source) at(off int) At {
	line := sort.SearchInts(s.lines, off+1) - 1
	return At{Line: line + 1, Col: utf8.RuneCount(s.Data[s.lines[line]:off]) + 1}
}

// Errorf makes an [Error] at a place of this file.
func (s *Source) Errorf(at At, hint, format string, args ...any) *Error {
	return &Error{File: s.File, Line: at.Line, Col: at.Col, Msg: fmt.Sprintf(format, args...), Hint: hint}
}

// Tree parses TOML into nodes. All of TOML's own rules are checked.
func (s *Source) Tree() (*Node, error) {
	var probe map[string]any
	if err := toml.Unmarshal(s.Data, &probe); err != nil { // our own walk below does not know all of TOML's rules
		return nil, s.tomlError(err)
	}
	var p unstable.Parser
	p.Reset(s.Data)
	root := &Node{Kind: unstable.Table, At: At{Line: 1, Col: 1}, Keys: map[string]*Node{}}
	section := root
	for p.NextExpression() {
		e := p.Expression()
		var err error
		switch e.Kind {
		case unstable.KeyValue:
			err = s.keyValue(section, e)
		case unstable.Table, unstable.ArrayTable:
			section, err = s.section(root, e)
		}
		if err != nil {
			return nil, err
		}
	}
	if p.Error() != nil {
		return nil, s.tomlError(p.Error())
	}
	return root, nil
}

// tomlError gives an error of the TOML library our form.
func (s *Source) tomlError(err error) *Error {
	var d *toml.DecodeError
	if !errors.As(err, &d) {
		return s.Errorf(At{Line: 1, Col: 1}, "", "%s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	line, col := d.Position()
	hint := ""
	msg := strings.TrimPrefix(d.Error(), "toml: ")
	if strings.Contains(msg, "already") {
		hint = "each key and each [section] may stand only once; join the two"
	}
	return s.Errorf(At{line, col}, hint, "%s", msg)
}

// section finds or makes the table that a [header] or [[header]] names.
func (s *Source) section(root *Node, e *unstable.Node) (*Node, error) {
	t := root
	for it := e.Key(); it.Next(); {
		k := it.Node()
		at := s.at(int(k.Raw.Offset))
		child := t.Keys[string(k.Data)]
		switch {
		case child == nil && it.IsLast() && e.Kind == unstable.ArrayTable:
			child = t.add(string(k.Data), at, &Node{Kind: unstable.Array, At: at})
		case child == nil:
			child = t.add(string(k.Data), at, &Node{Kind: unstable.Table, At: at, Keys: map[string]*Node{}})
		}
		if it.IsLast() && e.Kind == unstable.ArrayTable {
			child.List = append(child.List, &Node{Kind: unstable.Table, At: at, Keys: map[string]*Node{}})
		}
		if child.Kind == unstable.Array && len(child.List) > 0 {
			child = child.List[len(child.List)-1]
		}
		if child.Keys == nil {
			return nil, s.Errorf(at, "", "%q is not a table", k.Data)
		}
		t = child
	}
	return t, nil
}

// keyValue stores "a.b = v" below t.
func (s *Source) keyValue(t *Node, e *unstable.Node) error {
	for it := e.Key(); it.Next(); {
		k := it.Node()
		at := s.at(int(k.Raw.Offset))
		child := t.Keys[string(k.Data)]
		if !it.IsLast() {
			if child == nil {
				child = t.add(string(k.Data), at, &Node{Kind: unstable.Table, At: at, Keys: map[string]*Node{}})
			}
			if child.Keys == nil {
				return s.Errorf(at, "", "%q is not a table", k.Data)
			}
			t = child
			continue
		}
		if child != nil {
			return s.Errorf(at, "join the two", "key %q stands twice (first in line %d)", k.Data, child.At.Line)
		}
		v, err := s.value(e.Value(), at)
		if err != nil {
			return err
		}
		t.add(string(k.Data), at, v)
	}
	return nil
}

func (s *Source) value(v *unstable.Node, key At) (*Node, error) {
	n := &Node{Kind: v.Kind, At: key, Text: string(v.Data)}
	if v.Raw.Length > 0 {
		n.At = s.at(int(v.Raw.Offset))
	}
	switch v.Kind {
	case unstable.Array:
		for it := v.Children(); it.Next(); {
			if it.Node().Kind == unstable.Comment {
				continue
			}
			c, err := s.value(it.Node(), key)
			if err != nil {
				return nil, err
			}
			n.List = append(n.List, c)
		}
	case unstable.InlineTable:
		n.Kind, n.Keys = unstable.Table, map[string]*Node{}
		for it := v.Children(); it.Next(); {
			if it.Node().Kind != unstable.KeyValue {
				continue
			}
			if err := s.keyValue(n, it.Node()); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

func (n *Node) add(key string, at At, v *Node) *Node {
	v.Key = at
	n.Keys[key] = v
	n.Sort = append(n.Sort, key)
	return v
}

// Integer reads the decimal, hex, octal and binary forms of TOML.
func (n *Node) Integer() (int64, error) {
	return strconv.ParseInt(strings.ReplaceAll(n.Text, "_", ""), 0, 64)
}

// What names the type of a Node for an error message.
func (n *Node) What() string {
	switch n.Kind {
	case unstable.String:
		return "a string"
	case unstable.Integer:
		return "an integer"
	case unstable.Float:
		return "a number with a fraction"
	case unstable.Bool:
		return "true or false"
	case unstable.Array:
		return "a list"
	case unstable.Table:
		return "a table"
	default:
		return "a date or time"
	}
}

// HasBOM reports a byte order mark of UTF-8 or UTF-16.
func HasBOM(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) || bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
}
