package policy

import (
	"encoding"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2/unstable"
)

// MaxSize is the largest policy file, in bytes.
const MaxSize = 256 << 10

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

// Load reads and parses the policy file at path. The error is an [*Error] or
// one of package os.
func Load(path string) (*Document, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO that nobody writes to is empty, not waited for
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return Parse(path, data)
}

// Parse reads one document. name is how errors and rules call the file. The
// error is an [*Error]. A parsed document is valid: see [Document.Validate].
func Parse(name string, data []byte) (*Document, error) {
	return parseDocument(newSource(name, data))
}

func parseDocument(s *source) (*Document, error) {
	name, data := s.file, s.data
	switch {
	case len(data) > MaxSize:
		return nil, &Error{File: name, Msg: fmt.Sprintf("larger than %d KiB", MaxSize>>10)}
	case hasBOM(data):
		return nil, s.errorf(At{1, 1}, "save the file as UTF-8 without a byte order mark", "begins with a byte order mark")
	case !utf8.Valid(data):
		return nil, s.errorf(At{1, 1}, "", "is not UTF-8")
	}
	root, err := s.tree()
	if err != nil {
		return nil, err
	}
	d := &Document{File: name, At: map[string]At{}}
	dec := &decoder{source: s, at: d.At, tables: map[string]bool{}}
	if err := dec.table(root, "", reflect.ValueOf(d).Elem()); err != nil {
		return nil, err
	}
	if root.keys["version"] == nil {
		return nil, s.errorf(At{1, 1}, "begin the file with: version = 1", `key "version" is missing`)
	}
	if err := d.validate(true); err != nil {
		return nil, err
	}
	return d, nil
}

// decoder fills Go values from nodes, by the json names of their fields.
type decoder struct {
	*source
	at     map[string]At
	tables map[string]bool // lists whose entries may be tables
}

func (d *decoder) table(n *node, path string, v reflect.Value) error {
	if n.kind != unstable.Table {
		return d.errorf(n.at, "", "%s wants a table, not %s", path, n.what())
	}
	fields := map[string]reflect.Value{}
	var names []string
	for i := range v.NumField() {
		if name := keyOf(v.Type().Field(i)); name != "" {
			d.tables[join(path, name)] = takesTables(v.Type().Field(i))
			fields[name] = v.Field(i)
			names = append(names, name)
		}
	}
	for _, key := range n.sort {
		child := n.keys[key]
		f, ok := fields[key]
		if !ok {
			return d.errorf(child.key, didYouMean(key, names), "unknown key %q in %s", key, sectionName(path))
		}
		if err := d.value(child, join(path, key), f); err != nil {
			return err
		}
	}
	return nil
}

// takesTables says whether the entries of a list may be tables: { glob = ..., hide = ... }.
func takesTables(f reflect.StructField) bool { return strings.HasSuffix(f.Tag.Get("item"), "?") }

// entry reads an entry of a list that may be a table.
func (d *decoder) entry(n *node, path string) (Item, error) {
	it := Item{At: n.at}
	for _, key := range n.sort {
		switch v := n.keys[key]; {
		case key == "glob" && v.kind == unstable.String:
			it.Text, it.At = v.text, v.at
		case key == "glob":
			return it, d.errorf(v.at, "", "glob of %s wants a string, not %s", path, v.what())
		case key == "hide" && v.kind == unstable.Bool:
			it.Hide = v.text == "true"
		case key == "hide":
			return it, d.errorf(v.at, "", "hide of %s wants true or false, not %s", path, v.what())
		default:
			return it, d.errorf(v.key, didYouMean(key, []string{"glob", "hide"}), "unknown key %q in an entry of %s", key, path)
		}
	}
	if n.keys["glob"] == nil {
		return it, d.errorf(n.at, `write { glob = "**/.env", hide = true }`, "an entry of %s has no glob", path)
	}
	return it, nil
}

func (d *decoder) value(n *node, path string, v reflect.Value) error {
	if _, ok := d.at[path]; !ok && !strings.HasPrefix(path, "tests.") && !strings.HasPrefix(path, allowKey+".") {
		d.at[path] = n.at
	}
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text := n.text
		if n.kind != unstable.String && n.kind != unstable.Integer {
			return d.errorf(n.at, "", "%s wants a string, not %s", path, n.what())
		}
		if text == "" {
			return d.errorf(n.at, "remove the line to leave it unset", "%s is empty", path)
		}
		if err := t.UnmarshalText([]byte(text)); err != nil {
			return d.errorf(n.at, "", "%s: %v", path, err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		if n.kind != unstable.String {
			return d.errorf(n.at, "", "%s wants a string, not %s", path, n.what())
		}
		if n.text == "" {
			return d.errorf(n.at, "remove the line to leave it unset", "%s is empty", path)
		}
		v.SetString(n.text)
	case reflect.Int:
		i, err := n.integer()
		if n.kind != unstable.Integer || err != nil {
			return d.errorf(n.at, "", "%s wants an integer, not %s", path, n.what())
		}
		if i < 1 || i > 1<<30 {
			return d.errorf(n.at, "", "%s = %d is out of range", path, i)
		}
		v.SetInt(i)
	case reflect.Pointer: // *bool
		if n.kind != unstable.Bool {
			return d.errorf(n.at, "", "%s wants true or false, not %s", path, n.what())
		}
		b := n.text == "true"
		v.Set(reflect.ValueOf(&b))
	case reflect.Slice:
		return d.list(n, path, v)
	case reflect.Map:
		return d.mapping(n, path, v)
	case reflect.Struct:
		return d.table(n, path, v)
	}
	return nil
}

func (d *decoder) list(n *node, path string, v reflect.Value) error {
	if n.kind != unstable.Array {
		return d.errorf(n.at, "", "%s wants a list, not %s", path, n.what())
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.list), len(n.list)))
	for i, c := range n.list {
		switch x := v.Index(i).Addr().Interface().(type) {
		case *Item:
			if c.kind == unstable.Table && path == allowKey {
				text, err := d.destination(c, path)
				if err != nil {
					return err
				}
				*x = Item{Text: text, At: c.at}
				continue
			}
			if c.kind == unstable.Table && d.tables[path] {
				it, err := d.entry(c, path)
				if err != nil {
					return err
				}
				*x = it
				continue
			}
			if c.kind != unstable.String {
				return d.errorf(c.at, "", "%s wants a list of strings, not %s", path, c.what())
			}
			*x = Item{Text: c.text, At: c.at}
		case *Test:
			x.At = c.at
			if err := d.table(c, path+"."+strconv.Itoa(i), reflect.ValueOf(x).Elem()); err != nil {
				return err
			}
		}
	}
	return nil
}

// allowKey is the one list whose entries may be tables.
const allowKey = "net.allow"

// destination is the text of an entry that is a table.
func (d *decoder) destination(n *node, path string) (string, error) {
	var t netTable
	if err := d.table(n, path+".0", reflect.ValueOf(&t).Elem()); err != nil {
		return "", err
	}
	if t.To == "" {
		return "", d.errorf(n.at, `write {to = "example.com:443", ...}`, "an entry of %s has no destination", path)
	}
	text, err := t.text()
	if err != nil {
		return "", d.errorf(n.at, "", "%v", err)
	}
	return text, nil
}

func (d *decoder) mapping(n *node, path string, v reflect.Value) error {
	if n.kind != unstable.Table {
		return d.errorf(n.at, "", "%s wants a table, not %s", path, n.what())
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, key := range n.sort {
		c := n.keys[key]
		d.at[join(path, key)] = c.at
		if c.kind != unstable.String {
			return d.errorf(c.at, "", "%s wants a string, not %s", join(path, key), c.what())
		}
		switch m := v.Interface().(type) {
		case map[string]string:
			m[key] = c.text
		case Require:
			if !Guarantee(key).known() {
				return d.errorf(c.key, didYouMean(key, names(Guarantees())), "unknown guarantee %q", key)
			}
			var l Level
			if err := l.UnmarshalText([]byte(c.text)); err != nil {
				return d.errorf(c.at, "", "%s: %v", join(path, key), err)
			}
			m[Guarantee(key)] = l
		}
	}
	return nil
}

// keyOf is the TOML key of a field, "" for fields that are not in files.
func keyOf(f reflect.StructField) string {
	if f.Tag.Get("toml") == "-" {
		return ""
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func sectionName(path string) string {
	switch {
	case path == "":
		return "the document"
	case strings.HasPrefix(path, "tests."):
		return "[[tests]]"
	case strings.HasPrefix(path, allowKey+"."):
		return "an entry of [net] allow"
	default:
		return "[" + path + "]"
	}
}

func names[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// didYouMean is a hint that names the nearest known word, or all of them.
func didYouMean(word string, known []string) string {
	best, dist := "", 1+len(word)/2
	for _, k := range known {
		if n := distance(strings.ReplaceAll(word, "_", "-"), strings.ReplaceAll(k, "_", "-")); n < dist {
			best, dist = k, n
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known here: " + strings.Join(known, ", ")
}

// distance is the number of single-byte edits from a to b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cur := prev
			if a[i] != b[j] {
				cur = 1 + min(prev, row[j], row[j+1])
			}
			prev, row[j+1] = row[j+1], cur
		}
	}
	return row[len(b)]
}
