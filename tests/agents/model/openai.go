package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// openai is the Responses API.
type openai struct{}

type openaiItem struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	CallID  string          `json:"call_id"`
	Output  json.RawMessage `json:"output"`
}

// plain reads what is a string or a list of parts with text.
func plain(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	for _, p := range parts {
		text += p.Text
	}
	return text
}

func (openai) parse(r *http.Request, body []byte) (*request, error) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responses") {
		return nil, nil
	}
	var in struct {
		Model  string            `json:"model"`
		Stream bool              `json:"stream"`
		Tools  []json.RawMessage `json:"tools"`
		Input  []openaiItem      `json:"input"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	q := &request{model: in.Model, stream: in.Stream, tools: len(in.Tools) > 0}
	for _, item := range in.Input {
		q.tools = q.tools || item.Type == "additional_tools" // Codex sends its tools as the first item
	}
	var texts, results []string
	for i := len(in.Input) - 1; i >= 0; i-- {
		item := in.Input[i]
		if item.Type == "function_call" || item.Type == "custom_tool_call" || item.Role == "assistant" {
			break
		}
		switch {
		case item.Type == "function_call_output" || item.Type == "custom_tool_call_output":
			results = append([]string{plain(item.Output)}, results...)
			q.after = answered(item.CallID)
		case item.Role == "user":
			texts = append([]string{plain(item.Content)}, texts...)
		}
	}
	if len(texts)+len(results) == 0 {
		return nil, errors.New("nothing new in the input")
	}
	if q.newest = strings.Join(texts, "\n"); len(results) > 0 {
		q.newest = strings.Join(results, "\n")
	}
	return q, nil
}

func (openai) answer(w http.ResponseWriter, q *request, r reply) {
	var output []object
	if r.text != "" {
		output = append(output, object{
			"type": "message", "id": "msg_" + r.name, "role": "assistant", "status": "completed",
			"content": []object{{"type": "output_text", "text": r.text, "annotations": []object{}}},
		})
	}
	for i := range r.calls {
		c := &r.calls[i]
		if c.Text != "" {
			output = append(output, object{"type": "custom_tool_call", "id": "ctc_" + r.name, "status": "completed", "call_id": r.id(i), "name": c.Tool, "input": c.Text})
			continue
		}
		output = append(output, object{"type": "function_call", "id": "fc_" + r.name, "status": "completed", "call_id": r.id(i), "name": c.Tool, "arguments": c.arguments()})
	}
	response := object{
		"id": "resp_" + r.name, "object": "response", "created_at": 0, "model": q.model, "status": "completed", "output": output,
		"usage": object{
			"input_tokens": 100, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": 20,
			"output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 120,
		},
	}
	if !q.stream {
		sendJSON(w, http.StatusOK, response)
		return
	}
	e := newEvents(w)
	e.send("response.created", object{"type": "response.created", "response": object{"id": response["id"], "object": "response", "status": "in_progress", "output": []object{}}})
	for i, item := range output {
		e.send("response.output_item.added", object{"type": "response.output_item.added", "output_index": i, "item": begun(item)})
		switch item["type"] {
		case "message":
			for _, p := range pieces(r.text, 40) {
				e.send("response.output_text.delta", object{"type": "response.output_text.delta", "item_id": item["id"], "output_index": i, "content_index": 0, "delta": p})
			}
		case "function_call":
			for _, p := range pieces(item["arguments"].(string), 40) {
				e.send("response.function_call_arguments.delta", object{"type": "response.function_call_arguments.delta", "item_id": item["id"], "output_index": i, "delta": p})
			}
		}
		e.send("response.output_item.done", object{"type": "response.output_item.done", "output_index": i, "item": item})
	}
	e.send("response.completed", object{"type": "response.completed", "response": response})
}

// begun is an item before its first delta: the same without what deltas bring.
func begun(item object) object {
	out := object{}
	for k, v := range item {
		out[k] = v
	}
	out["status"] = "in_progress"
	switch item["type"] {
	case "message":
		out["content"] = []object{}
	case "function_call":
		out["arguments"] = ""
	case "custom_tool_call":
		out["input"] = ""
	}
	return out
}

func (openai) refuse(w http.ResponseWriter, why string) {
	sendJSON(w, http.StatusBadRequest, object{"error": object{"type": "invalid_request_error", "message": why, "param": nil, "code": nil}})
}
