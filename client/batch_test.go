// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// loadMany makes a batch loader of a source. calls collects the batches.
func (s *source) loadMany(calls *[][]string) func(context.Context, []string) (map[string]string, error) {
	return func(_ context.Context, keys []string) (map[string]string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		sorted := slices.Sorted(slices.Values(keys))
		*calls = append(*calls, sorted)
		if s.fails != nil {
			return nil, s.fails
		}
		found := make(map[string]string)
		for _, k := range keys {
			s.loads[k]++
			if v, ok := s.rows[k]; ok {
				found[k] = v
			}
		}
		return found, nil
	}
}

func numbered(n int) (keys []string, rows map[string]string) {
	rows = make(map[string]string, n)
	for i := range n {
		k := fmt.Sprintf("k%04d", i)
		keys = append(keys, k)
		rows[k] = "v" + k
	}
	return keys, rows
}

func TestGetMany(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		keys, rows := numbered(250)
		var calls [][]string
		src := newSource(rows)
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, LoadMany: src.loadMany(&calls), MaxLoadKeys: 100, L1: client.L1All})
		ctx := t.Context()
		asked := append(slices.Clone(keys), "none-1", "none-2", keys[0], keys[0])
		other := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, LoadMany: src.loadMany(&calls), L1: client.L1All})
		for round, c := range []*client.Cache[string]{c, c, other, other} {
			m, err := c.GetMany(ctx, asked)
			if err != nil || len(m) != len(keys) {
				t.Fatalf("round %d: %d values, %v", round, len(m), err)
			}
			for k, v := range rows {
				if m[k] != v {
					t.Fatalf("round %d: %s is %q, want %q", round, k, m[k], v)
				}
			}
		}
		if len(calls) != 3 { // 252 keys, at most 100 a call
			t.Errorf("%d LoadMany calls, want 3", len(calls))
		}
		for _, k := range asked {
			if n := src.count(k); n != 1 {
				t.Errorf("%s was loaded %d times", k, n)
			}
		}
		if s := other.Stats(); s.L1Hits != 252 || s.L2Hits != 252 {
			t.Errorf("L1 hits %d, L2 hits %d of the other process; want 252 each", s.L1Hits, s.L2Hits)
		}
		// Get uses LoadMany too, where there is no Load.
		if _, err := c.Get(ctx, "none-3"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("Get of an absent key: %v", err)
		}
		src.set("one", "1")
		want(t, c, "one", "1", client.LayerSource)
	})
}

func TestGetManyEdges(t *testing.T) {
	nodes := clienttest.Start(t, 2)
	cl := open(t, nodes.Config())
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
	for _, keys := range [][]string{nil, {}} {
		if m, err := c.GetMany(t.Context(), keys); err != nil || m == nil || len(m) != 0 {
			t.Errorf("no keys: %v, %v; want an empty map", m, err)
		}
	}
	if _, err := c.GetMany(t.Context(), []string{"a", ""}); !errors.Is(err, client.ErrInvalidKey) {
		t.Errorf("an empty key among others: %v", err)
	}
	if n := c.Stats().Loads; n != 0 {
		t.Errorf("%d loads for a call that is wrong", n)
	}
}

// TestGetManyMixedErrors: the good keys are in the map, each bad one is named in the error.
func TestGetManyMixedErrors(t *testing.T) {
	onBackends(t, 2, func(t *testing.T, cfg client.Config) {
		broken := errors.New("broken row")
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: func(ctx context.Context, key string) (string, error) {
			switch key[0] {
			case 'b':
				return "", broken
			case 'n':
				return "", client.ErrNotFound
			}
			return echo(ctx, key)
		}})
		m, err := c.GetMany(t.Context(), []string{"good1", "bad1", "none1", "good2", "bad2"})
		if len(m) != 2 || m["good1"] != "value of good1" || m["good2"] != "value of good2" {
			t.Errorf("values: %v", m)
		}
		if !errors.Is(err, broken) {
			t.Fatalf("error: %v", err)
		}
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			t.Fatalf("%T is not a joined error", err)
		}
		var named []string
		for _, e := range joined.Unwrap() {
			var ke *client.KeyError
			if errors.As(e, &ke) {
				named = append(named, ke.Key)
			}
		}
		slices.Sort(named)
		if !slices.Equal(named, []string{"bad1", "bad2"}) {
			t.Errorf("the error names %v", named)
		}
	})
}

// TestGetManyFailedLoadReleasesItsLeases: the keys of a batch whose loader failed can be loaded at once.
func TestGetManyFailedLoadReleasesItsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, rows := numbered(50)
		var calls [][]string
		src := newSource(rows)
		down := errors.New("down")
		src.fail(down)
		c := newCache(t, open(t, clienttest.Start(t, 3).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, LoadMany: src.loadMany(&calls), L1: client.L1Off, NoErrorBackoff: true})
		if m, err := c.GetMany(t.Context(), keys); !errors.Is(err, down) || len(m) != 0 {
			t.Errorf("%v, %v", m, err)
		}
		src.fail(nil)
		start := time.Now()
		if m, err := c.GetMany(t.Context(), keys); err != nil || len(m) != len(keys) {
			t.Errorf("%d values, %v", len(m), err)
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("the second batch waited %v for leases of the first", d)
		}
	})
}

// TestCrosswiseBatches: batches and single reads over the same keys, in any order, load each key once and do not wait for each other in a circle.
func TestCrosswiseBatches(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		keys, rows := numbered(60)
		var calls [][]string
		src := newSource(rows)
		batch := src.loadMany(&calls)
		slow := func(ctx context.Context, keys []string) (map[string]string, error) {
			time.Sleep(10 * time.Millisecond) // a load that overlaps with the others
			return batch(ctx, keys)
		}
		cc := client.CacheConfig[string]{Name: "x", TTL: time.Minute, LoadMany: slow, L1: client.L1Off, NoEarlyRefresh: true}
		caches := []*client.Cache[string]{newCache(t, open(t, cfg), cc), newCache(t, open(t, cfg), cc)}
		var wg sync.WaitGroup
		for i := range 12 {
			c := caches[i%2]
			wg.Go(func() {
				mine := append(slices.Clone(keys[i*5:]), keys[:i*5]...)
				if i%3 == 0 {
					slices.Reverse(mine)
				}
				m, err := c.GetMany(t.Context(), mine)
				if err != nil || len(m) != len(keys) {
					t.Errorf("batch %d: %d values, %v", i, len(m), err)
				}
			})
			wg.Go(func() {
				if v, err := c.Get(t.Context(), keys[i]); err != nil || v != rows[keys[i]] {
					t.Errorf("single read %d: %q, %v", i, v, err)
				}
			})
		}
		wg.Wait()
		for _, k := range keys {
			if n := src.count(k); n != 1 {
				t.Errorf("%s was loaded %d times", k, n)
			}
		}
	})
}

// TestGetManyWithANodeDown: its keys come from the loader in the same call, and are not stored.
func TestGetManyWithANodeDown(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	keys, rows := numbered(90)
	var calls [][]string
	src := newSource(rows)
	c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, LoadMany: src.loadMany(&calls), L1: client.L1Off})
	if _, err := c.GetMany(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	nodes.Node(2).Down()
	for range 2 {
		m, err := c.GetMany(t.Context(), keys)
		if err != nil || len(m) != len(keys) {
			t.Errorf("%d values, %v", len(m), err)
		}
	}
	if len(calls) != 3 {
		t.Errorf("%d LoadMany calls, want one a call", len(calls))
	}
}

// TestGetManyCallerLeaves: the caller gets its own error when it leaves; the load goes on and is stored.
func TestGetManyCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int32
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
			LoadMany: func(_ context.Context, keys []string) (map[string]string, error) {
				loads.Add(1)
				time.Sleep(time.Second)
				m := make(map[string]string)
				for _, k := range keys {
					m[k] = "v" + k
				}
				return m, nil
			}})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := c.GetMany(ctx, []string{"a", "b"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the caller's own deadline", err)
		}
		if d := time.Since(start); d != 100*time.Millisecond {
			t.Errorf("the caller left after %v", d)
		}
		time.Sleep(time.Second)
		want(t, c, "a", "va", client.LayerL2)
		want(t, c, "b", "vb", client.LayerL2)
		if n := loads.Load(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
	})
}

// TestGetManyLaggingReplica: the version floor of an invalidation holds in batches too.
func TestGetManyLaggingReplica(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		var loads [][]string
		var behind atomic.Bool
		behind.Store(true)
		c := newCache(t, open(t, cfg), client.CacheConfig[row]{
			Name: "x", TTL: time.Minute, L1: client.L1Off, Version: func(r row) uint64 { return r.Version },
			LoadMany: func(_ context.Context, keys []string) (map[string]row, error) {
				loads = append(loads, slices.Sorted(slices.Values(keys)))
				m := make(map[string]row)
				for _, k := range keys {
					m[k] = row{2, "new " + k}
				}
				if behind.Load() {
					m["b"] = row{1, "old"}
					delete(m, "c")
				}
				return m, nil
			},
		})
		for _, k := range []string{"b", "c"} {
			if err := c.InvalidateVersion(t.Context(), k, 2); err != nil {
				t.Fatal(err)
			}
		}
		m, err := c.GetMany(t.Context(), []string{"a", "b", "c"})
		if err != nil || len(m) != 2 || m["b"].Version != 1 {
			t.Errorf("while the source lags: %v, %v", m, err)
		}
		if fmt.Sprint(loads) != "[[a b c] [b c]]" {
			t.Errorf("loads %v, want those below the floor once more", loads)
		}
		behind.Store(false)
		want(t, c, "a", row{2, "new a"}, client.LayerL2)
		want(t, c, "b", row{2, "new b"}, client.LayerSource)
		want(t, c, "c", row{2, "new c"}, client.LayerSource)
	})
}
