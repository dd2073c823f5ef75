package policy

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

// node is one TOML value with its place. A table has keys, an array has list.
type node struct {
	kind unstable.Kind
	at   At
	key  At     // of the key, for values of tables
	text string // of scalars: the decoded text
	list []*node
	keys map[string]*node
	sort []string // keys in order of appearance
}

// source turns offsets into places.
type source struct {
	file  string
	data  []byte
	lines []int // offset of each line
}

func newSource(file string, data []byte) *source {
	s := &source{file: file, data: data, lines: []int{0}}
	for i, c := range data {
		if c == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

func (s *source) at(off int) At {
	line := sort.SearchInts(s.lines, off+1) - 1
	return At{Line: line + 1, Col: utf8.RuneCount(s.data[s.lines[line]:off]) + 1}
}

func (s *source) errorf(at At, hint, format string, args ...any) *Error {
	return &Error{File: s.file, Line: at.Line, Col: at.Col, Msg: fmt.Sprintf(format, args...), Hint: hint}
}

// tree parses TOML into nodes. All of TOML's own rules are checked.
func (s *source) tree() (*node, error) {
	var probe map[string]any
	if err := toml.Unmarshal(s.data, &probe); err != nil { // our own walk below does not know all of TOML's rules
		return nil, s.tomlError(err)
	}
	var p unstable.Parser
	p.Reset(s.data)
	root := &node{kind: unstable.Table, at: At{1, 1}, keys: map[string]*node{}}
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
func (s *source) tomlError(err error) *Error {
	var d *toml.DecodeError
	if !errors.As(err, &d) {
		return s.errorf(At{1, 1}, "", "%s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	line, col := d.Position()
	hint := ""
	msg := strings.TrimPrefix(d.Error(), "toml: ")
	if strings.Contains(msg, "already") {
		hint = "each key and each [section] may stand only once; join the two"
	}
	return s.errorf(At{line, col}, hint, "%s", msg)
}

// section finds or makes the table that a [header] or [[header]] names.
func (s *source) section(root *node, e *unstable.Node) (*node, error) {
	t := root
	for it := e.Key(); it.Next(); {
		k := it.Node()
		at := s.at(int(k.Raw.Offset))
		child := t.keys[string(k.Data)]
		switch {
		case child == nil && it.IsLast() && e.Kind == unstable.ArrayTable:
			child = t.add(string(k.Data), at, &node{kind: unstable.Array, at: at})
		case child == nil:
			child = t.add(string(k.Data), at, &node{kind: unstable.Table, at: at, keys: map[string]*node{}})
		}
		if it.IsLast() && e.Kind == unstable.ArrayTable {
			child.list = append(child.list, &node{kind: unstable.Table, at: at, keys: map[string]*node{}})
		}
		if child.kind == unstable.Array && len(child.list) > 0 {
			child = child.list[len(child.list)-1]
		}
		if child.keys == nil {
			return nil, s.errorf(at, "", "%q is not a table", k.Data)
		}
		t = child
	}
	return t, nil
}

// keyValue stores "a.b = v" below t.
func (s *source) keyValue(t *node, e *unstable.Node) error {
	for it := e.Key(); it.Next(); {
		k := it.Node()
		at := s.at(int(k.Raw.Offset))
		child := t.keys[string(k.Data)]
		if !it.IsLast() {
			if child == nil {
				child = t.add(string(k.Data), at, &node{kind: unstable.Table, at: at, keys: map[string]*node{}})
			}
			if child.keys == nil {
				return s.errorf(at, "", "%q is not a table", k.Data)
			}
			t = child
			continue
		}
		if child != nil {
			return s.errorf(at, "join the two", "key %q stands twice (first in line %d)", k.Data, child.at.Line)
		}
		v, err := s.value(e.Value(), at)
		if err != nil {
			return err
		}
		t.add(string(k.Data), at, v)
	}
	return nil
}

func (s *source) value(v *unstable.Node, key At) (*node, error) {
	n := &node{kind: v.Kind, at: key, text: string(v.Data)}
	if v.Raw.Length > 0 {
		n.at = s.at(int(v.Raw.Offset))
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
			n.list = append(n.list, c)
		}
	case unstable.InlineTable:
		n.kind, n.keys = unstable.Table, map[string]*node{}
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

func (n *node) add(key string, at At, v *node) *node {
	v.key = at
	n.keys[key] = v
	n.sort = append(n.sort, key)
	return v
}

// integer reads the decimal, hex, octal and binary forms of TOML.
func (n *node) integer() (int64, error) {
	return strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64)
}

// what names the type of a node for an error message.
func (n *node) what() string {
	switch n.kind {
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

// hasBOM reports a byte order mark of UTF-8 or UTF-16.
func hasBOM(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) || bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
}
