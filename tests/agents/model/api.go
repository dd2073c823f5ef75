package main

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// api is one vendor's protocol.
type api interface {
	// parse reads a request for words of the model. It is nil, without an error, for any other request.
	parse(r *http.Request, body []byte) (*request, error)
	// answer sends the reply, as events or whole, as the request asked.
	answer(w http.ResponseWriter, q *request, r reply)
	// refuse sends an error in the protocol's form, one that is not worth a second try.
	refuse(w http.ResponseWriter, why string)
}

var apis = map[string]api{"anthropic": anthropic{}, "openai": openai{}, "gemini": gemini{}}

// object is JSON to send.
type object = map[string]any

func sendJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // whoever hung up does not want it
}

// events sends server-sent events (WHATWG HTML, 9.2), each at once.
type events struct {
	w http.ResponseWriter
}

func newEvents(w http.ResponseWriter) events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	return events{w}
}

// send sends v under an event's name; "" leaves the name out.
func (e events) send(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	if name != "" {
		_, _ = fmt.Fprintf(e.w, "event: %s\n", name)
	}
	_, _ = fmt.Fprintf(e.w, "data: %s\n\n", b)
	if f, ok := e.w.(http.Flusher); ok {
		f.Flush()
	}
}

// pieces cuts text as a stream would bring it: in parts of n bytes, never within a rune.
func pieces(text string, n int) []string {
	var out []string
	start := 0
	for i := range text {
		if i-start >= n {
			out = append(out, text[start:i])
			start = i
		}
	}
	return append(out, text[start:])
}
