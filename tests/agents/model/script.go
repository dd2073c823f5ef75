package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// script is what the model will say.
type script struct {
	Answer []answer `toml:"answer"`
	Aside  []aside  `toml:"aside"`
	Fetch  []fetch  `toml:"fetch"`
}

// answer is one turn of the model in the conversation. Of those that stand after the same one, the first that matches is taken.
type answer struct {
	Name   string `toml:"name"`   // letters, digits and '-': becomes part of the ids of its calls
	After  string `toml:"after"`  // the answer whose results came; "" for a prompt
	Expect string `toml:"expect"` // expression for the prompt or the results, as text
	Say    string `toml:"say"`    // ${1} is the first group of Expect
	Call   []call `toml:"call"`

	expect *regexp.Regexp
}

// call is one use of a tool by the model.
type call struct {
	Tool  string         `toml:"tool"`
	Input map[string]any `toml:"input"`
	Text  string         `toml:"text"` // instead of Input, for tools that take free text (custom tools of OpenAI)
}

// aside is a request outside of the conversation. Agents ask for titles and summaries that way.
type aside struct {
	Expect string `toml:"expect"` // expression for the newest text
	Tools  bool   `toml:"tools"`  // the request offers tools; most do not
	Say    string `toml:"say"`

	expect *regexp.Regexp
}

// fetch is any other request that an agent makes.
type fetch struct {
	Expect string `toml:"expect"` // expression for "METHOD /path?query"
	Status int    `toml:"status"` // 0: 200
	Body   string `toml:"body"`

	expect *regexp.Regexp
}

// parseScript reads a script. ${NAME} in it is replaced by vars first, so that it can name the workspace.
func parseScript(data []byte, vars map[string]string) (*script, error) {
	for k, v := range vars {
		data = bytes.ReplaceAll(data, []byte("${"+k+"}"), []byte(v))
	}
	var s script
	if err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(&s); err != nil {
		return nil, err
	}
	names := map[string]bool{"": true}
	for i := range s.Answer {
		a := &s.Answer[i]
		if a.Name == "" || strings.Trim(a.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return nil, fmt.Errorf("answer %q: a name is of a-z, 0-9 and '-'", a.Name)
		}
		if !names[a.After] {
			return nil, fmt.Errorf("answer %q stands after %q, which is not above it", a.Name, a.After)
		}
		names[a.Name] = true
	}
	compile := func(to **regexp.Regexp, text string) error {
		if text == "" {
			return errors.New("an expect is missing; what is not expected is an error")
		}
		re, err := regexp.Compile("(?s)" + text)
		*to = re
		return err
	}
	for i := range s.Answer {
		if err := compile(&s.Answer[i].expect, s.Answer[i].Expect); err != nil {
			return nil, fmt.Errorf("answer %q: %w", s.Answer[i].Name, err)
		}
	}
	for i := range s.Aside {
		if err := compile(&s.Aside[i].expect, s.Aside[i].Expect); err != nil {
			return nil, fmt.Errorf("aside %d: %w", i, err)
		}
	}
	for i := range s.Fetch {
		if err := compile(&s.Fetch[i].expect, s.Fetch[i].Expect); err != nil {
			return nil, fmt.Errorf("fetch %d: %w", i, err)
		}
	}
	return &s, nil
}

// reply is what the model says to one request.
type reply struct {
	name  string // of the answer; "aside" otherwise
	text  string
	calls []call
}

// id is the id of the reply's i-th call.
func (r *reply) id(i int) string { return fmt.Sprintf("call_%s_%d", r.name, i) }

// answered is the name of the answer that made the call id, "" when it is none of ours.
func answered(id string) string {
	rest, ok := strings.CutPrefix(id, "call_")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "_")
	return name
}

// next finds the reply to a request.
func (s *script) next(q *request) (reply, error) {
	for _, a := range s.Aside {
		if q.after == "" && q.tools == a.Tools && a.expect.MatchString(q.newest) {
			return reply{name: "aside", text: a.Say}, nil
		}
	}
	if !q.tools {
		return reply{}, errors.New("it offers no tools, and no aside of the script matches")
	}
	for _, a := range s.Answer {
		if a.After != q.after {
			continue
		}
		if m := a.expect.FindStringSubmatchIndex(q.newest); m != nil {
			return reply{name: a.Name, text: string(a.expect.ExpandString(nil, a.Say, q.newest, m)), calls: a.Call}, nil
		}
	}
	return reply{}, fmt.Errorf("no answer of the script stands after %q for: %s", q.after, q.newest)
}

// request is what an agent asks, in the words that the protocols share.
type request struct {
	model  string
	stream bool
	tools  bool   // it offers tools: it is the conversation, not an aside
	after  string // the answer whose results are newest, "" when a prompt is
	newest string // the newest prompt, or the newest results, one after another
}

// arguments is a call's input as JSON.
func (c *call) arguments() string {
	b, err := json.Marshal(c.Input)
	if err != nil {
		panic(err) // TOML has nothing that JSON has not, but dates, and those marshal
	}
	if c.Input == nil {
		return "{}"
	}
	return string(b)
}
