// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// onBackends runs a test on embedded nodes and on real ones: what holds on one must hold on the other.
func onBackends(t *testing.T, nodes int, test func(t *testing.T, cfg client.Config)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		cfg := clienttest.Start(t, nodes).Config()
		cfg.OperationTimeout = 5 * time.Second // a busy machine is not what is tested
		test(t, cfg)
	})
	t.Run("redis", func(t *testing.T) {
		// The servers have just started: what is stored in the first moments may look older than that, by the error of the estimated clock, and would be loaded again.
		cfg := client.Config{OperationTimeout: 5 * time.Second, TrustSnapshots: true}
		for i, s := range redistest.StartNodes(t, nodes) {
			cfg.Nodes = append(cfg.Nodes, ring.Node{ID: fmt.Sprintf("node-%d", i), Addr: s.Addr()})
		}
		test(t, cfg)
	})
}

// source is a counting loader.
type source struct {
	mu    sync.Mutex
	rows  map[string]string
	loads map[string]int
	fails error
}

func newSource(rows map[string]string) *source {
	return &source{rows: rows, loads: make(map[string]int)}
}

func (s *source) load(_ context.Context, key string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads[key]++
	if s.fails != nil {
		return "", s.fails
	}
	v, ok := s.rows[key]
	if !ok {
		return "", fmt.Errorf("row %s: %w", key, client.ErrNotFound)
	}
	return v, nil
}

func (s *source) set(key, v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[key] = v
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

func (s *source) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads[key]
}

// want is one read and what it must give.
func want[V comparable](t *testing.T, c *client.Cache[V], key string, v V, layer client.Layer) {
	t.Helper()
	r, err := c.Lookup(t.Context(), key)
	if err != nil || r.Value != v || r.Layer != layer {
		t.Errorf("Lookup(%q) = %v from %v, %v; want %v from %v", key, r.Value, r.Layer, err, v, layer)
	}
}

func TestGetGoesThroughTheLayers(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		cfg.NoPush = true // the first read of a key may go to L1
		cl := open(t, cfg)
		src := newSource(map[string]string{"a": "1", "empty": ""})
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All})
		other := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All})
		for _, key := range []string{"a", "empty"} {
			want(t, c, key, src.rows[key], client.LayerSource)
			want(t, c, key, src.rows[key], client.LayerL1)
			want(t, other, key, src.rows[key], client.LayerL2)
			want(t, other, key, src.rows[key], client.LayerL1)
		}
		if n := src.count("a"); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
		r, err := c.Lookup(t.Context(), "a")
		if err != nil || r.Node != ownerOf(c, "a") || r.Age < 0 || r.Age > time.Minute || r.Stale {
			t.Errorf("provenance %+v, %v", r, err)
		}
	})
}

func ownerOf[V any](c *client.Cache[V], key string) string {
	id, _ := c.Where(key)
	return id
}

func TestAbsenceIsRemembered(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		src := newSource(map[string]string{})
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All})
		for range 5 {
			if _, err := c.Get(t.Context(), "none"); !errors.Is(err, client.ErrNotFound) {
				t.Errorf("got %v, want ErrNotFound", err)
			}
		}
		if n := src.count("none"); n != 1 {
			t.Errorf("%d loads of an absent row, want 1", n)
		}
		src.set("none", "now")
		if err := c.Invalidate(t.Context(), "none"); err != nil {
			t.Fatal(err)
		}
		want(t, c, "none", "now", client.LayerSource)
	})
}

func TestNoNegativeAsksEveryTime(t *testing.T) {
	src := newSource(map[string]string{})
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, NoNegative: true})
	for range 3 {
		if _, err := c.Get(t.Context(), "none"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	}
	if n := src.count("none"); n != 3 {
		t.Errorf("%d loads, want 3", n)
	}
}

// TestLoaderErrorsAreNotRemembered: an error is the caller's, and without a back-off the next read asks again; a good entry is not touched by it.
func TestLoaderErrorsAreNotRemembered(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		src := newSource(map[string]string{"a": "1"})
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1Off, NoErrorBackoff: true})
		down := errors.New("database down")
		src.fail(down)
		if _, err := c.Get(t.Context(), "a"); !errors.Is(err, down) {
			t.Errorf("got %v, want the loader's error", err)
		}
		src.fail(nil)
		want(t, c, "a", "1", client.LayerSource)
		src.fail(down)
		want(t, c, "a", "1", client.LayerL2)
		if _, err := c.GetWith(t.Context(), "a", nil, client.GetOptions{Refresh: true}); !errors.Is(err, down) {
			t.Errorf("forced: got %v, want the loader's error", err)
		}
		want(t, c, "a", "1", client.LayerL2)
	})
}

func TestGetWith(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		cfg.NoPush = true // the first read of a key may go to L1
		src := newSource(map[string]string{"a": "1"})
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All})
		ctx := t.Context()
		given := func(context.Context, string) (string, error) { return "given", nil }

		v, err := c.GetWith(ctx, "own", given, client.GetOptions{})
		if err != nil || v != "given" {
			t.Errorf("own loader: %q, %v", v, err)
		}
		want(t, c, "own", "given", client.LayerL1)

		r, err := c.LookupWith(ctx, "a", nil, client.GetOptions{NoFill: true})
		if err != nil || r.Value != "1" || r.Layer != client.LayerSource {
			t.Errorf("NoFill: %+v, %v", r, err)
		}
		want(t, c, "a", "1", client.LayerSource) // nothing had been stored
		want(t, c, "a", "1", client.LayerL1)

		r, err = c.LookupWith(ctx, "a", nil, client.GetOptions{BypassL1: true})
		if err != nil || r.Layer != client.LayerL2 {
			t.Errorf("BypassL1: %+v, %v", r, err)
		}

		src.set("a", "2")
		r, err = c.LookupWith(ctx, "a", nil, client.GetOptions{Refresh: true})
		if err != nil || r.Value != "2" || r.Layer != client.LayerSource {
			t.Errorf("Refresh: %+v, %v", r, err)
		}
		want(t, c, "a", "2", client.LayerL2)
	})
}

// TestRecursion: a loader may read other keys through the cache, but not its own: it would wait for itself.
func TestRecursion(t *testing.T) {
	cfg := clienttest.Start(t, 1).Config()
	cfg.MaxLoads = 1 // a loader that reads through the cache must not need a second place
	cl := open(t, cfg)
	var c *client.Cache[string]
	load := func(ctx context.Context, key string) (string, error) {
		if other, found := strings.CutPrefix(key, "via "); found {
			return c.Get(ctx, other)
		}
		if other, found := strings.CutPrefix(key, "many "); found {
			m, err := c.GetMany(ctx, []string{other, "plain"})
			return m[other], err
		}
		return echo(ctx, key)
	}
	c = newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: load})
	want(t, c, "via b", "value of b", client.LayerSource)
	want(t, c, "many b", "value of b", client.LayerSource)

	self := func(ctx context.Context, key string) (string, error) { return c.Get(ctx, key) }
	for name, o := range map[string]client.GetOptions{"miss": {}, "forced": {Refresh: true}, "no fill": {NoFill: true}} {
		if _, err := c.GetWith(t.Context(), "self", self, o); !errors.Is(err, client.ErrRecursiveLoad) || !strings.Contains(err.Error(), `"self"`) {
			t.Errorf("%s: got %v, want ErrRecursiveLoad that names the key", name, err)
		}
	}
	many := func(ctx context.Context, key string) (string, error) {
		_, err := c.GetMany(ctx, []string{key, "plain"})
		return "", err
	}
	if _, err := c.GetWith(t.Context(), "self", many, client.GetOptions{}); !errors.Is(err, client.ErrRecursiveLoad) {
		t.Errorf("through GetMany: got %v, want ErrRecursiveLoad", err)
	}
}

// TestLoaderPanic: a panic is an error of its callers that carries the stack; the next read tries again, at once where there is no back-off.
func TestLoaderPanic(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		var broken atomic.Bool
		broken.Store(true)
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, NoErrorBackoff: true, Load: func(ctx context.Context, key string) (string, error) {
			if broken.Load() {
				panic("broken loader")
			}
			return echo(ctx, key)
		}})
		_, err := c.Get(t.Context(), "a")
		var p *client.PanicError
		if !errors.As(err, &p) || !strings.Contains(fmt.Sprintf("%v %s", p.Value, p.Stack), "broken loader") || !bytes.Contains(p.Stack, []byte("get_test.go")) {
			t.Errorf("got %v, want a *PanicError with the loader's stack", err)
		}
		broken.Store(false)
		start := time.Now()
		want(t, c, "a", "value of a", client.LayerSource)
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("the next read took %v: the lease was not given back", d)
		}
		want(t, c, "a", "value of a", client.LayerL2)
	})
}

// TestForeignBytes: bytes that some other program left under a key, or that another codec wrote, are one reload, counted.
func TestForeignBytes(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	cl := open(t, nodes.Config())
	src := newSource(map[string]string{"a": "1"})
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1Off})
	for i, foreign := range []string{"", "hello", strings.Repeat("\xf5S\x01", 30)} {
		if err := nodes.Node(0).Set("x:a:v0", []byte(foreign)); err != nil {
			t.Fatal(err)
		}
		want(t, c, "a", "1", client.LayerSource)
		want(t, c, "a", "1", client.LayerL2)
		if n := src.count("a"); n != i+1 {
			t.Errorf("%q: %d loads, want %d", foreign, n, i+1)
		}
	}
	if s := c.Stats(); s.Foreign < 3 {
		t.Errorf("Foreign is %d, want at least 3", s.Foreign)
	}
	other := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1Off, Codec: upper{id: 200}})
	want(t, other, "a", "1", client.LayerSource)
	want(t, other, "a", "1", client.LayerL2)
	want(t, c, "a", "1", client.LayerSource) // and back: each reader reloads what it cannot read
}

// TestOversized: a value above MaxValueBytes is returned to all who wait for it, not stored, and counted.
func TestOversized(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		big := strings.Repeat("x", 1001)
		src := newSource(map[string]string{"big": big, "fits": big[:1000]})
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, MaxValueBytes: 1000, L1: client.L1Off})
		want(t, c, "big", big, client.LayerSource)
		want(t, c, "big", big, client.LayerSource)
		want(t, c, "fits", big[:1000], client.LayerSource)
		want(t, c, "fits", big[:1000], client.LayerL2)
		if s := c.Stats(); s.Oversized != 2 {
			t.Errorf("Oversized is %d, want 2", s.Oversized)
		}
	})
}

// TestInvalidKeys: the same rule in every call, before any I/O.
func TestInvalidKeys(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	cl := open(t, nodes.Config())
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
	truth := newCache(t, cl, client.CacheConfig[string]{Name: "t", TTL: time.Minute, Truth: true})
	ctx := t.Context()
	long := strings.Repeat("k", client.MaxKeyBytes)
	never := func(context.Context) error { t.Error("fn was run"); return nil }
	calls := map[string]func(key string) error{
		"Get":               func(k string) error { _, err := c.Get(ctx, k); return err },
		"Lookup":            func(k string) error { _, err := c.Lookup(ctx, k); return err },
		"GetWith":           func(k string) error { _, err := c.GetWith(ctx, k, echo, client.GetOptions{}); return err },
		"GetMany":           func(k string) error { _, err := c.GetMany(ctx, []string{"good", k}); return err },
		"Invalidate":        func(k string) error { return c.Invalidate(ctx, k) },
		"InvalidateVersion": func(k string) error { return c.InvalidateVersion(ctx, k, 1) },
		"InvalidateMany":    func(k string) error { return c.InvalidateMany(ctx, []string{"good", k}) },
		"Write":             func(k string) error { return c.Write(ctx, k, never) },
		"WriteThrough": func(k string) error {
			_, err := c.WriteThrough(ctx, k, func(ctx context.Context) (string, error) { return "", never(ctx) })
			return err
		},
		"Set":     func(k string) error { return truth.Set(ctx, k, "v") },
		"SetWith": func(k string) error { return truth.SetWith(ctx, k, "v", client.SetOptions{}) },
		"SetMany": func(k string) error { return truth.SetMany(ctx, map[string]string{"good": "v", k: "v"}) },
	}
	for name, call := range calls {
		if err := call(""); !errors.Is(err, client.ErrInvalidKey) {
			t.Errorf("%s of the empty key: %v, want ErrInvalidKey", name, err)
		}
		if err := call(long + "k"); !errors.Is(err, client.ErrInvalidKey) || !strings.Contains(err.Error(), "65536") {
			t.Errorf("%s of a key of 64 KiB + 1: %v, want ErrInvalidKey with the limit", name, err)
		}
	}
	if keys := nodes.Node(0).Keys(); len(keys) != 0 {
		t.Errorf("invalid keys left %d keys on the node", len(keys))
	}
	if v, err := c.Get(ctx, long); err != nil || v != "value of "+long {
		t.Errorf("a key of exactly 64 KiB: %v", err)
	}
}

// TestPerValueTTL: a loader gives single values their own time to live.
func TestPerValueTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cl := open(t, nodes.Config())
		load := func(ctx context.Context, key string) (string, error) {
			switch key {
			case "short":
				if err := client.SetTTL(ctx, key, time.Second); err != nil {
					t.Error(err)
				}
			case "bad":
				for _, ttl := range []time.Duration{0, -1, 999 * time.Microsecond, client.MaxTTL + 1} {
					if err := client.SetTTL(ctx, key, ttl); !errors.Is(err, client.ErrInvalidTTL) {
						t.Errorf("SetTTL(%v) = %v, want ErrInvalidTTL", ttl, err)
					}
				}
			}
			return echo(ctx, key)
		}
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, NoJitter: true, Load: load, L1: client.L1All, NoEarlyRefresh: true})
		for _, key := range []string{"short", "long", "bad"} {
			want(t, c, key, "value of "+key, client.LayerSource)
		}
		for key, ttl := range map[string]time.Duration{"short": time.Second, "long": time.Minute, "bad": time.Minute} {
			if got := nodes.Node(0).TTL("x:" + key + ":v0"); got != ttl {
				t.Errorf("%s has a TTL of %v on the node, want %v", key, got, ttl)
			}
		}
		want(t, c, "short", "value of short", client.LayerL1)
		time.Sleep(time.Second)
		want(t, c, "short", "value of short", client.LayerSource)
		if err := client.SetTTL(t.Context(), "k", time.Second); err == nil {
			t.Error("SetTTL outside a loader was taken")
		}
	})
}

// TestSoftExpiry: past its soft TTL an entry is served at once, marked, and refreshed once behind its readers' backs.
func TestSoftExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cl := open(t, nodes.Config())
		src := newSource(map[string]string{"a": "1"})
		slow := func(ctx context.Context, key string) (string, error) {
			time.Sleep(100 * time.Millisecond)
			return src.load(ctx, key)
		}
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: 10 * time.Second, SoftTTL: 8 * time.Second, NoJitter: true, NoEarlyRefresh: true, Load: slow, L1: client.L1Off})
		want(t, c, "a", "1", client.LayerSource)
		src.set("a", "2")
		time.Sleep(8 * time.Second)
		start := time.Now()
		for range 10 {
			r, err := c.Lookup(t.Context(), "a")
			if err != nil || r.Value != "1" || !r.Stale || r.Layer != client.LayerL2 {
				t.Errorf("past the soft TTL: %+v, %v", r, err)
			}
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("the readers waited %v", d)
		}
		time.Sleep(200 * time.Millisecond)
		r, err := c.Lookup(t.Context(), "a")
		if err != nil || r.Value != "2" || r.Stale || r.Layer != client.LayerL2 {
			t.Errorf("after the refresh: %+v, %v", r, err)
		}
		if n := src.count("a"); n != 2 {
			t.Errorf("%d loads, want 2", n)
		}
		if s := c.Stats(); s.Refreshes != 1 {
			t.Errorf("Refreshes is %d, want 1", s.Refreshes)
		}
	})
}

// TestRefreshThatFails: the loader's errors do not reach the readers while an entry is there, and the key is tried once a step of the back-off.
func TestRefreshThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cl := open(t, nodes.Config())
		src := newSource(map[string]string{"a": "1"})
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, SoftTTL: 10 * time.Second, NoJitter: true, NoEarlyRefresh: true, Load: src.load, L1: client.L1Off})
		want(t, c, "a", "1", client.LayerSource)
		src.fail(errors.New("down"))
		time.Sleep(10 * time.Second)
		for range 500 { // five seconds
			want(t, c, "a", "1", client.LayerL2)
			time.Sleep(10 * time.Millisecond)
		}
		if n := src.count("a") - 1; n < 3 || n > 4 {
			t.Errorf("%d tries in 5 s, want 3 or 4", n)
		}
		src.fail(nil)
		src.set("a", "2")
		time.Sleep(8 * time.Second)
		want(t, c, "a", "1", client.LayerL2) // this read starts the refresh
		time.Sleep(10 * time.Millisecond)
		want(t, c, "a", "2", client.LayerL2)
	})
}

// TestHardExpiry: an entry is gone at its TTL, counted from the start of its load, wherever it is kept.
func TestHardExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := open(t, clienttest.Start(t, 1).Config())
		src := newSource(map[string]string{"a": "1"})
		slow := func(ctx context.Context, key string) (string, error) {
			v, err := src.load(ctx, key) // the row is read now ...
			time.Sleep(2 * time.Second)  // ... and comes later
			return v, err
		}
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: 3 * time.Second, SoftTTL: 3 * time.Second, NoJitter: true, NoEarlyRefresh: true, Load: slow, L1: client.L1All, L1TTL: time.Hour, L1BlindTTL: time.Hour})
		start := time.Now()
		want(t, c, "a", "1", client.LayerSource)
		src.set("a", "2")
		time.Sleep(time.Until(start.Add(3*time.Second - time.Millisecond)))
		want(t, c, "a", "1", client.LayerL1)
		time.Sleep(time.Millisecond)
		want(t, c, "a", "2", client.LayerSource)
	})
}

// TestHotKeysGoToL1: with the default mode a key is kept in process when it is read often enough, and only then.
func TestHotKeysGoToL1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := open(t, clienttest.Start(t, 1).Config())
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo, NoEarlyRefresh: true})
		for range 50 { // 5 reads a second: never hot
			if _, err := c.Get(t.Context(), "cold"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		for range 1000 { // 200 reads a second for 5 s: hot
			if _, err := c.Get(t.Context(), "hot"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		want(t, c, "cold", "value of cold", client.LayerL2)
		s := c.Stats()
		if s.L1Hits < 600 {
			t.Errorf("%d L1 hits of 1,000 reads of a hot key", s.L1Hits)
		}
		if s.L1Entries != 1 {
			t.Errorf("%d entries in L1, want the hot one alone", s.L1Entries)
		}
	})
}

// TestL1LivesL1BlindTTL: where its node cannot push, a process serves its own copy for L1BlindTTL and no longer.
func TestL1LivesL1BlindTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		src := newSource(map[string]string{"a": "1"})
		cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: src.load, L1: client.L1All, NoEarlyRefresh: true}
		here, there := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
		want(t, here, "a", "1", client.LayerSource)
		src.set("a", "2")
		if err := there.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(client.DefaultL1BlindTTL - time.Millisecond)
		want(t, here, "a", "1", client.LayerL1)
		time.Sleep(time.Millisecond)
		want(t, here, "a", "2", client.LayerSource)
	})
}
