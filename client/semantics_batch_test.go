// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// The read path to the letter, many keys at a time: what the doc comments of GetMany, LoadMany and SetTTL say and no other test shows.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// TestLoadManyMap: what is missing from the map does not exist and is remembered, a nil map is an empty one, and what was not asked for is not taken.
func TestLoadManyMap(t *testing.T) {
	onBackends(t, 2, func(t *testing.T, cfg client.Config) {
		rows := map[string]string{"a": "1", "extra": "not asked for"}
		loads := 0
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, LoadMany: func(_ context.Context, keys []string) (map[string]string, error) {
			loads++
			if !slices.Contains(keys, "a") {
				return nil, nil //nolint:nilnil // the case
			}
			return rows, nil
		}})
		for range 2 {
			m, err := c.GetMany(t.Context(), []string{"a", "b", "a", "b"})
			if err != nil || !maps.Equal(m, map[string]string{"a": "1"}) {
				t.Errorf("%v, %v; want a alone", m, err)
			}
		}
		if loads != 1 {
			t.Errorf("%d loads, want 1: the absence is remembered too", loads)
		}
		if m, err := c.GetMany(t.Context(), []string{"c", "d"}); err != nil || m == nil || len(m) != 0 {
			t.Errorf("a nil map: %v, %v; want an empty one", m, err)
		}
		for key, layer := range map[string]client.Layer{"b": client.LayerL2, "d": client.LayerL2, "extra": client.LayerSource} {
			if r, err := c.Lookup(t.Context(), key); !errors.Is(err, client.ErrNotFound) || r.Layer != layer {
				t.Errorf("%s: %+v, %v; want absent from %v", key, r, err, layer)
			}
		}
		if m, err := c.GetMany(t.Context(), []string{"a", "b", "new"}); err != nil || len(m) != 1 || loads != 4 {
			t.Errorf("cached, absent and new: %v, %v, %d loads; want a alone, and new loaded by itself", m, err, loads)
		}
	})
}

// TestLoadManyFails in any way: every key of its call has failed with that, those of other calls have not, nothing of its map is used, and nobody has to wait for
// its leases.
func TestLoadManyFails(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		load func(ctx context.Context) error
		is   func(error) bool
		took time.Duration
	}{
		"error":             {func(context.Context) error { return broken }, func(err error) bool { return errors.Is(err, broken) }, 0},
		"panic":             {func(context.Context) error { panic("broken") }, func(err error) bool { var p *client.PanicError; return errors.As(err, &p) && p.Value == "broken" }, 0},
		"Goexit":            {func(context.Context) error { runtime.Goexit(); return nil }, func(err error) bool { return errors.Is(err, client.ErrGoexit) }, 0},
		"timeout":           {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, func(err error) bool { return errors.Is(err, client.ErrLoadTimeout) }, time.Second},
		"timeout, unheeded": {func(context.Context) error { time.Sleep(2 * time.Second); return nil }, func(err error) bool { return errors.Is(err, client.ErrLoadTimeout) }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := clienttest.Start(t, 3)
				var fails atomic.Bool
				fails.Store(true)
				c := batchProcess(t, nodes, func(ctx context.Context, keys []string) (map[string]string, error) {
					var err error
					if fails.Load() && slices.Contains(keys, "k0000") {
						err = tc.load(ctx)
					}
					m, _ := all("v")(ctx, keys)
					return m, err
				}, func(cfg *client.CacheConfig[string]) {
					cfg.MaxLoadKeys, cfg.LoadTimeout, cfg.NoErrorBackoff = 20, time.Second, true
				})
				keys, _ := numbered(60)
				start := time.Now()
				m, err := c.GetMany(t.Context(), keys)
				if d := time.Since(start); len(m) != 40 || !tc.is(err) || d != tc.took {
					t.Errorf("%d values, %v after %v; want those of two of three calls after %v", len(m), err, d, tc.took)
				}
				named := 0
				for _, part := range err.(interface{ Unwrap() []error }).Unwrap() { //nolint:errorlint // this very error is looked at
					var ke *client.KeyError
					if !errors.As(part, &ke) || !tc.is(part) || m[ke.Key] != "" {
						t.Errorf("a part of the error: %v", part)
					}
					named++
				}
				if named != 20 {
					t.Errorf("%d keys are named, want 20", named)
				}
				fails.Store(false)
				start = time.Now()
				if m, err := c.GetMany(t.Context(), keys); err != nil || len(m) != len(keys) || time.Since(start) > 0 {
					t.Errorf("afterwards: %d values, %v after %v", len(m), err, time.Since(start))
				}
				time.Sleep(2 * time.Second) // the loader that heeds no timeout ends
			})
		})
	}
}

// TestGetManySingleLoads: without LoadMany a call has 16 loads under way, whatever places there are; one that is itself part of a load has one.
func TestGetManySingleLoads(t *testing.T) {
	for _, nested := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var running, most atomic.Int32
			cl := open(t, clienttest.Start(t, 3).Config())
			c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: func(ctx context.Context, key string) (string, error) {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer running.Add(-1)
				time.Sleep(10 * time.Millisecond)
				return echo(ctx, key)
			}})
			keys, _ := numbered(60)
			call := func(ctx context.Context, _ string) (string, error) {
				m, err := c.GetMany(ctx, keys)
				return fmt.Sprint(len(m)), err
			}
			want, get := int32(16), call
			if nested {
				want, get = 1, newCache(t, cl, client.CacheConfig[string]{Name: "outer", TTL: time.Minute, Load: call}).Get
			}
			if n, err := get(t.Context(), "k"); n != "60" || err != nil || most.Load() != want {
				t.Errorf("nested %t: %s values, %v, %d loads at once; want %d", nested, n, err, most.Load(), want)
			}
		})
	}
}

// TestGetManyInvalidKeyFirst: one invalid key fails the call before anything is asked or counted, and the error says which it is. A context that has ended
// does so too, and is not one key's.
func TestGetManyInvalidKeyFirst(t *testing.T) {
	nodes := clienttest.Start(t, 2)
	c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo, L1: client.L1All})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context //nolint:containedctx // a table of tests
		keys []string
		err  error
		text string
	}{
		"invalid":           {t.Context(), []string{"a", "b", ""}, client.ErrInvalidKey, "shelf: keys[2]: shelf: invalid key: it is empty"},
		"ended":             {ended, []string{"a", "b"}, context.Canceled, "context canceled"},
		"invalid and ended": {ended, []string{"", "b"}, client.ErrInvalidKey, "shelf: keys[0]: shelf: invalid key: it is empty"},
	} {
		if m, err := c.GetMany(tc.ctx, tc.keys); !errors.Is(err, tc.err) || err.Error() != tc.text || m != nil {
			t.Errorf("%s: %v, %v; want %s", name, m, err, tc.text)
		}
	}
	if m, err := c.GetMany(ended, nil); err != nil || m == nil {
		t.Errorf("no keys: %v, %v; want an empty map", m, err)
	}
	if s := c.Stats(); s.L1Misses != 0 || s.Loads != 0 || s.NodeErrors != 0 {
		t.Errorf("something was asked: %+v", s)
	}
}

// TestGetManyLeftInTheMiddle: the map holds what had come, the error is the context's, once; a call that has all its answers has no error even if its context has
// ended meanwhile.
func TestGetManyLeftInTheMiddle(t *testing.T) {
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprint("single loads ", single), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := clienttest.Start(t, 2)
				c := batchProcess(t, nodes, func(ctx context.Context, keys []string) (map[string]string, error) {
					time.Sleep(time.Second)
					return all("v")(ctx, keys)
				}, func(cfg *client.CacheConfig[string]) {
					if single {
						cfg.LoadMany, cfg.Load = nil, func(ctx context.Context, key string) (string, error) { time.Sleep(time.Second); return "v", nil }
					}
				})
				keys, _ := numbered(60)
				if _, err := c.GetMany(t.Context(), keys[:10]); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(500*time.Millisecond, func() { cancel(nil) })
				start := time.Now()
				m, err := c.GetMany(ctx, keys)
				if len(m) != 10 || !errors.Is(err, context.Canceled) || err.Error() != "shelf: GetMany: 50 keys had no answer yet: context canceled" {
					t.Errorf("%d values, %v; want the 10 that were cached", len(m), err)
				}
				if d := time.Since(start); d != 500*time.Millisecond {
					t.Errorf("it took %v", d)
				}
				var ke *client.KeyError
				if errors.As(err, &ke) {
					t.Errorf("the error names key %q", ke.Key)
				}

				nodes.Node(0).Slow(100 * time.Millisecond)
				nodes.Node(1).Slow(100 * time.Millisecond)
				ctx, cancel = context.WithCancelCause(t.Context())
				time.AfterFunc(50*time.Millisecond, func() { cancel(nil) }) // a command that was sent is waited for
				if m, err := c.GetMany(ctx, keys[:10]); err != nil || len(m) != 10 || ctx.Err() == nil {
					t.Errorf("all answers there when the context ended: %d values, %v", len(m), err)
				}
				time.Sleep(5 * time.Second)
			})
		})
	}
}

// TestGetManyOnTruthWithANodeDown: the other nodes' keys are in the map, and each key of that node is an error of its own that says so.
func TestGetManyOnTruthWithANodeDown(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "session", TTL: time.Hour, Truth: true, L1: client.L1Off})
	keys, rows := numbered(60)
	if err := c.SetMany(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	nodes.Node(1).Down()
	m, err := c.GetMany(t.Context(), append(slices.Clone(keys), "none"))
	var down []string
	for _, k := range append(slices.Clone(keys), "none") {
		if ownerOf(c, k) == "node-1" {
			down = append(down, k)
		} else if m[k] != rows[k] {
			t.Errorf("%s is %q, want %q", k, m[k], rows[k])
		}
	}
	unreached := client.UnreachedKeys(err)
	slices.Sort(unreached)
	if slices.Sort(down); !slices.Equal(unreached, down) || !client.NodesOnly(err) {
		t.Errorf("unreached %q, want %q (%v)", unreached, down, err)
	}
}

// TestSetTTLInLoadMany: each key has its own, a key without one the cache's; it softens at the same share; and the loader of a refresh says it anew.
func TestSetTTLInLoadMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 2)
		ttls := map[string]time.Duration{"short": 10 * time.Second, "long": time.Hour}
		c := batchProcess(t, nodes, func(ctx context.Context, keys []string) (map[string]string, error) {
			for _, k := range keys {
				if ttl := ttls[k]; ttl > 0 {
					if err := errors.Join(client.SetTTL(ctx, k, time.Minute), client.SetTTL(ctx, k, ttl)); err != nil { // the last counts
						t.Error(err)
					}
				}
			}
			if err := client.SetTTL(ctx, "other", time.Second); err == nil {
				t.Error("SetTTL of a key that is not being loaded was taken")
			}
			return all("v")(ctx, keys)
		}, func(cfg *client.CacheConfig[string]) {
			cfg.TTL, cfg.SoftTTL, cfg.NoJitter = 20*time.Minute, 10*time.Minute, true
		})
		if _, err := c.GetMany(t.Context(), []string{"short", "long", "plain"}); err != nil {
			t.Fatal(err)
		}
		left := func(key string) time.Duration { node, name := c.Where(key); return nodes.ByID(node).TTL(name) }
		for key, want := range map[string]time.Duration{"short": 10 * time.Second, "long": time.Hour, "plain": 20 * time.Minute} {
			if got := left(key); got != want {
				t.Errorf("%s lives for %v, want %v", key, got, want)
			}
		}
		time.Sleep(5*time.Second - time.Millisecond)
		if r, err := c.Lookup(t.Context(), "short"); err != nil || r.Stale {
			t.Errorf("before half of its TTL: %+v, %v", r, err)
		}
		ttls["short"] = 30 * time.Second
		time.Sleep(time.Millisecond)
		if r, err := c.Lookup(t.Context(), "short"); err != nil || !r.Stale {
			t.Errorf("at half of its TTL, as the cache's others: %+v, %v", r, err)
		}
		time.Sleep(time.Millisecond) // the refresh
		if got := left("short"); got != 30*time.Second-time.Millisecond {
			t.Errorf("refreshed, it lives for %v, want 30s", got)
		}
		delete(ttls, "short")
		time.Sleep(15 * time.Second)
		if _, err := c.Get(t.Context(), "short"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
		if got := left("short"); got != 20*time.Minute-time.Millisecond {
			t.Errorf("refreshed without a TTL of its own, it lives for %v, want the cache's 20m", got)
		}
	})
}
