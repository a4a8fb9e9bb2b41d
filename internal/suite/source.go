// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"sync"

	"github.com/go-shelf/shelf/client"
)

// row is what the source holds.
type row struct {
	Version uint64 // 0: it has none
	Text    string
}

func version(r row) uint64 { return r.Version }

// source is a database stand-in that counts, and that can hold its loads after they have read.
type source struct {
	mu    sync.Mutex
	rows  map[string]row
	loads map[string]int
	many  int // calls of loadMany
	fails error
	gate  chan struct{} // not nil: loads wait until it is closed
	held  int           // loads that wait at it
}

// newSource holds the same row under any key, until set says otherwise; under "none" it holds nothing.
func newSource(r row) *source {
	return &source{rows: map[string]row{"": r}, loads: make(map[string]int)}
}

func (s *source) load(ctx context.Context, key string) (row, error) {
	s.mu.Lock()
	s.loads[key]++
	r, ok, err, gate := s.rowOf(key), key != "none", s.fails, s.gate
	if gate != nil {
		s.held++
	}
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return row{}, ctx.Err()
		}
	}
	if err == nil && !ok {
		err = client.ErrNotFound
	}
	return r, err
}

func (s *source) loadMany(ctx context.Context, keys []string) (map[string]row, error) {
	s.mu.Lock()
	s.many++
	s.mu.Unlock()
	rows := make(map[string]row, len(keys))
	for _, k := range keys {
		r, err := s.load(ctx, k)
		switch {
		case errors.Is(err, client.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			rows[k] = r
		}
	}
	return rows, nil
}

func (s *source) rowOf(key string) row {
	if r, ok := s.rows[key]; ok {
		return r
	}
	return s.rows[""]
}

func (s *source) set(key string, r row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[key] = r
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// hold makes the loads that begin from now on wait, with what they have read, until release.
func (s *source) hold() (release func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	s.gate, s.held = gate, 0
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.gate = nil
		s.mu.Unlock()
		close(gate)
	}
}

// holding says how many loads wait.
func (s *source) holding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *source) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads[key]
}

// ask begins a read and returns how to wait for its answer.
func ask[V any](s *scene, c *client.Cache[V], key string) (answer func() (client.Result[V], error)) {
	var r client.Result[V]
	var err error
	ended := make(chan struct{})
	ctx := s.Context()
	go func() {
		defer close(ended)
		r, err = c.Lookup(ctx, key)
	}()
	return func() (client.Result[V], error) {
		<-ended
		return r, err
	}
}

// want is one read and what it must give.
func want[V comparable](s *scene, c *client.Cache[V], key string, v V, layer client.Layer) {
	s.Helper()
	r, err := c.Lookup(s.Context(), key)
	if err != nil || r.Value != v || r.Layer != layer {
		s.Errorf("Lookup(%.80q) = %v from %v, %v; want %v from %v", key, r.Value, r.Layer, err, v, layer)
	}
}

// loaded is how often the source must have been asked for a key.
func (s *source) loaded(sc *scene, key string, n int) {
	sc.Helper()
	if got := s.count(key); got != n {
		sc.Errorf("%d loads of %.80q, want %d", got, key, n)
	}
}
