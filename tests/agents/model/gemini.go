package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// gemini is generateContent and streamGenerateContent of the Gemini API.
type gemini struct{}

func (gemini) parse(r *http.Request, body []byte) (*request, error) {
	_, verb, _ := strings.Cut(r.URL.Path, ":")
	if r.Method != http.MethodPost || verb != "generateContent" && verb != "streamGenerateContent" {
		return nil, nil
	}
	var in struct {
		Tools    []json.RawMessage `json:"tools"`
		Contents []struct {
			Role  string `json:"role"`
			Parts []struct {
				Text             string `json:"text"`
				FunctionResponse *struct {
					ID       string          `json:"id"`
					Response json.RawMessage `json:"response"`
				} `json:"functionResponse"`
			} `json:"parts"`
		} `json:"contents"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	q := &request{stream: verb == "streamGenerateContent", tools: len(in.Tools) > 0}
	var texts, results []string
	for i := len(in.Contents) - 1; i >= 0 && in.Contents[i].Role != "model"; i-- {
		parts := in.Contents[i].Parts
		for j := len(parts) - 1; j >= 0; j-- {
			if f := parts[j].FunctionResponse; f != nil {
				results = append([]string{string(f.Response)}, results...)
				q.after = answered(f.ID)
			} else {
				texts = append([]string{parts[j].Text}, texts...)
			}
		}
	}
	if len(texts)+len(results) == 0 {
		return nil, errors.New("nothing new in the contents")
	}
	if q.newest = strings.Join(texts, "\n"); len(results) > 0 {
		q.newest = strings.Join(results, "\n")
	}
	return q, nil
}

func (gemini) answer(w http.ResponseWriter, q *request, r reply) {
	chunk := func(parts []object, finish string) object {
		c := object{"index": 0, "content": object{"role": "model", "parts": parts}}
		if finish != "" {
			c["finishReason"] = finish
		}
		return object{
			"candidates": []object{c}, "responseId": r.name,
			"usageMetadata": object{"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120},
		}
	}
	var calls []object
	for i := range r.calls {
		calls = append(calls, object{"functionCall": object{"id": r.id(i), "name": r.calls[i].Tool, "args": r.calls[i].Input}})
	}
	if !q.stream {
		sendJSON(w, http.StatusOK, chunk(append([]object{{"text": r.text}}, calls...), "STOP"))
		return
	}
	e := newEvents(w)
	if r.text != "" {
		for _, p := range pieces(r.text, 40) {
			e.send("", chunk([]object{{"text": p}}, ""))
		}
	}
	if len(calls) == 0 {
		calls = []object{{"text": ""}}
	}
	e.send("", chunk(calls, "STOP"))
}

func (gemini) refuse(w http.ResponseWriter, why string) {
	sendJSON(w, http.StatusBadRequest, object{"error": object{"code": 400, "message": why, "status": "INVALID_ARGUMENT"}})
}
