package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const testScript = `
[[answer]]
name = "look"
expect = "fix it"
say = "I look."
call = [{ tool = "Read", input = { file_path = "${workspace}/a" } }]

[[answer]]
name = "end"
after = "look"
expect = "held: (\\w+)"
say = "It holds ${1}."

[[aside]]
expect = "Write the title"
say = "A title"

[[fetch]]
expect = "^HEAD /$"
`

// exchange sends one request and returns status, answer and record.
func exchange(t *testing.T, vendor, method, path, body string) (int, string, record) {
	t.Helper()
	s, err := parseScript([]byte(testScript), map[string]string{"workspace": "/ws"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	srv := &server{api: apis[vendor], script: s, out: json.NewEncoder(&out)}
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	var r record
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %q", err, out.String())
	}
	return w.Code, w.Body.String(), r
}

// What agents send, in short, and what they get. The model is worth something only if it refuses the rest.
func TestModel(t *testing.T) {
	const (
		messages  = "/v1/messages?beta=true"
		responses = "/v1/responses"
		stream    = "/v1beta/models/m:streamGenerateContent?alt=sse"
	)
	for _, c := range []struct {
		name, api, path, body string
		answer                string // "" = unexpected
		has                   string // in what is sent
	}{
		{"prompt", "anthropic", messages, `{"stream":true,"tools":[{}],"messages":[{"role":"user","content":"fix it"}]}`, "look", `"id":"call_look_0"`},
		{"prompt, not streamed", "anthropic", messages, `{"tools":[{}],"messages":[{"role":"user","content":[{"type":"text","text":"fix it"}]}]}`, "look", `"file_path":"/ws/a"`},
		{"result", "anthropic", messages, `{"stream":true,"tools":[{}],"messages":[{"role":"user","content":"fix it"},{"role":"assistant","content":[]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_look_0","content":[{"type":"text","text":"held: x"}]}]}]}`, "end", "It holds x."},
		{"aside", "anthropic", messages, `{"messages":[{"role":"user","content":"Write the title"}]}`, "aside", "A title"},
		{"another prompt", "anthropic", messages, `{"tools":[{}],"messages":[{"role":"user","content":"break it"}]}`, "", "not in the script"},
		{"another result", "anthropic", messages, `{"tools":[{}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_look_0","content":"empty"}]}]}`, "", "not in the script"},
		{"result of nothing", "anthropic", messages, `{"tools":[{}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"held: x"}]}]}`, "", "not in the script"},
		{"prompt without tools", "anthropic", messages, `{"messages":[{"role":"user","content":"fix it"}]}`, "", "not in the script"},
		{"no JSON", "anthropic", messages, `fix it`, "", "not in the script"},
		{"another address", "anthropic", "/v1/files", `{}`, "", "not in the script"},
		{"prompt", "openai", responses, `{"stream":true,"tools":[{}],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"}]}]}`, "look", `"call_id":"call_look_0"`},
		{"tools as an item", "openai", responses, `{"stream":true,"input":[{"type":"additional_tools","role":"developer"},{"role":"user","content":"fix it"}]}`, "look", "response.completed"},
		{"result", "openai", responses, `{"stream":true,"tools":[{}],"input":[{"role":"user","content":"fix it"},{"type":"function_call","call_id":"call_look_0"},{"type":"function_call_output","call_id":"call_look_0","output":"held: x"}]}`, "end", "It holds x."},
		{"nothing new", "openai", responses, `{"tools":[{}],"input":[{"role":"assistant","content":"held: x"}]}`, "", "not in the script"},
		{"prompt", "gemini", stream, `{"tools":[{}],"contents":[{"role":"user","parts":[{"text":"fix it"}]}]}`, "look", `"id":"call_look_0"`},
		{"result", "gemini", stream, `{"tools":[{}],"contents":[{"role":"model","parts":[]},{"role":"user","parts":[{"functionResponse":{"id":"call_look_0","response":{"output":"held: x"}}}]}]}`, "end", "It holds x."},
		{"aside", "gemini", "/v1beta/models/m:generateContent", `{"contents":[{"role":"user","parts":[{"text":"Write the title"}]}]}`, "aside", "A title"},
		{"count", "gemini", "/v1beta/models/m:countTokens", `{}`, "", "not in the script"},
	} {
		t.Run(c.api+" "+c.name, func(t *testing.T) {
			status, sent, r := exchange(t, c.api, http.MethodPost, c.path, c.body)
			kind, want := "request", http.StatusOK
			if c.answer == "" {
				kind, want = "unexpected", http.StatusBadRequest
			}
			if status != want || r.Kind != kind || r.Answer != c.answer || r.Body != c.body || !strings.Contains(sent, c.has) {
				t.Errorf("status %d, record %+v, sent %q; want %d, %q, answer %q, and %q sent", status, r, sent, want, kind, c.answer, c.has)
			}
		})
	}
	if status, _, r := exchange(t, "anthropic", http.MethodHead, "/", ""); status != http.StatusOK || r.Answer != "fetch" {
		t.Errorf("HEAD /: %d, %+v", status, r)
	}
}

func TestScriptMistakes(t *testing.T) {
	for want, text := range map[string]string{
		"which is not above": "[[answer]]\nname = \"a\"\nafter = \"b\"\nexpect = \"x\"\n",
		"a name is of":       "[[answer]]\nname = \"a_b\"\nexpect = \"x\"\n",
		"expect is missing":  "[[answer]]\nname = \"a\"\n",
		"missing closing":    "[[fetch]]\nexpect = \"(\"\n",
		"strict mode":        "[[answer]]\nname = \"a\"\nexpct = \"x\"\n",
	} {
		if _, err := parseScript([]byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
