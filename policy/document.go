package policy

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/agentos/agentos/policy/source"
)

// Document is one policy file as written. The zero Document grants nothing.
// A nil list means "this document says nothing", an empty one "nothing".
type Document struct {
	File        string     `json:"file" toml:"-"`
	Version     int        `json:"version" doc:"version of this format; always 1" enum:"1"`
	Name        string     `json:"name" doc:"short name: a-z, 0-9, '.', '_', '-', at most 64 bytes"`
	Description string     `json:"description,omitzero" doc:"one sentence for the reader of a list"`
	Extends     []Item     `json:"extends,omitzero" doc:"builtin policies to start from, as builtin:NAME; lists are joined, single values replaced"`
	Files       Files      `json:"files,omitzero" doc:"what may be read, written and executed"`
	Net         Net        `json:"net,omitzero" doc:"what may be reached"`
	Syscalls    Syscalls   `json:"syscalls,omitzero" doc:"changes to the default seccomp profile"`
	Resources   Resources  `json:"resources,omitzero" doc:"what may be used up; unset means no limit from this document"`
	Env         Env        `json:"env,omitzero" doc:"which environment variables enter the jail"`
	Audit       Audit      `json:"audit,omitzero" doc:"what is recorded"`
	Terminal    Terminal   `json:"terminal,omitzero" doc:"what the agent's output may do to the user's terminal"`
	Require     Require    `json:"require,omitzero" doc:"guarantees the machine must give"`
	Org         OrgSection `json:"org,omitzero" doc:"what only a file of the organisation may say"`
	Tests       []Test     `json:"tests,omitzero" doc:"expected verdicts, run by agentos policy check"`

	// At holds the position of each single value by its dotted key, such as
	// "resources.memory", and of each section by its name.
	At map[string]At `json:"at,omitzero" toml:"-"`
}

// At is a place in a file: line and column, both from 1, column in characters.
type At = source.At

// Item is one entry of a list and where it stands. Hide is for entries of Deny alone, which
// are then written as a table: { glob = "**/.env", hide = true }.
type Item struct {
	Text string `json:"text"`
	Hide bool   `json:"hide,omitempty"`
	At
}

// Files is the [files] section. Entries are globs, those of Private paths.
// Entries of Deny, Protect and Private may begin with '!', which makes them an
// exception to the entries above them.
type Files struct {
	Read         []Item `json:"read,omitzero" item:"glob" doc:"what may be opened for reading and listed"`
	Write        []Item `json:"write,omitzero" item:"glob" doc:"what may be created, changed, renamed and removed"`
	Exec         []Item `json:"exec,omitzero" item:"glob" doc:"what may be executed"`
	Deny         []Item `json:"deny,omitzero" item:"glob!?" doc:"never read, written or executed, whatever the lists above say; '!GLOB' is an exception to the entries above it; { glob = GLOB, hide = true } keeps the name from the agent, too"`
	Protect      []Item `json:"protect,omitzero" item:"glob!" doc:"never written, renamed or removed; '!GLOB' is an exception to the entries above it"`
	Private      []Item `json:"private,omitzero" item:"path!" doc:"paths that the jail makes for itself; what the host has there is not shown"`
	Persist      []Item `json:"persist,omitzero" item:"home" doc:"directories of the jail's home that sessions of one workspace share and that outlast them"`
	Overlay      []Item `json:"overlay,omitzero" item:"home" doc:"directories of your home that are shown; what is written there stays in the session"`
	AnyWorkspace *bool  `json:"any_workspace,omitzero" doc:"permit / or the home directory itself as the workspace"`
	Live         *bool  `json:"live,omitzero" doc:"false: these rules may not be changed while a jail runs (agentos policy set)"`
}

// Net is the [net] section.
type Net struct {
	Allow  []Item `json:"allow,omitzero" item:"dest" doc:"NAME:PORTS, *.NAME:PORTS, ADDRESS:PORTS, CIDR:PORTS or host:PORTS, or a table with options"`
	Deny   []Item `json:"deny,omitzero" item:"deny!" doc:"never reached, whatever allow says; '!DEST' is an exception to the entries above it"`
	Ask    *bool  `json:"ask,omitzero" doc:"a name that no rule knows is a question to the attached human; unattended it is denied"`
	Listen string `json:"listen,omitzero" doc:"who reaches servers in the jail: 'jail' or host:PORTS"`
	Unix   []Item `json:"unix,omitzero" item:"socket" doc:"unix sockets of the host, by path; each is a grant and is recorded"`
}

// Syscalls is the [syscalls] section.
type Syscalls struct {
	Profile        string `json:"profile,omitzero" doc:"the seccomp profile to start from" enum:"default"`
	Allow          []Item `json:"allow,omitzero" item:"syscall" doc:"added to the profile"`
	Deny           []Item `json:"deny,omitzero" item:"syscall" doc:"taken from the profile"`
	UserNamespaces *bool  `json:"user_namespaces,omitzero" doc:"may make user namespaces (browsers want them)"`
}

// Resources is the [resources] section. Zero is "not set".
type Resources struct {
	Memory    Bytes `json:"memory,omitzero" doc:"memory of all processes together, at least 8MB"`
	Swap      Bytes `json:"swap,omitzero" doc:"swap on top of memory; unset with memory set means none"`
	CPU       CPU   `json:"cpu,omitzero" doc:"'80%' of the whole machine, or '1.5' processors"`
	Pids      int   `json:"pids,omitzero" doc:"processes and threads together, at least 20"`
	DiskWrite Bytes `json:"disk_write,omitzero" doc:"bytes written to disk over the whole session"`
	Tmp       Bytes `json:"tmp,omitzero" doc:"size of each private file system in memory (/tmp, /dev/shm, ...)"`
	OpenFiles int   `json:"open_files,omitzero" doc:"open files per process, at least 32"`
}

// Env is the [env] section.
type Env struct {
	Pass []Item            `json:"pass,omitzero" item:"env" doc:"variables of the caller that enter the jail; '*' matches any run of characters"`
	Deny []Item            `json:"deny,omitzero" item:"env!" doc:"never passed; '!NAME' is an exception to the entries above it"`
	Set  map[string]string `json:"set,omitzero" doc:"variables set in the jail; ~ and variables are not expanded"`
}

// Audit is the [audit] section.
type Audit struct {
	Files      string `json:"files,omitzero" doc:"which file events are recorded" enum:"all,changes,denied"`
	OnOverload string `json:"on_overload,omitzero" doc:"when the recorder falls behind: hold the jail, deny, or drop and count" enum:"hold,deny,drop-and-count"`
}

// Terminal is the [terminal] section.
type Terminal struct {
	OSC52 string `json:"osc52,omitzero" doc:"clipboard writes from the agent" enum:"deny,write"`
	Title *bool  `json:"title,omitzero" doc:"may set the title of the window"`
}

// Require is the [require] section: guarantee to level.
type Require map[Guarantee]Level

// Test is one [[tests]] entry: all listed acts have the verdict Want.
type Test struct {
	At      `toml:"-"`
	Name    string `json:"name,omitzero" doc:"what is being proved"`
	Want    string `json:"want" doc:"the verdict of every act listed here" enum:"allow,deny"`
	Rule    string `json:"rule,omitzero" doc:"part of the rule that decides, as policy explain prints it (file:line:col: kind text)"`
	Read    []Item `json:"read,omitzero" item:"act" doc:"paths"`
	Write   []Item `json:"write,omitzero" item:"act" doc:"paths"`
	Exec    []Item `json:"exec,omitzero" item:"act" doc:"paths"`
	Connect []Item `json:"connect,omitzero" item:"act" doc:"HOST:PORT"`
	Syscall []Item `json:"syscall,omitzero" item:"act" doc:"names"`
	Env     []Item `json:"env,omitzero" item:"act" doc:"names of variables"`
}

// Schema is the JSON Schema (2020-12) of a policy file, for editors. It is
// made from the tags of [Document], which the parser uses too, and is
// committed as docs/policy.schema.json.
func Schema() []byte {
	s := schemaOf(reflect.TypeFor[Document]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "AgentOS policy"
	s["required"] = []string{"version", "name"}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil // cannot happen: maps of strings, lists and maps
	}
	return append(data, '\n')
}

type object = map[string]any

// entrySchema is the table form of an entry of [net] allow.
func entrySchema() object {
	s := schemaOf(reflect.TypeFor[netTable]())
	s["required"] = []string{"to"}
	return s
}

func schemaOf(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[Bytes]():
		return object{"type": []string{"string", "integer"}, "pattern": `^[0-9]+(\.[0-9]+)? *([kKMGT]?B?|[KMGT]iB)$`, "minimum": 1}
	case reflect.TypeFor[CPU]():
		return object{"type": "string", "pattern": `^[0-9]+(\.[0-9]+)?%?( [0-9]+(\.[0-9]+)?%?)?$`}
	case reflect.TypeFor[Require]():
		props := object{}
		for _, g := range Guarantees() {
			props[string(g)] = object{"enum": []string{Required.String(), Prefer.String(), Ignore.String()}}
		}
		return object{"type": "object", "properties": props, "additionalProperties": false}
	case reflect.TypeFor[Item]():
		return object{"type": "string", "minLength": 1, "maxLength": maxText}
	}
	switch t.Kind() {
	case reflect.Struct:
		props := object{}
		for i := range t.NumField() {
			f := t.Field(i)
			key := keyOf(f)
			if key == "" {
				continue
			}
			p := schemaOf(f.Type)
			if takesTables(f) {
				p["items"] = object{"anyOf": []any{schemaOf(reflect.TypeFor[Item]()), object{
					"type": "object", "required": []string{"glob"}, "additionalProperties": false,
					"properties": object{"glob": schemaOf(reflect.TypeFor[Item]()), "hide": object{"type": "boolean"}},
				}}}
			}
			if f.Tag.Get("item") == "dest" {
				p["items"] = object{"anyOf": []object{schemaOf(reflect.TypeFor[Item]()), entrySchema()}}
			}
			p["description"] = f.Tag.Get("doc")
			if enum := f.Tag.Get("enum"); enum != "" && f.Type.Kind() == reflect.String {
				p["enum"] = strings.Split(enum, ",")
			}
			if key == "version" {
				p["const"] = 1
			}
			props[key] = p
		}
		return object{"type": "object", "properties": props, "additionalProperties": false}
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem()), "maxItems": maxItems}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": object{"type": "string"}}
	case reflect.Pointer:
		return object{"type": "boolean"}
	case reflect.Int:
		return object{"type": "integer", "minimum": 1}
	default:
		return object{"type": "string"}
	}
}
