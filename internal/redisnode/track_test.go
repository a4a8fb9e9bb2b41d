// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// heard collects what Push is called with.
type heard struct {
	mu    sync.Mutex
	names []string // in order; "*" for nil
}

func (h *heard) push(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if names == nil {
		names = []string{"*"}
	}
	h.names = append(h.names, names...)
}

// take returns what was heard since the last time.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := h.names
	h.names = nil
	return names
}

func (h *heard) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.names, name)
}

// run runs the node's loop until the test ends.
func run(tb testing.TB, n *redisnode.Node) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = n.Run(ctx) })
	tb.Cleanup(func() { cancel(); wg.Wait() })
}

// startTracked runs a server, and a node that tracks it.
func startTracked(tb testing.TB, change func(*redisnode.Config)) (*redistest.Server, *redisnode.Node, *heard) {
	tb.Helper()
	h := new(heard)
	s, n := startNode(tb, func(c *redisnode.Config) {
		c.Push = h.push
		if change != nil {
			change(c)
		}
	})
	run(tb, n)
	tracked(tb, n)
	return s, n, h
}

// tracked waits for a Tracking that is fresh.
func tracked(tb testing.TB, n *redisnode.Node) *redisnode.Tracking {
	tb.Helper()
	var t *redisnode.Tracking
	eventually(tb, "a Tracking that is fresh", func() bool {
		t = n.Tracking()
		return t != nil && t.Fresh(time.Now())
	})
	return t
}

func do(tb testing.TB, s *redistest.Server, args ...any) any {
	tb.Helper()
	v, err := s.Do(tb.Context(), args...)
	if err != nil {
		tb.Fatal(args, err)
	}
	return v
}

func mustGet(tb testing.TB, t *redisnode.Tracking, key, beside string) (value, besideValue []byte) {
	tb.Helper()
	v, b, err := t.Get(tb.Context(), key, beside)
	if err != nil {
		tb.Fatalf("tracked Get(%q, %q): %v", key, beside, err)
	}
	return v, b
}

// Whatever happens to a key that was read is pushed, once; keys that were not read are not.
func TestPushes(t *testing.T) {
	s, n, h := startTracked(t, nil)
	for what, step := range map[string]struct {
		before []any // nil: the key is missing
		change []any // nil: none by us
	}{
		"set":     {[]any{"SET", "k", "1"}, []any{"SET", "k", "2"}},
		"delete":  {[]any{"SET", "k", "1"}, []any{"DEL", "k"}},
		"expire":  {[]any{"SET", "k", "1"}, []any{"EXPIRE", "k", "100"}},
		"expiry":  {[]any{"SET", "k", "1", "PX", "2000"}, nil},
		"appears": {nil, []any{"SET", "k", "1"}},
	} {
		tr := tracked(t, n)
		do(t, s, "DEL", "k", "never read")
		if step.before != nil {
			do(t, s, step.before...)
		}
		_ = h.take() // the DEL and the SET may have been pushed still
		v, b := mustGet(t, tr, "k", "beside")
		if step.before == nil && v != nil || step.before != nil && string(v) != "1" || b != nil {
			t.Fatalf("%s: read %q and %q", what, v, b)
		}
		do(t, s, "SET", "never read", "x")
		if step.change != nil {
			do(t, s, step.change...)
		}
		eventually(t, what+" is pushed", func() bool { return h.has("k") })
		do(t, s, "SET", "beside", what)
		eventually(t, what+": the change of what was read beside is pushed", func() bool { return h.has("beside") })
		if got := h.take(); !slices.Equal(got, []string{"k", "beside"}) {
			t.Errorf("%s: pushed %q", what, got)
		}
		do(t, s, "DEL", "beside")
	}
	if got := n.TrackingStats(); got.Begun != 1 || got.Failed != 0 || got.Pushes < 10 || n.Info().TrackingError != nil {
		t.Errorf("stats %+v, error %v", got, n.Info().TrackingError)
	}
}

// A key that the server evicts to make room is pushed.
func TestPushOnEviction(t *testing.T) {
	h := new(heard)
	s := redistest.Start(t, redistest.Config{Args: []string{"--maxmemory", "20mb", "--maxmemory-policy", "allkeys-random"}})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Push = h.push })
	run(t, n)
	tr := tracked(t, n)
	do(t, s, "SET", "k", "1")
	mustGet(t, tr, "k", "")
	filler := string(make([]byte, 100<<10))
	for i := 0; do(t, s, "EXISTS", "k") == int64(1); i++ {
		do(t, s, "SET", i, filler)
	}
	eventually(t, "the evicted key is pushed", func() bool { return h.has("k") })
}
