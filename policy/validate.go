package policy

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of one document, so that no layer can make a helper work for long.
const (
	maxItems = 2048 // entries of one list
	maxText  = 4096 // bytes of one entry
)

// Validate checks a document whoever made it. [Parse] calls it, and [Resolve]
// again for every layer, because layers also arrive as JSON, but leaves the
// syntax of globs to [Resolved.Automaton] then. The error is an [*Error].
func (d *Document) Validate() error { return d.validate(true) }

func (d *Document) validate(globs bool) error {
	if err := d.head(); err != nil {
		return err
	}
	for _, section := range []any{&d.Files, &d.Net, &d.Syscalls, &d.Env, &d.Org, &d.Org.BreakGlass} {
		if err := d.lists(reflect.ValueOf(section).Elem(), globs); err != nil {
			return err
		}
	}
	if err := d.enums("", reflect.ValueOf(d).Elem()); err != nil {
		return err
	}
	if err := d.singles(); err != nil {
		return err
	}
	if err := d.org(); err != nil {
		return err
	}
	if len(d.Tests) > maxItems {
		return &Error{File: d.File, Msg: fmt.Sprintf("over %d tests", maxItems)}
	}
	for i := range d.Tests {
		if err := d.test(&d.Tests[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *Document) head() error {
	if !printable(d.File) || len(d.File) > maxText {
		return &Error{File: "policy", Msg: "the name of the file has control characters or is too long"}
	}
	if d.Version != 1 {
		return d.fault("version", "", "version %d is not known here; only 1 is", d.Version)
	}
	if d.Name == "" {
		return d.fault("name", `add a line such as: name = "mine"`, `key "name" is missing`)
	}
	if len(d.Name) > 64 || strings.Trim(d.Name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" || d.Name[0] == '-' || d.Name[0] == '.' {
		return d.fault("name", "", "name %q must be of a-z, 0-9, '.', '_' and '-', at most 64 bytes", d.Name)
	}
	if !printable(d.Description) || len(d.Description) > maxText {
		return d.fault("description", "", "description has control characters or is too long")
	}
	if len(d.Extends) > 8 {
		return d.fault("extends", "", "extends more than 8 policies")
	}
	for _, e := range d.Extends {
		name, ok := strings.CutPrefix(e.Text, "builtin:")
		if !ok {
			return d.itemError(e, "write builtin:NAME; files cannot be extended, so that one layer is one file", "cannot extend %q", e.Text)
		}
		if !slices.Contains(BuiltinNames(), name) {
			return d.itemError(e, didYouMean(name, BuiltinNames()), "there is no builtin policy %q", name)
		}
	}
	return nil
}

// lists checks every []Item of a section by its item tag.
func (d *Document) lists(v reflect.Value, globs bool) error {
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		list, ok := v.Field(i).Interface().([]Item)
		if !ok {
			continue
		}
		f := v.Type().Field(i)
		if len(list) > maxItems {
			return d.itemError(list[maxItems], "", "%s has over %d entries", keyOf(f), maxItems)
		}
		kind, excepts := strings.CutSuffix(strings.TrimSuffix(f.Tag.Get("item"), "?"), "!")
		for _, it := range list {
			text := it.Text
			if it.Hide && !takesTables(f) {
				return d.itemError(it, "what deny names can be hidden", "%s hides nothing", keyOf(f))
			}
			if rest, is := strings.CutPrefix(text, "!"); is {
				switch {
				case !excepts:
					return d.itemError(it, "exceptions go into deny and protect", "%s has no exceptions", keyOf(f))
				case it.Hide:
					return d.itemError(it, "leave hide away: what is not denied is seen", "%q is an exception and cannot hide", text)
				}
				text = rest
			}
			if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				return d.itemError(it, "", "entry is too long, not UTF-8 or has a zero byte")
			}
			if hint, err := checkItem(kind, text, globs); err != nil {
				return d.itemError(it, hint, "%q: %v", text, err)
			}
		}
	}
	return nil
}

// checkItem checks one entry of a list of the named kind.
func checkItem(kind, text string, globs bool) (hint string, err error) {
	switch kind {
	case "glob":
		return checkGlob(text, globs)
	case "path", "socket":
		name, rest, err := splitVariable(text)
		if err != nil {
			return "variables: " + strings.Join(pathVariables[:], ", "), err
		}
		if name != "" {
			rest = "/x" + rest
		}
		if !strings.HasPrefix(rest, "/") || path.Clean(rest) != rest {
			return "write an absolute path without a final /, or begin with ~/ or ${workspace}/", errors.New("is not an absolute path")
		}
		return "", nil
	case "home":
		return checkHome(text)
	case "dest", "deny":
		if text == "${agent.hosts}" {
			return "", nil
		}
		_, err := ParseNetRule(text)
		if err == nil && kind == "deny" && strings.Contains(text, " ") {
			return "write the destination alone: a denial is of all", errors.New("options go into allow")
		}
		if err != nil && !strings.Contains(text, ":") {
			return "add the port, such as " + text + ":443", err
		}
		return "", err
	case "syscall":
		if strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || text == "" {
			return "", errors.New("is not the name of a system call")
		}
		return "", nil
	case "env":
		if text == "${agent.env}" || validEnv(text) {
			return "", nil
		}
		return "names are letters, digits and _; * stands for any run of characters", errors.New("is not the name of a variable")
	case "backend", "group", "sink":
		return checkOrgItem(kind, text)
	default:
		return "", fmt.Errorf("unknown kind of entry %q", kind)
	}
}

// checkHome: a directory below the home, by its own name. A glob would name what
// is not known before the agent makes it.
func checkHome(text string) (hint string, err error) {
	const how = "write a directory below the home, such as ~/.npm"
	rest, ok := strings.CutPrefix(text, "~/")
	switch {
	case !ok:
		return how, errors.New("does not begin with ~/")
	case strings.ContainsAny(rest, `*?[]{}\`):
		return how, errors.New("is a glob; name the directory itself")
	case rest == "" || rest == "." || path.Clean("/"+rest) != "/"+rest:
		return how, errors.New("is not a clean path below ~/")
	}
	return "", nil
}

func checkGlob(text string, syntax bool) (hint string, err error) {
	name, rest, err := splitVariable(text)
	if err != nil {
		return "variables: " + strings.Join(pathVariables[:], ", "), err
	}
	if name != "" {
		rest = "/x" + rest
	}
	if !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "**/") {
		return fmt.Sprintf("write ${workspace}/%s or **/%s", text, text), errors.New("is relative")
	}
	if !syntax {
		return "", nil
	}
	return "", validGlob(rest)
}

func validEnv(s string) bool {
	return s != "" && len(s) <= 256 && (s[0] < '0' || s[0] > '9') &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_*") == ""
}

// enums checks every field with an enum tag.
func (d *Document) enums(at string, v reflect.Value) error {
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		f := v.Type().Field(i)
		if keyOf(f) == "" || keyOf(f) == "version" {
			continue
		}
		if v.Field(i).Kind() == reflect.Struct && v.Field(i).Type() != reflect.TypeFor[CPU]() {
			if err := d.enums(join(at, keyOf(f)), v.Field(i)); err != nil {
				return err
			}
		}
		enum := f.Tag.Get("enum")
		if enum == "" || v.Field(i).String() == "" {
			continue
		}
		known := strings.Split(enum, ",")
		if word := v.Field(i).String(); !slices.Contains(known, word) {
			key := join(at, keyOf(f))
			return d.fault(key, didYouMean(word, known), "%s = %q is not known", key, word)
		}
	}
	return nil
}

// What the first process of a jail takes itself, with some room: less, and nothing starts. Measured on two processors by starting
// jails under ever smaller limits (4 MB, 15 threads, 24 files).
const (
	leastMemory    Bytes = 8e6
	leastPids      int   = 20
	leastOpenFiles int   = 32
)

// enough checks that a jail can start within its limits.
func (d *Document) enough() error {
	r := d.Resources
	switch {
	case r.Memory > 0 && r.Memory < leastMemory:
		return d.fault("resources.memory", "", "resources.memory = %q is less than a jail takes to start; %v is the least", r.Memory, leastMemory)
	case r.Pids > 0 && r.Pids < leastPids:
		return d.fault("resources.pids", "", "resources.pids = %d is less than a jail takes to start; %d is the least", r.Pids, leastPids)
	case r.OpenFiles > 0 && r.OpenFiles < leastOpenFiles:
		return d.fault("resources.open_files", "", "resources.open_files = %d is less than a jail takes to start; %d is the least", r.OpenFiles, leastOpenFiles)
	}
	return nil
}

// singles checks single values that have more than a type.
func (d *Document) singles() error {
	if err := d.enough(); err != nil {
		return err
	}
	r := d.Resources
	for _, n := range []int{r.Pids, r.OpenFiles} {
		if n < 0 || n > 1<<30 {
			return d.fault("resources", "", "a number of [resources] is out of range")
		}
	}
	if r.CPU.Machine < 0 || r.CPU.Machine > 1000 || r.CPU.Cores < 0 {
		return d.fault("resources.cpu", "", "cpu is out of range")
	}
	for _, b := range []Bytes{r.Memory, r.Swap, r.DiskWrite, r.Tmp} {
		if b > 1<<62 {
			return d.fault("resources", "", "a size of [resources] is out of range")
		}
	}
	if ports, ok := strings.CutPrefix(d.Net.Listen, "host:"); d.Net.Listen != "" && d.Net.Listen != "jail" {
		if err := (&Dest{}).ports(ports); !ok || err != nil {
			return d.fault("net.listen", "", `net.listen wants "jail", "host:8080" or "host:8000-8100"`)
		}
	}
	for k, v := range d.Env.Set {
		if !validEnv(k) || strings.Contains(k, "*") {
			return d.fault("env.set."+k, "", "%q is not the name of a variable", k)
		}
		if len(v) > maxText || !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return d.fault("env.set."+k, "", "the value of %s is too long, not UTF-8 or has a zero byte", k)
		}
	}
	for g, l := range d.Require {
		if !g.known() || l > Required {
			return d.fault("require."+string(g), didYouMean(string(g), names(Guarantees())), "unknown guarantee %q", g)
		}
	}
	return nil
}

func (d *Document) test(t *Test) error {
	at := Item{At: t.At}
	switch {
	case t.Want != "allow" && t.Want != "deny":
		return d.itemError(at, `add: want = "allow" or want = "deny"`, "test has no verdict")
	case !printable(t.Name) || len(t.Name) > maxText || !printable(t.Rule) || len(t.Rule) > maxText:
		return d.itemError(at, "", "name or rule of test has control characters or is too long")
	}
	acts := 0
	for op, list := range t.acts() {
		acts += len(list)
		for _, it := range list {
			if len(it.Text) > maxText || !utf8.ValidString(it.Text) || len(list) > maxItems {
				return d.itemError(it, "", "act is too long or not UTF-8")
			}
			switch op {
			case OpRead, OpWrite, OpExec:
				if _, rest, err := splitVariable(it.Text); err != nil {
					return d.itemError(it, "", "%q: %v", it.Text, err)
				} else if !strings.HasPrefix(rest, "/") && rest != "" {
					return d.itemError(it, "begin with /, ~/ or ${workspace}/", "%q is relative", it.Text)
				}
			case OpConnect:
				if _, _, err := splitHostPort(strings.TrimSuffix(it.Text, " udp")); err != nil {
					return d.itemError(it, "", "%q: %v", it.Text, err)
				}
			}
		}
	}
	if acts == 0 {
		return d.itemError(at, "list paths under read, write or exec", "test tries nothing")
	}
	return nil
}

// acts lists the acts of a test by operation.
func (t *Test) acts() map[Op][]Item {
	return map[Op][]Item{
		OpRead: t.Read, OpWrite: t.Write, OpExec: t.Exec,
		OpConnect: t.Connect, OpSyscall: t.Syscall, OpEnv: t.Env,
	}
}

// fault is an error at the place of a dotted key, or of its section.
func (d *Document) fault(key, hint, format string, args ...any) *Error {
	at, ok := d.At[key]
	if section, _, dotted := strings.Cut(key, "."); !ok && dotted {
		at = d.At[section]
	}
	return &Error{File: d.File, Line: at.Line, Col: at.Col, Msg: fmt.Sprintf(format, args...), Hint: hint}
}

func (d *Document) itemError(it Item, hint, format string, args ...any) *Error {
	return &Error{File: d.File, Line: it.Line, Col: it.Col, Msg: fmt.Sprintf(format, args...), Hint: hint}
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
