package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// record is one line of the output.
type record struct {
	Kind   string      `json:"kind"` // "ready", "request" or "unexpected"
	Addr   string      `json:"addr,omitempty"`
	Method string      `json:"method,omitempty"`
	URL    string      `json:"url,omitempty"`
	Header http.Header `json:"header,omitempty"`
	Body   string      `json:"body,omitempty"`
	Answer string      `json:"answer,omitempty"` // the name of the answer, "aside" or "fetch"
	Newest string      `json:"newest,omitempty"` // what the agent told the model since its last answer
	Why    string      `json:"why,omitempty"`    // of what is unexpected
}

// maxBody is the largest request that is read, in bytes. An agent's whole conversation is well below it.
const maxBody = 32 << 20

// server answers by a script and records.
type server struct {
	api    api
	script *script

	mu  sync.Mutex
	out *json.Encoder
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "model: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("api", "", "the protocol: anthropic, openai or gemini")
	file := flag.String("script", "", "the script, a TOML file")
	listen := flag.String("listen", "127.0.0.1:0", "the address")
	dir := flag.String("workspace", "", "what ${workspace} is in the script; the working directory when not given")
	cert := flag.String("cert", "", "serve TLS with this certificate, a PEM file with its key in it")
	flag.Parse()
	a, ok := apis[*name]
	if !ok {
		return fmt.Errorf("-api %q is not known", *name)
	}
	data, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = os.Getwd(); err != nil {
			return err
		}
	}
	s, err := parseScript(data, map[string]string{"workspace": *dir})
	if err != nil {
		return fmt.Errorf("%s: %w", *file, err)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *cert)
		if err != nil {
			return err
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}})
	}
	srv := &server{api: a, script: s, out: json.NewEncoder(os.Stdout)}
	srv.record(record{Kind: "ready", Addr: l.Addr().String()})
	h := &http.Server{Handler: srv, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, func() { _ = h.Close() })
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *server) record(r record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(r) // a test that does not read has ended
}

// ServeHTTP records a request and answers it.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	rec := record{Kind: "request", Method: r.Method, URL: r.URL.String(), Header: r.Header, Body: string(body)}
	send := func() {}
	if err == nil {
		send, err = s.choose(w, r, body, &rec)
	}
	if err != nil {
		rec.Kind, rec.Why = "unexpected", err.Error()
		send = func() { s.api.refuse(w, "this request is not in the script: "+err.Error()) }
	}
	s.record(rec) // first: once it is answered the jail may end
	send()
}

// choose decides on the answer and returns what sends it.
func (s *server) choose(w http.ResponseWriter, r *http.Request, body []byte, rec *record) (func(), error) {
	q, err := s.api.parse(r, body)
	if err != nil {
		return nil, err
	}
	if q == nil {
		for _, f := range s.script.Fetch {
			if f.expect.MatchString(r.Method + " " + r.URL.String()) {
				rec.Answer = "fetch"
				return func() {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(max(f.Status, http.StatusOK))
					_, _ = io.WriteString(w, f.Body)
				}, nil
			}
		}
		return nil, errors.New("no fetch of the script matches")
	}
	answer, err := s.script.next(q)
	rec.Newest = q.newest
	if err != nil {
		return nil, err
	}
	rec.Answer = answer.name
	return func() { s.api.answer(w, q, answer) }, nil
}
