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

	"github.com/agentos/agentos/policy/source"
)

// MaxSize is the largest policy file, in bytes.
const MaxSize = 256 << 10

// Error is a mistake in a policy file. Line and Col count from 1; 0 is "no
// place in the file".
type Error = source.Error

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
	return parseDocument(source.New(name, data))
}

func parseDocument(s *source.Source) (*Document, error) {
	name, data := s.File, s.Data
	switch {
	case len(data) > MaxSize:
		return nil, &Error{File: name, Msg: fmt.Sprintf("larger than %d KiB", MaxSize>>10)}
	case source.HasBOM(data):
		return nil, s.Errorf(At{Line: 1, Col: 1}, "save the file as UTF-8 without a byte order mark", "begins with a byte order mark")
	case !utf8.Valid(data):
		return nil, s.Errorf(At{Line: 1, Col: 1}, "", "is not UTF-8")
	}
	root, err := s.Tree()
	if err != nil {
		return nil, err
	}
	d := &Document{File: name, At: map[string]At{}}
	dec := &decoder{Source: s, at: d.At, tables: map[string]bool{}}
	if err := dec.table(root, "", reflect.ValueOf(d).Elem()); err != nil {
		return nil, err
	}
	if root.Keys["version"] == nil {
		return nil, s.Errorf(At{Line: 1, Col: 1}, "begin the file with: version = 1", `key "version" is missing`)
	}
	if err := d.validate(true); err != nil {
		return nil, err
	}
	return d, nil
}

// decoder fills Go values from nodes, by the json names of their fields.
type decoder struct {
	*source.Source
	at     map[string]At
	tables map[string]bool // lists whose entries may be tables
}

func (d *decoder) table(n *source.Node, path string, v reflect.Value) error {
	if n.Kind != unstable.Table {
		return d.Errorf(n.At, "", "%s wants a table, not %s", path, n.What())
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
	for _, key := range n.Sort {
		child := n.Keys[key]
		f, ok := fields[key]
		if !ok {
			return d.Errorf(child.Key, didYouMean(key, names), "unknown key %q in %s", key, sectionName(path))
		}
		if err := d.value(child, join(path, key), f); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) value(n *source.Node, path string, v reflect.Value) error {
	if _, ok := d.at[path]; !ok && !strings.HasPrefix(path, "tests.") && !strings.HasPrefix(path, allowKey+".") {
		d.at[path] = n.At
	}
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text := n.Text
		if n.Kind != unstable.String && n.Kind != unstable.Integer {
			return d.Errorf(n.At, "", "%s wants a string, not %s", path, n.What())
		}
		if text == "" {
			return d.Errorf(n.At, "remove the line to leave it unset", "%s is empty", path)
		}
		if err := t.UnmarshalText([]byte(text)); err != nil {
			return d.Errorf(n.At, "", "%s: %v", path, err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		if n.Kind != unstable.String {
			return d.Errorf(n.At, "", "%s wants a string, not %s", path, n.What())
		}
		if n.Text == "" {
			return d.Errorf(n.At, "remove the line to leave it unset", "%s is empty", path)
		}
		v.SetString(n.Text)
	case reflect.Int:
		i, err := n.Integer()
		if n.Kind != unstable.Integer || err != nil {
			return d.Errorf(n.At, "", "%s wants an integer, not %s", path, n.What())
		}
		if i < 1 || i > 1<<30 {
			return d.Errorf(n.At, "", "%s = %d is out of range", path, i)
		}
		v.SetInt(i)
	case reflect.Pointer: // *bool
		if n.Kind != unstable.Bool {
			return d.Errorf(n.At, "", "%s wants true or false, not %s", path, n.What())
		}
		b := n.Text == "true"
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

func (d *decoder) list(n *source.Node, path string, v reflect.Value) error {
	if n.Kind != unstable.Array {
		return d.Errorf(n.At, "", "%s wants a list, not %s", path, n.What())
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.List), len(n.List)))
	for i, c := range n.List {
		switch x := v.Index(i).Addr().Interface().(type) {
		case *Item:
			it, err := d.entry(c, path)
			if err != nil {
				return err
			}
			*x = it
		case *Test:
			x.At = c.At
			if err := d.table(c, path+"."+strconv.Itoa(i), reflect.ValueOf(x).Elem()); err != nil {
				return err
			}
		}
	}
	return nil
}

// allowKey is the list whose entries may be tables of a destination, see netTable.
const allowKey = "net.allow"

// takesTables says whether the entries of a list may be tables of a glob: { glob = ..., hide = ... }.
func takesTables(f reflect.StructField) bool { return strings.HasSuffix(f.Tag.Get("item"), "?") }

// entry reads one entry of a list.
func (d *decoder) entry(n *source.Node, path string) (Item, error) {
	switch {
	case n.Kind == unstable.String:
		return Item{Text: n.Text, At: n.At}, nil
	case n.Kind == unstable.Table && d.tables[path]:
		return d.glob(n, path)
	case n.Kind == unstable.Table && path == allowKey:
		return d.destination(n, path)
	}
	return Item{}, d.Errorf(n.At, "", "%s wants a list of strings, not %s", path, n.What())
}

func (d *decoder) glob(n *source.Node, path string) (Item, error) {
	it := Item{At: n.At}
	for _, key := range n.Sort {
		switch v := n.Keys[key]; {
		case key == "glob" && v.Kind == unstable.String:
			it.Text, it.At = v.Text, v.At
		case key == "glob":
			return it, d.Errorf(v.At, "", "glob of %s wants a string, not %s", path, v.What())
		case key == "hide" && v.Kind == unstable.Bool:
			it.Hide = v.Text == "true"
		case key == "hide":
			return it, d.Errorf(v.At, "", "hide of %s wants true or false, not %s", path, v.What())
		default:
			return it, d.Errorf(v.Key, didYouMean(key, []string{"glob", "hide"}), "unknown key %q in an entry of %s", key, path)
		}
	}
	if n.Keys["glob"] == nil {
		return it, d.Errorf(n.At, `write { glob = "**/.env", hide = true }`, "an entry of %s has no glob", path)
	}
	return it, nil
}

func (d *decoder) destination(n *source.Node, path string) (Item, error) {
	var t netTable
	if err := d.table(n, path+".0", reflect.ValueOf(&t).Elem()); err != nil {
		return Item{}, err
	}
	if t.To == "" {
		return Item{}, d.Errorf(n.At, `write { to = "example.com:443", ... }`, "an entry of %s has no destination", path)
	}
	text, err := t.text()
	if err != nil {
		return Item{}, d.Errorf(n.At, "", "%v", err)
	}
	return Item{Text: text, At: n.At}, nil
}

func (d *decoder) mapping(n *source.Node, path string, v reflect.Value) error {
	if n.Kind != unstable.Table {
		return d.Errorf(n.At, "", "%s wants a table, not %s", path, n.What())
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, key := range n.Sort {
		c := n.Keys[key]
		d.at[join(path, key)] = c.At
		if c.Kind != unstable.String {
			return d.Errorf(c.At, "", "%s wants a string, not %s", join(path, key), c.What())
		}
		switch m := v.Interface().(type) {
		case map[string]string:
			m[key] = c.Text
		case Require:
			if !Guarantee(key).known() {
				return d.Errorf(c.Key, didYouMean(key, names(Guarantees())), "unknown guarantee %q", key)
			}
			var l Level
			if err := l.UnmarshalText([]byte(c.Text)); err != nil {
				return d.Errorf(c.At, "", "%s: %v", join(path, key), err)
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
