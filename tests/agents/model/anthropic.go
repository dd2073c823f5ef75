package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// anthropic is the Messages API.
type anthropic struct{}

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

type anthropicRequest struct {
	Model    string            `json:"model"`
	Stream   bool              `json:"stream"`
	Tools    []json.RawMessage `json:"tools"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

// blocks reads content, which is a string or a list of blocks.
func blocks(content json.RawMessage) ([]anthropicBlock, error) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []anthropicBlock{{Type: "text", Text: text}}, nil
	}
	var out []anthropicBlock
	err := json.Unmarshal(content, &out)
	return out, err
}

func (anthropic) parse(r *http.Request, body []byte) (*request, error) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
		return nil, nil
	}
	var in anthropicRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	q := &request{model: in.Model, stream: in.Stream, tools: len(in.Tools) > 0}
	if len(in.Messages) == 0 {
		return nil, fmt.Errorf("no messages")
	}
	var texts, results []string
	for i := len(in.Messages) - 1; i >= 0 && in.Messages[i].Role != "assistant"; i-- { // all since the last answer
		list, err := blocks(in.Messages[i].Content)
		if err != nil {
			return nil, err
		}
		for j := len(list) - 1; j >= 0; j-- {
			switch b := list[j]; b.Type {
			case "text":
				texts = append([]string{b.Text}, texts...)
			case "tool_result":
				inner, err := blocks(b.Content)
				if err != nil {
					return nil, err
				}
				text := ""
				for _, t := range inner {
					text += t.Text
				}
				if b.IsError {
					text = "error: " + text
				}
				results = append([]string{text}, results...)
				q.after = answered(b.ToolUseID)
			}
		}
	}
	if q.newest = strings.Join(texts, "\n"); len(results) > 0 { // reminders that the agent adds to results are not results
		q.newest = strings.Join(results, "\n")
	}
	return q, nil
}

func (anthropic) answer(w http.ResponseWriter, q *request, r reply) {
	usage := object{"input_tokens": 100, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	var content []object
	if r.text != "" {
		content = append(content, object{"type": "text", "text": r.text})
	}
	for i := range r.calls {
		input := r.calls[i].Input
		if input == nil {
			input = object{}
		}
		content = append(content, object{"type": "tool_use", "id": r.id(i), "name": r.calls[i].Tool, "input": input})
	}
	stop := "end_turn"
	if len(r.calls) > 0 {
		stop = "tool_use"
	}
	message := object{
		"id": "msg_" + r.name, "type": "message", "role": "assistant", "model": q.model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": usage,
	}
	if !q.stream {
		sendJSON(w, http.StatusOK, message)
		return
	}
	e := newEvents(w)
	message["content"], message["stop_reason"] = []object{}, nil
	e.send("message_start", object{"type": "message_start", "message": message})
	for i, block := range content {
		start, delta := object{"type": "text", "text": ""}, func(s string) object { return object{"type": "text_delta", "text": s} }
		text := r.text
		if block["type"] == "tool_use" {
			c := r.calls[i-len(content)+len(r.calls)]
			start = object{"type": "tool_use", "id": block["id"], "name": block["name"], "input": object{}}
			delta = func(s string) object { return object{"type": "input_json_delta", "partial_json": s} }
			text = c.arguments()
		}
		e.send("content_block_start", object{"type": "content_block_start", "index": i, "content_block": start})
		for _, p := range pieces(text, 40) {
			e.send("content_block_delta", object{"type": "content_block_delta", "index": i, "delta": delta(p)})
		}
		e.send("content_block_stop", object{"type": "content_block_stop", "index": i})
	}
	e.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 20}})
	e.send("message_stop", object{"type": "message_stop"})
}

func (anthropic) refuse(w http.ResponseWriter, why string) {
	sendJSON(w, http.StatusBadRequest, object{"type": "error", "error": object{"type": "invalid_request_error", "message": why}})
}
