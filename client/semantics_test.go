// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// The read path to the letter, one key at a time: what the doc comments of Get, Lookup, GetWith, GetOptions and SetTTL say and no other test shows.

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// looked is one read with options and what it must give.
func looked(t *testing.T, c *client.Cache[string], key string, o client.GetOptions, value string, layer client.Layer) client.Result[string] {
	t.Helper()
	r, err := c.LookupWith(t.Context(), key, nil, o)
	if err != nil || r.Value != value || r.Layer != layer {
		t.Errorf("%+v of %s: %q from %v, %v; want %q from %v", o, key, r.Value, r.Layer, err, value, layer)
	}
	return r
}

// TestLookupOfAnAbsence: it tells where it was learned, in each layer.
func TestLookupOfAnAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, NegativeTTL: 10 * time.Second, NoJitter: true, NoEarlyRefresh: true, Load: newSource(nil).load, L1: client.L1All}
		here, there := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
		for _, step := range []struct {
			c     *client.Cache[string]
			layer client.Layer
			age   time.Duration
		}{{here, client.LayerSource, 0}, {here, client.LayerL1, time.Second}, {there, client.LayerL2, 2 * time.Second}, {there, client.LayerL1, 3 * time.Second}} {
			r, err := step.c.Lookup(t.Context(), "none")
			if !errors.Is(err, client.ErrNotFound) || r.Layer != step.layer || r.Age != step.age || r.Node != "node-0" || r.Value != "" || r.Version != 0 {
				t.Errorf("%+v, %v; want ErrNotFound from %v at %v", r, err, step.layer, step.age)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(6 * time.Second) // ten in all
		if r, err := there.Lookup(t.Context(), "none"); !errors.Is(err, client.ErrNotFound) || r.Layer != client.LayerSource {
			t.Errorf("past NegativeTTL: %+v, %v", r, err)
		}
	})
}

// TestNegativeTTLIsAtMost what it says: jitter only shortens it, in any mode of loading, and it does spread.
func TestNegativeTTLIsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, NegativeTTL: 10 * time.Second, Jitter: 0.2, LoadMany: func(ctx context.Context, keys []string) (map[string]string, error) {
			return nil, errors.Join(client.SetTTL(ctx, keys[0], time.Minute)) // of no effect on an absence
		}, L1: client.L1Off}
		c := newCache(t, open(t, nodes.Config()), cfg)
		keys, _ := numbered(200)
		if _, err := c.GetMany(t.Context(), keys[:100]); err != nil {
			t.Error(err)
		}
		for _, k := range keys[100:] {
			if _, err := c.Get(t.Context(), k); !errors.Is(err, client.ErrNotFound) {
				t.Error(err)
			}
		}
		seen := make(map[time.Duration]bool)
		for _, k := range keys {
			ttl := nodes.Node(0).TTL("x:" + k + ":v0")
			if ttl > 10*time.Second || ttl < 8*time.Second {
				t.Errorf("an absence lives for %v, want 8s to 10s", ttl)
			}
			seen[ttl] = true
		}
		if len(seen) < 20 {
			t.Errorf("200 absences have only %d different TTLs", len(seen))
		}
		time.Sleep(10 * time.Second)
		before := c.Stats().Loads
		if m, err := c.GetMany(t.Context(), keys); err != nil || len(m) != 0 || c.Stats().Loads != before+1 {
			t.Errorf("past NegativeTTL: %v, %v, %d loads; want one for all", m, err, c.Stats().Loads-before)
		}
	})
}

// TestStaleInEveryLayer: an entry past its soft TTL is marked as such wherever it comes from.
func TestStaleInEveryLayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		src := newSource(map[string]string{"k": "1"})
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, SoftTTL: 10 * time.Second, NoJitter: true, NoEarlyRefresh: true, Load: src.load, L1: client.L1All})
		if r := looked(t, c, "k", client.GetOptions{}, "1", client.LayerSource); r.Stale {
			t.Error("just loaded, and stale")
		}
		time.Sleep(9 * time.Second)
		if r := looked(t, c, "k", client.GetOptions{}, "1", client.LayerL2); r.Stale {
			t.Error("stale before its soft TTL")
		}
		time.Sleep(time.Second)
		if r := looked(t, c, "k", client.GetOptions{}, "1", client.LayerL1); !r.Stale || r.Age != 10*time.Second {
			t.Errorf("in this process, at its soft TTL: %+v", r)
		}
		src.fail(errors.New("down")) // so that the entry stays
		time.Sleep(2 * time.Second)
		if r := looked(t, c, "k", client.GetOptions{}, "1", client.LayerL2); !r.Stale || r.Age != 12*time.Second {
			t.Errorf("on the node, past its soft TTL: %+v", r)
		}
	})
}

// TestBypassL1: this process's own copy is not read, and is replaced.
func TestBypassL1(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	src := newSource(map[string]string{"k": "1"})
	cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, NoEarlyRefresh: true, Load: src.load, L1: client.L1All, L1TTL: time.Hour}
	here, there := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
	want(t, here, "k", "1", client.LayerSource)
	src.set("k", "2")
	if err := there.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	want(t, here, "k", "1", client.LayerL1) // it may, for L1TTL
	looked(t, here, "k", client.GetOptions{BypassL1: true}, "2", client.LayerSource)
	want(t, here, "k", "2", client.LayerL1)
	looked(t, here, "k", client.GetOptions{BypassL1: true}, "2", client.LayerL2)
}

// TestNoFillTouchesNothing: neither the node, nor this process, nor a refresh; what the caches hold is read.
func TestNoFillTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		src := newSource(map[string]string{"k": "1", "l": "1"})
		cfg := client.CacheConfig[string]{Name: "x", TTL: time.Minute, SoftTTL: 10 * time.Second, NoJitter: true, NoEarlyRefresh: true, Load: src.load, L1: client.L1All}
		here, there := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
		noFill := client.GetOptions{NoFill: true}
		looked(t, here, "l", noFill, "1", client.LayerSource)
		if keys := nodes.Node(0).Keys(); len(keys) != 0 {
			t.Errorf("a read without storing left %q", keys)
		}
		want(t, there, "k", "1", client.LayerSource)
		looked(t, here, "k", noFill, "1", client.LayerL2)
		if s := here.Stats(); s.L1Entries != 0 || s.L1Open != 0 {
			t.Errorf("%d entries and %d tickets in this process", s.L1Entries, s.L1Open)
		}
		looked(t, there, "k", noFill, "1", client.LayerL1)
		time.Sleep(11 * time.Second)
		if r := looked(t, here, "k", noFill, "1", client.LayerL2); !r.Stale {
			t.Error("past its soft TTL, and not marked")
		}
		src.set("k", "2")
		time.Sleep(time.Second)
		looked(t, here, "k", client.GetOptions{NoFill: true, Refresh: true}, "2", client.LayerSource)
		if n := src.count("k"); n != 2 {
			t.Errorf("%d loads, want the first and the forced one: a refresh was started", n)
		}
		looked(t, here, "k", noFill, "1", client.LayerL2) // the forced load was not stored
	})
}

// TestNoFillLoadsByItself: who stores nothing shares no load with those who store, even one that has not begun: it would be lost to everybody.
func TestNoFillLoadsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(map[string]string{"k": "1", "other": "o"})
		slow := func(ctx context.Context, key string) (string, error) {
			time.Sleep(100 * time.Millisecond)
			return src.load(ctx, key)
		}
		cfg := clienttest.Start(t, 1).Config()
		cfg.MaxLoads = 1
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: slow, L1: client.L1Off, NoEarlyRefresh: true})
		var wg sync.WaitGroup
		wg.Go(func() { looked(t, c, "other", client.GetOptions{}, "o", client.LayerSource) })
		synctest.Wait() // it has the only place: the others wait for theirs
		for _, o := range []client.GetOptions{{NoFill: true}, {}, {NoFill: true}, {}} {
			wg.Go(func() { looked(t, c, "k", o, "1", client.LayerSource) })
			synctest.Wait()
		}
		wg.Wait()
		if n := src.count("k"); n != 2 {
			t.Errorf("%d loads, want one that is stored and one that is not", n)
		}
		want(t, c, "k", "1", client.LayerL2)
	})
}

// TestCopyEndsWithItsEntry: what this process holds it serves no longer than the entry on the node may be served, however long L1 may hold it.
func TestCopyEndsWithItsEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		src := newSource(map[string]string{"k": "1"})
		cfg := client.CacheConfig[string]{Name: "x", TTL: 10 * time.Second, SoftTTL: 10 * time.Second, NoJitter: true, NoEarlyRefresh: true, Load: src.load,
			L1: client.L1All, L1TTL: time.Hour, L1BlindTTL: time.Hour}
		here, there := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
		want(t, here, "k", "1", client.LayerSource)
		time.Sleep(9 * time.Second)
		want(t, there, "k", "1", client.LayerL2)
		time.Sleep(time.Second - time.Millisecond)
		want(t, here, "k", "1", client.LayerL1)
		want(t, there, "k", "1", client.LayerL1)
		time.Sleep(time.Millisecond)
		want(t, here, "k", "1", client.LayerSource)
		want(t, there, "k", "1", client.LayerL2)
	})
}

// TestRefreshIsForEverybody: a forced load replaces what all processes see, is not shared, takes the lease from who holds it, and leaves what is there if it fails.
func TestRefreshIsForEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		src := newSource(map[string]string{"k": "1"})
		slow := func(ctx context.Context, key string) (string, error) {
			time.Sleep(time.Second)
			return src.load(ctx, key)
		}
		cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, NoEarlyRefresh: true, Load: slow, L1: client.L1All}
		here, there := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
		refresh := client.GetOptions{Refresh: true}
		want(t, here, "k", "1", client.LayerSource)
		src.set("k", "2")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { looked(t, here, "k", refresh, "2", client.LayerSource) })
		}
		wg.Wait()
		if n := src.count("k"); n != 4 {
			t.Errorf("%d loads, want one for each forced read", n)
		}
		want(t, here, "k", "2", client.LayerL2) // the copy of the old one is gone
		want(t, there, "k", "2", client.LayerL2)

		if err := nodes.Node(0).Set("~l:x:k:v0", []byte("tsomebody")); err != nil {
			t.Fatal(err)
		}
		src.set("k", "3")
		start := time.Now()
		looked(t, here, "k", refresh, "3", client.LayerSource)
		if d := time.Since(start); d != time.Second {
			t.Errorf("a forced load with the lease held elsewhere took %v, want the load's 1s", d)
		}
		want(t, here, "k", "3", client.LayerL2)

		src.fail(errors.New("down"))
		if _, err := here.GetWith(t.Context(), "k", nil, refresh); err == nil {
			t.Error("a forced load that failed gave no error")
		}
		looked(t, here, "k", client.GetOptions{BypassL1: true}, "3", client.LayerL2)
		src.fail(nil)
		nodes.Node(0).Down()
		looked(t, here, "k", refresh, "3", client.LayerSource)
	})
}

// TestGetWithShares: callers that miss a key at once share one load, whosever loader it is; and a refresh that a call starts uses its loader.
func TestGetWithShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, SoftTTL: 10 * time.Second, NoJitter: true, NoEarlyRefresh: true, Load: echo, L1: client.L1Off})
		var calls atomic.Int32
		given := func(value string) func(context.Context, string) (string, error) {
			return func(context.Context, string) (string, error) {
				calls.Add(1)
				time.Sleep(time.Second)
				return value, nil
			}
		}
		var wg sync.WaitGroup
		for _, value := range []string{"first", "second", "third"} {
			wg.Go(func() {
				if v, err := c.GetWith(t.Context(), "k", given(value), client.GetOptions{}); err != nil || v != "first" {
					t.Errorf("%q, %v; want what the first caller's loader gave", v, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
		time.Sleep(10 * time.Second)
		if v, err := c.GetWith(t.Context(), "k", given("renewed"), client.GetOptions{}); err != nil || v != "first" {
			t.Errorf("past its soft TTL: %q, %v", v, err)
		}
		time.Sleep(2 * time.Second)
		want(t, c, "k", "renewed", client.LayerL2)
	})
}

// TestGetWithOnTruth: a loader that is given makes a missing key, for everybody.
func TestGetWithOnTruth(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	cfg := client.CacheConfig[string]{Name: "session", TTL: time.Hour, Truth: true, L1: client.L1Off}
	here, there := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
	if v, err := here.GetWith(t.Context(), "k", echo, client.GetOptions{}); err != nil || v != "value of k" {
		t.Errorf("%q, %v", v, err)
	}
	want(t, there, "k", "value of k", client.LayerL2)
	if _, err := there.Get(t.Context(), "l"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("without a loader: %v", err)
	}
}

// TestLoaderContext: it has the values of the caller's context and not its end, but the load timeout's; also in a refresh.
func TestLoaderContext(t *testing.T) {
	type name struct{}
	synctest.Test(t, func(t *testing.T) {
		var seen []any
		check := func(ctx context.Context) {
			seen = append(seen, ctx.Value(name{}))
			deadline, ok := ctx.Deadline()
			if left := time.Until(deadline); !ok || left != 7*time.Second {
				t.Errorf("the loader has %v left (%v), want LoadTimeout, 7s", left, ok)
			}
		}
		cfg := client.CacheConfig[string]{Name: "x", TTL: time.Minute, SoftTTL: 10 * time.Second, NoJitter: true, NoEarlyRefresh: true, LoadTimeout: 7 * time.Second, L1: client.L1Off,
			Load: func(ctx context.Context, key string) (string, error) { check(ctx); return echo(ctx, key) },
			LoadMany: func(ctx context.Context, keys []string) (map[string]string, error) {
				check(ctx)
				return all("v")(ctx, keys)
			}}
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), cfg)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), name{}, "caller"), time.Hour)
		defer cancel()
		_, err1 := c.Get(ctx, "k")
		_, err2 := c.GetMany(ctx, []string{"l", "m"})
		_, err3 := c.GetWith(ctx, "k", nil, client.GetOptions{Refresh: true})
		time.Sleep(10 * time.Second)
		_, err4 := c.Get(ctx, "k") // starts a refresh
		synctest.Wait()
		if err := errors.Join(err1, err2, err3, err4); err != nil || len(seen) != 4 {
			t.Errorf("%d loads, %v; want 4", len(seen), err)
		}
		for i, v := range seen {
			if v != "caller" {
				t.Errorf("load %d found %v in its context, want what its caller put there", i, v)
			}
		}
	})
}

// TestLoaderGoexit: a loader that ends its goroutine is an error of its callers, and the key can be loaded at once.
func TestLoaderGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: echo, NoErrorBackoff: true})
		exits := func(context.Context, string) (string, error) { runtime.Goexit(); return "", nil }
		start := time.Now()
		for _, o := range []client.GetOptions{{}, {NoFill: true}, {Refresh: true}} {
			if _, err := c.GetWith(t.Context(), "k", exits, o); !errors.Is(err, client.ErrGoexit) {
				t.Errorf("%+v: %v, want ErrGoexit", o, err)
			}
		}
		want(t, c, "k", "value of k", client.LayerSource)
		if d := time.Since(start); d > 0 {
			t.Errorf("it took %v: a lease was not given back", d)
		}
	})
}
