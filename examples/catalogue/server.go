// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-shelf/shelf/client"
)

const (
	maxBatch     = 100             // ids in one GET /products
	maxBody      = 64 << 10        // bytes of a request
	writeTimeout = 3 * time.Second // of a write to the database; a load has CacheConfig.LoadTimeout
)

// Server is the HTTP side. A handler is a call on the cache or the store; fail turns errors into statuses.
type Server struct {
	store    *Store
	client   *client.Client
	products *client.Cache[Product]
	log      *slog.Logger
}

// NewServer makes the cache of products. The caller ends the requests, then closes the client, then the store.
func NewServer(store *Store, cl *client.Client, log *slog.Logger) (*Server, error) {
	products, err := client.NewCache(cl, client.CacheConfig[Product]{
		Name:     "product",
		Schema:   1,                // raise it when the JSON of Product changes
		TTL:      10 * time.Minute, // what an update that nobody announces takes to be seen, at most
		Load:     store.Product,
		LoadMany: store.Products,
		Version:  func(p Product) uint64 { return p.Version },
	})
	if err != nil {
		return nil, err
	}
	return &Server{store: store, client: cl, products: products, log: log}, nil
}

// Handler returns the endpoints.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /products/{id}":    s.get,
		"GET /products":         s.getMany,
		"PUT /products/{id}":    s.put,
		"POST /products":        s.post,
		"DELETE /products/{id}": s.delete,
		"GET /stats":            s.stats,
		"GET /healthz":          s.health,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r); err != nil {
				s.fail(w, r, err)
			}
		})
	}
	return mux
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	// Lookup is Get that also says where the answer came from; so it does for an absent row.
	res, err := s.products.Lookup(r.Context(), id)
	if err != nil && !errors.Is(err, client.ErrNotFound) {
		return err
	}
	w.Header().Set("X-Cache", res.Layer.String())
	w.Header().Set("X-Cache-Age", res.Age.Round(time.Millisecond).String())
	w.Header().Set("X-Cache-Node", res.Node)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, res.Value)
}

func (s *Server) getMany(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query().Get("ids")
	if query == "" {
		return fmt.Errorf("%w: which products? Give their ids: /products?ids=1,2", errBadRequest)
	}
	ids := strings.Split(query, ",")
	if len(ids) > maxBatch {
		return fmt.Errorf("%w: more than %d ids", errBadRequest, maxBatch)
	}
	for i := range ids {
		var err error
		if ids[i], err = parseID(ids[i]); err != nil {
			return err
		}
	}
	found, err := s.products.GetMany(r.Context(), ids)
	if err != nil { // found holds the others, but who gets half an answer cannot tell "failed" from "absent"
		return err
	}
	products := make([]Product, 0, len(found))
	for _, id := range ids { // in the order in which they were asked for, each once
		if p, ok := found[id]; ok {
			products = append(products, p)
			delete(found, id)
		}
	}
	return reply(w, http.StatusOK, products)
}

func (s *Server) put(w http.ResponseWriter, r *http.Request) error {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	var patch Patch
	if err := decode(w, r, &patch); err != nil {
		return err
	}
	var p Product
	err = s.write(r.Context(), id, func(ctx context.Context) (err error) {
		p, err = s.store.Update(ctx, id, patch)
		return err
	})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, p)
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) error {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	err = s.write(r.Context(), id, func(ctx context.Context) error { return s.store.Delete(ctx, id) })
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// write changes one row and then makes every copy of it go.
//
// It uses Write, and not InvalidateVersion with the version that RETURNING gave, for the sake of the path that is easily forgotten: a change that
// failed may have been committed all the same (the connection broke in COMMIT, the caller hung up). Write invalidates then too, and after a
// panic; with InvalidateVersion that path has no version and needs a call of its own. What the version buys is for loaders that read a
// replica: for ten seconds it keeps out older rows, which a lagging replica still gives. This service reads its primary.
func (s *Server) write(ctx context.Context, id string, change func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var answer error // the database's
	err := s.products.Write(ctx, id, func(ctx context.Context) error {
		answer = change(ctx)
		return answer
	})
	if len(client.UnreachedKeys(err)) > 0 {
		s.unreached(id, err)
	}
	if answer != nil || client.NodesOnly(err) {
		return answer // that a node was not reached as well is not the caller's trouble
	}
	return err
}

// unreached logs that an invalidation has not got through. There is nothing to do: the client repeats it until it does, and reads this row from the
// database until then. Only where it has no room for one more (Config.OutboxSize), or is closed, does nobody repeat it.
func (s *Server) unreached(id string, err error) {
	if errors.Is(err, client.ErrOutboxFull) || errors.Is(err, client.ErrClosed) {
		s.log.Error("invalidation not repeated: old until the TTL", "id", id, "error", err)
		return
	}
	s.log.Warn("invalidation not confirmed: it is repeated", "id", id, "error", err)
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) error {
	var n NewProduct
	if err := decode(w, r, &n); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
	defer cancel()
	p, err := s.store.Insert(ctx, n)
	if err != nil {
		return err
	}
	// A new row has no old copy. But somebody may have asked for this id before, and that a row is absent is remembered as well. It cannot be Write,
	// which needs the key beforehand: here the database chooses it.
	if err := s.products.Invalidate(ctx, p.ID); err != nil {
		s.unreached(p.ID, err) // the row is there whatever became of this
	}
	w.Header().Set("Location", "/products/"+p.ID)
	return reply(w, http.StatusCreated, p)
}

func (s *Server) stats(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, http.StatusOK, map[string]any{
		"cache": s.products.Stats(), "client": s.client.Stats(), "database_reads": s.store.Reads(),
	})
}

// health says whether this process can serve. That does not depend on cache nodes: without them it serves from the database, and who restarts it
// for their sake makes their outage one of the service. They are shown all the same.
func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	nodes := make(map[string]string)
	for _, n := range s.client.Stats().Nodes {
		nodes[n.ID] = "ok"
		if n.LastError != nil {
			nodes[n.ID] = n.LastError.Error()
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	status, database := http.StatusOK, "ok"
	if err := s.store.Ping(ctx); err != nil {
		status, database = http.StatusServiceUnavailable, err.Error()
	}
	return reply(w, status, map[string]any{"database": database, "nodes": nodes})
}

var errBadRequest = errors.New("catalogue: bad request")

// fail answers a request that has failed. No error of a cache node comes here: reads have none, and writes keep theirs.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, message := http.StatusInternalServerError, "internal error"
	switch {
	case errors.Is(err, errBadRequest), errors.Is(err, ErrInvalid):
		status, message = http.StatusBadRequest, err.Error()
	case errors.Is(err, client.ErrNotFound): // the cache's, or the ErrNotFound of the store, which wraps it
		status, message = http.StatusNotFound, "no such product"
	case errors.Is(err, client.ErrOverloaded): // the database has more loads waiting than it can do: who comes back at once makes it worse
		w.Header().Set("Retry-After", "1")
		status, message = http.StatusServiceUnavailable, "overloaded"
	case errors.Is(err, client.ErrClosed):
		status, message = http.StatusServiceUnavailable, "shutting down"
	case errors.Is(err, context.DeadlineExceeded): // ErrLoadTimeout is one, too
		status, message = http.StatusGatewayTimeout, "the database took too long"
	}
	if status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable && r.Context().Err() == nil {
		s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "status", status, "error", err)
	}
	_ = reply(w, status, map[string]string{"error": message}) // strings always have JSON
}

// reply's error is from before the first byte: that the client has gone is none.
func reply(w http.ResponseWriter, status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
	return nil
}

func decode(w http.ResponseWriter, r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: body: %w", errBadRequest, err)
	}
	return nil
}

// parseID returns the one form of an id that is a key of the cache: "007" is no other row than "7" and must not be another entry. What cannot be
// an id never becomes a key: the nodes would remember the absence of whatever people type.
func parseID(s string) (string, error) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil || id <= 0 {
		return "", fmt.Errorf("%w: id %q is not a positive number", errBadRequest, s)
	}
	return strconv.FormatInt(id, 10), nil
}
