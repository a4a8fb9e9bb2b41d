// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// The rules of the lease, for batches: what stampede's tests say of one key.

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// batchProcess makes a process with a batch loader of its own.
func batchProcess(t *testing.T, nodes *clienttest.Nodes, load func(ctx context.Context, keys []string) (map[string]string, error), edit func(*client.CacheConfig[string])) *client.Cache[string] {
	t.Helper()
	cfg := client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true, LoadMany: load}
	if edit != nil {
		edit(&cfg)
	}
	return newCache(t, open(t, nodes.Config()), cfg)
}

// all is a batch loader that gives every key the same value.
func all(value string) func(context.Context, []string) (map[string]string, error) {
	return func(_ context.Context, keys []string) (map[string]string, error) {
		m := make(map[string]string)
		for _, k := range keys {
			m[k] = value
		}
		return m, nil
	}
}

// TestBatchWaitsForOthersLeases: it takes the values that another process is loading, and loads only the rest.
func TestBatchWaitsForOthersLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 2)
		first := batchProcess(t, nodes, func(ctx context.Context, keys []string) (map[string]string, error) {
			time.Sleep(time.Second)
			return all("first")(ctx, keys)
		}, nil)
		second := batchProcess(t, nodes, all("second"), nil)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = first.GetMany(context.Background(), []string{"a", "b"}) })
		time.Sleep(100 * time.Millisecond)
		m, err := second.GetMany(t.Context(), []string{"a", "b", "c"})
		if err != nil || m["a"] != "first" || m["b"] != "first" || m["c"] != "second" {
			t.Errorf("%v, %v", m, err)
		}
		wg.Wait()
		if n := second.Stats().Loads; n != 1 {
			t.Errorf("%d loads by the second process, want 1", n)
		}
	})
}

// TestBatchPatienceEnds: a lease that nobody gives back is waited for for WaitTimeout; then the keys are loaded, and not stored.
func TestBatchPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		c := batchProcess(t, nodes, all("mine"), func(cfg *client.CacheConfig[string]) { cfg.WaitTimeout = 2 * time.Second })
		if err := nodes.Node(0).Set("~l:x:a:v0", []byte("tsomebody")); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		m, err := c.GetMany(t.Context(), []string{"a", "b"})
		if d := time.Since(start); err != nil || len(m) != 2 || d < 2*time.Second || d > 2500*time.Millisecond {
			t.Errorf("%v, %v after %v; want both values after WaitTimeout, 2s", m, err, d)
		}
		if _, stored := nodes.Node(0).Get("x:a:v0"); stored {
			t.Error("the key whose lease another process holds was stored")
		}
		if lease, _ := nodes.Node(0).Get("~l:x:a:v0"); string(lease) != "tsomebody" {
			t.Errorf("the other process's lease is %q", lease)
		}
	})
}

// TestBatchTakesOverFreedLeases: a lease that ends without a value is taken, and the value is stored.
func TestBatchTakesOverFreedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		c := batchProcess(t, nodes, all("mine"), nil)
		if err := nodes.Node(0).Set("~l:x:a:v0", []byte("tsomebody")); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { nodes.Node(0).Delete("~l:x:a:v0") })
		start := time.Now()
		m, err := c.GetMany(t.Context(), []string{"a"})
		if d := time.Since(start); err != nil || m["a"] != "mine" || d < time.Second || d > 1300*time.Millisecond {
			t.Errorf("%v, %v after %v", m, err, d)
		}
		want(t, c, "a", "mine", client.LayerL2)
	})
}

// TestBatchLeavesNoStoreMarkers: who waits for a value that cannot be stored is told at once.
func TestBatchLeavesNoStoreMarkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		large := strings.Repeat("x", 100)
		slow := func(ctx context.Context, keys []string) (map[string]string, error) {
			time.Sleep(time.Second)
			return all(large)(ctx, keys)
		}
		small := func(cfg *client.CacheConfig[string]) { cfg.MaxValueBytes = 10 }
		a, b := batchProcess(t, nodes, slow, small), batchProcess(t, nodes, all(large), small)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = a.GetMany(context.Background(), []string{"k"}) })
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		if m, err := b.GetMany(t.Context(), []string{"k"}); err != nil || m["k"] != large {
			t.Errorf("%v, %v", m, err)
		}
		if d := time.Since(start); d > 1300*time.Millisecond {
			t.Errorf("waited %v for a value that could not be stored", d)
		}
		wg.Wait()
		if lease, held := nodes.Node(0).Get("~l:x:k:v0"); !held || string(lease) != "n" {
			t.Errorf("the lease key is %q, want the no-store marker", lease)
		}
	})
}

// TestBatchFillIsVoidedByAnInvalidation, by this process and by another one; a single reader that joined late does not get the old value.
func TestBatchFillIsVoidedByAnInvalidation(t *testing.T) {
	for _, by := range []string{"here", "elsewhere"} {
		t.Run("by "+by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := clienttest.Start(t, 1)
				var row atomic.Value
				row.Store("old")
				load := func(ctx context.Context, keys []string) (map[string]string, error) {
					v := row.Load().(string)
					time.Sleep(time.Second)
					return all(v)(ctx, keys)
				}
				caches := map[string]*client.Cache[string]{"here": batchProcess(t, nodes, load, nil), "elsewhere": batchProcess(t, nodes, load, nil)}
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = caches["here"].GetMany(context.Background(), []string{"k", "l"}) })
				time.Sleep(500 * time.Millisecond)
				row.Store("new")
				if err := caches[by].InvalidateMany(t.Context(), []string{"k", "l"}); err != nil {
					t.Fatal(err)
				}
				for name, read := range map[string]func() (string, error){
					"Get": func() (string, error) { return caches["here"].Get(t.Context(), "k") },
					"GetMany": func() (string, error) {
						m, err := caches["here"].GetMany(t.Context(), []string{"l"})
						return m["l"], err
					},
				} {
					wg.Go(func() {
						if v, err := read(); err != nil || v != "new" {
							t.Errorf("%s after the invalidation: %q, %v; want new", name, v, err)
						}
					})
				}
				wg.Wait()
				for _, k := range []string{"k", "l"} {
					want(t, caches["elsewhere"], k, "new", client.LayerL2)
				}
			})
		})
	}
}

// TestBatchResultsAreNotShared: a batch and the readers that wait for it each have bytes of their own.
func TestBatchResultsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[[]byte]{Name: "x", TTL: time.Minute, L1: client.L1All,
			LoadMany: func(_ context.Context, keys []string) (map[string][]byte, error) {
				<-gate
				m := make(map[string][]byte)
				for _, k := range keys {
					m[k] = []byte("abc")
				}
				return m, nil
			}})
		var mu sync.Mutex
		var wg sync.WaitGroup
		scribble := func(b []byte, err error) {
			mu.Lock() // one after the other, so that who comes next sees what was done
			defer mu.Unlock()
			if err != nil || string(b) != "abc" {
				t.Errorf("%q, %v", b, err)
			}
			copy(b, "XXX")
		}
		for i := range 12 {
			wg.Go(func() {
				if i%2 == 0 {
					scribble(c.Get(t.Context(), "k"))
					return
				}
				m, err := c.GetMany(t.Context(), []string{"k", "l"})
				scribble(m["k"], err)
			})
			synctest.Wait() // it leads, or has joined
		}
		close(gate)
		wg.Wait()
		scribble(c.Get(t.Context(), "k")) // L1
	})
}

// TestBatchHearsOfAFailureWithTheLeaseGivenBack: who tries again at once does not find it held.
func TestBatchHearsOfAFailureWithTheLeaseGivenBack(t *testing.T) {
	for _, what := range []string{"fails", "is too large"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := clienttest.Start(t, 1)
				down := errors.New("down")
				c := batchProcess(t, nodes, func(ctx context.Context, keys []string) (map[string]string, error) {
					if what == "fails" {
						return nil, down
					}
					return all(strings.Repeat("x", 100))(ctx, keys)
				}, func(cfg *client.CacheConfig[string]) { cfg.MaxValueBytes = 10 })
				nodes.Node(0).Slow(100 * time.Millisecond) // a release that is only begun has not arrived when the caller looks
				if _, err := c.GetMany(t.Context(), []string{"k"}); (err == nil) == (what == "fails") {
					t.Errorf("got %v", err)
				}
				if lease, held := nodes.Node(0).Get("~l:x:k:v0"); held && string(lease) != "n" {
					t.Errorf("the lease is still %q", lease)
				}
			})
		})
	}
}

// TestBatchDropsWhatNobodyWants: when the caller of a batch has left, the LoadMany call that is under way is finished and stored; of the parts that have not begun,
// only what others wait for is loaded.
func TestBatchDropsWhatNobodyWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var loads []int
		c := batchProcess(t, clienttest.Start(t, 2), func(ctx context.Context, keys []string) (map[string]string, error) {
			mu.Lock()
			loads = append(loads, len(keys))
			mu.Unlock()
			time.Sleep(time.Second)
			return all("v")(ctx, keys)
		}, func(cfg *client.CacheConfig[string]) { cfg.MaxLoadKeys = 10 })
		keys, _ := numbered(50)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // in the second of five parts
		defer cancel()
		var left sync.WaitGroup
		left.Go(func() {
			m, err := c.GetMany(ctx, keys)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "40 keys") || len(m) != 10 {
				t.Errorf("the caller that left: %d values, %v", len(m), err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		waiting := make(map[string]bool)
		mu.Lock()
		if len(loads) != 1 {
			t.Errorf("%v parts have begun, want one", loads)
		}
		mu.Unlock()
		for _, k := range []string{keys[3], keys[47], keys[0]} { // somebody else's, of different parts or of the same
			waiting[k] = true
			left.Go(func() {
				if v, err := c.Get(context.Background(), k); err != nil || v != "v" {
					t.Errorf("somebody else's read: %q, %v", v, err)
				}
			})
		}
		left.Wait()
		time.Sleep(10 * time.Second)
		count := func() (sum int) {
			mu.Lock()
			defer mu.Unlock()
			for _, n := range loads {
				sum += n
			}
			return sum
		}
		loaded := count()
		if loaded < 20 || loaded > 20+len(waiting) {
			t.Errorf("%d keys were loaded, want the two that had begun and what others waited for: 20 to %d keys", loaded, 20+len(waiting))
		}
		if m, err := c.GetMany(t.Context(), keys); err != nil || len(m) != len(keys) {
			t.Errorf("afterwards: %d values, %v", len(m), err)
		}
		if total := count(); total != len(keys) {
			t.Errorf("%d keys were loaded in all, want each once, %d", total, len(keys))
		}
	})
}

// TestGetManyOfManyFailures: every key's error is in the error, and its text fits into a log.
func TestGetManyOfManyFailures(t *testing.T) {
	down := errors.New("down")
	c := batchProcess(t, clienttest.Start(t, 1), func(context.Context, []string) (map[string]string, error) { return nil, down }, nil)
	keys, _ := numbered(100)
	_, err := c.GetMany(t.Context(), keys)
	var ke *client.KeyError
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // this very error is looked at
	if !errors.Is(err, down) || !errors.As(err, &ke) || !ok || len(joined.Unwrap()) != len(keys) {
		t.Errorf("%v", err)
	}
	if text := err.Error(); strings.Count(text, "\n") != 8 || !strings.Contains(text, "and 92 more") || !strings.Contains(text, ke.Key) {
		t.Errorf("the text is\n%s", text)
	}
}
