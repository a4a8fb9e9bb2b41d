// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Server lets other processes query a database, over HTTP on loopback.
type Server struct {
	db       *Database
	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc // ends the statements that run
	done     chan struct{}      // closed when the accept loop has ended
}

// Serve is [Database.Listen] for a test: it returns the URL, and the server is
// closed when the test ends.
func (d *Database) Serve(tb testing.TB) (url string) {
	tb.Helper()
	s, err := d.Listen()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s.URL()
}

// Listen serves the database on a free port of loopback. The caller closes the
// server.
func (d *Database) Listen() (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{db: d, listener: listener, cancel: cancel, done: make(chan struct{})}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(listener) // always an error, and Close is why
	}()
	return s, nil
}

// URL is what [Remote] takes.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// closeGrace bounds the wait for connections on which nothing was ever sent.
const closeGrace = time.Second

// Close ends the statements that run, whose callers get an error, and returns
// when the server is gone. It may be called again.
func (s *Server) Close() error {
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // closes what did not end by itself; the listener is closed
	}
	<-s.done
	return nil
}

// request is a statement on the wire, and response its result.
type request struct {
	Op  string
	IDs []string `json:",omitempty"` // of a read or a removal
	Row Row      // of a change
}

type response struct {
	Rows    map[string]Row `json:",omitempty"`
	Version uint64         `json:",omitempty"`
	Error   string         `json:",omitempty"`
}

// handle runs one statement. It ends when the caller goes away, which net/http
// notices once the body is read.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	var req request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<20)).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.execute(r.Context(), req)) // the caller may be gone
}

func (s *Server) execute(ctx context.Context, req request) (resp response) {
	var row Row
	var err error
	switch {
	case req.Op == "query" && len(req.IDs) == 1:
		row, err = s.db.Query(ctx, req.IDs[0])
	case req.Op == "many":
		resp.Rows, err = s.db.QueryMany(ctx, req.IDs)
	case req.Op == "update":
		row, err = s.db.Update(ctx, req.Row.ID, req.Row.PriceCents)
	case req.Op == "insert":
		row, err = s.db.Insert(ctx, req.Row)
	case req.Op == "delete" && len(req.IDs) == 1:
		resp.Version, err = s.db.Delete(ctx, req.IDs[0])
	default:
		err = fmt.Errorf("workload: no such statement: %q of %d ids", req.Op, len(req.IDs))
	}
	if err != nil {
		return response{Error: err.Error()}
	}
	if resp.Rows == nil {
		resp.Rows = map[string]Row{row.ID: row}
	}
	return resp
}

// RemoteDatabase is a [Database] of another process. Its methods do what the
// database's do; they count there and take their time there. Errors other than
// ErrNoRow, ErrRowExists and the context's arrive as text. Ids must be valid UTF-8.
type RemoteDatabase struct {
	url    string
	client *http.Client
}

// Remote returns the database that [Database.Serve] or [Server.URL] named. It
// dials when it is used. Close it to give its idle connections back.
func Remote(url string) *RemoteDatabase {
	// The default keeps two idle connections: with more callers than that, nearly
	// every statement would dial.
	return &RemoteDatabase{url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}}
}

// Close closes idle connections.
func (r *RemoteDatabase) Close() { r.client.CloseIdleConnections() }

// Query is [Database.Query].
func (r *RemoteDatabase) Query(ctx context.Context, id string) (Row, error) {
	resp, err := r.call(ctx, request{Op: "query", IDs: []string{id}})
	return resp.Rows[id], err
}

// QueryMany is [Database.QueryMany].
func (r *RemoteDatabase) QueryMany(ctx context.Context, ids []string) (map[string]Row, error) {
	resp, err := r.call(ctx, request{Op: "many", IDs: ids})
	if err != nil {
		return nil, err
	}
	if resp.Rows == nil {
		resp.Rows = make(map[string]Row)
	}
	return resp.Rows, nil
}

// Update is [Database.Update].
func (r *RemoteDatabase) Update(ctx context.Context, id string, priceCents int64) (Row, error) {
	resp, err := r.call(ctx, request{Op: "update", Row: Row{ID: id, PriceCents: priceCents}})
	return resp.Rows[id], err
}

// Insert is [Database.Insert].
func (r *RemoteDatabase) Insert(ctx context.Context, row Row) (Row, error) {
	resp, err := r.call(ctx, request{Op: "insert", Row: row})
	return resp.Rows[row.ID], err
}

// Delete is [Database.Delete].
func (r *RemoteDatabase) Delete(ctx context.Context, id string) (version uint64, err error) {
	resp, err := r.call(ctx, request{Op: "delete", IDs: []string{id}})
	return resp.Version, err
}

func (r *RemoteDatabase) call(ctx context.Context, req request) (response, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return response{}, fmt.Errorf("workload: %w", err)
	}
	httpReq, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return response{}, fmt.Errorf("workload: %w", err)
	}
	httpResp, err := r.client.Do(httpReq)
	if err != nil {
		return response{}, fmt.Errorf("workload: %w", err)
	}
	defer httpResp.Body.Close() //nolint:errcheck // only read
	if httpResp.StatusCode != http.StatusOK {
		return response{}, fmt.Errorf("workload: the server answers %s", httpResp.Status)
	}
	var resp response
	if err := json.NewDecoder(httpResp.Body).Decode(&resp); err != nil {
		return response{}, fmt.Errorf("workload: %w", err)
	}
	_, _ = io.Copy(io.Discard, httpResp.Body) // only a connection read to its end is kept
	return resp, remoteError(resp.Error)
}

func remoteError(text string) error {
	switch text {
	case "":
		return nil
	case ErrNoRow.Error():
		return ErrNoRow
	case ErrRowExists.Error():
		return ErrRowExists
	}
	return errors.New(text)
}
