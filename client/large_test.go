// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// sized is a value of n bytes that tells which it is.
func sized(name string, n int) string { return strings.Repeat(name+".", n/(len(name)+1)+1)[:n] }

func largeConfig(edit func(*client.CacheConfig[string])) client.CacheConfig[string] {
	cfg := client.CacheConfig[string]{Name: "x", TTL: time.Minute, NoJitter: true, NoEarlyRefresh: true, L1: client.L1Off, LargeValueBytes: 1000}
	if edit != nil {
		edit(&cfg)
	}
	return cfg
}

// TestLargeValues: what is true of small values is true of large ones, one by one and in batches, and where they meet.
func TestLargeValues(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		for _, how := range []client.Compression{client.CompressNone, client.CompressS2} {
			rows := map[string]string{"small": "s", "limit": sized("limit", 1000), "above": sized("above", 1001), "big": fmt.Sprint(randomText(300_000)), "none": ""}
			src := newSource(rows)
			var calls [][]string
			conf := largeConfig(func(c *client.CacheConfig[string]) {
				c.Name, c.Load, c.LoadMany, c.Compression = fmt.Sprint("x", how), src.load, src.loadMany(&calls), how
			})
			one, other := newCache(t, open(t, cfg), conf), newCache(t, open(t, cfg), conf)
			for key, v := range rows {
				want(t, one, key, v, client.LayerSource)
				want(t, other, key, v, client.LayerL2)
			}
			keys := []string{"small", "limit", "above", "big", "none", "absent"}
			for _, c := range []*client.Cache[string]{one, other} {
				got, err := c.GetMany(t.Context(), keys)
				if err != nil || len(got) != len(rows) {
					t.Fatalf("GetMany: %d values, %v", len(got), err)
				}
				for key, v := range rows {
					if got[key] != v {
						t.Errorf("GetMany: %s is %d bytes, want %d", key, len(got[key]), len(v))
					}
				}
			}
			if len(calls) != 1 { // for "absent", by the first
				t.Errorf("loaded again: %v", calls)
			}
			if err := one.InvalidateMany(t.Context(), keys); err != nil {
				t.Fatal(err)
			}
			got, err := other.GetMany(t.Context(), keys) // a batch that fills
			if err != nil || len(got) != len(rows) || got["big"] != rows["big"] {
				t.Fatalf("GetMany: %d values, %v", len(got), err)
			}
			want(t, one, "big", rows["big"], client.LayerL2)
			if s := other.Stats(); s.FillErrors+s.NodeErrors+s.Foreign+s.BodiesGone != 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func randomText(n int) string {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return string(b)
}

// TestLargeValueOnTheNode: the entry is a stub, the body lives as long, nothing else is left, and an invalidation removes both.
func TestLargeValueOnTheNode(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	node := nodes.Node(0)
	src := newSource(map[string]string{"k": sized("a", 5000)})
	c := newCache(t, open(t, nodes.Config()), largeConfig(func(c *client.CacheConfig[string]) { c.Load = src.load }))
	want(t, c, "k", src.rows["k"], client.LayerSource)
	if keys := fmt.Sprint(node.Keys()); keys != "[x:k:v0 ~b:x:k:v0 ~g:x:v0]" {
		t.Errorf("keys %s", keys)
	}
	stub, _ := node.Get("x:k:v0")
	if len(stub) > 100 || node.TTL("~b:x:k:v0") < node.TTL("x:k:v0")-5*time.Millisecond || node.TTL("~b:x:k:v0") > time.Minute+time.Second {
		t.Errorf("a stub of %d bytes that lives %v, its body %v", len(stub), node.TTL("x:k:v0"), node.TTL("~b:x:k:v0"))
	}
	_, err := c.WriteThrough(t.Context(), "k", func(context.Context) (string, error) { return sized("b", 6000), nil })
	if err != nil {
		t.Fatal(err)
	}
	want(t, c, "k", sized("b", 6000), client.LayerL2)
	if err := c.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if keys := node.Keys(); len(keys) != 1 { // the cache's generation
		t.Errorf("keys %v after the invalidation", keys)
	}
}

// TestBodyGone: an entry whose body is evicted, cut, another's or another program's is a miss that replaces it.
func TestBodyGone(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	node := nodes.Node(0)
	src := newSource(map[string]string{"k": sized("a", 5000)})
	var calls [][]string
	c := newCache(t, open(t, nodes.Config()), largeConfig(func(c *client.CacheConfig[string]) { c.Load, c.LoadMany = src.load, src.loadMany(&calls) }))
	want(t, c, "k", src.rows["k"], client.LayerSource)
	gone := 0
	for name, spoil := range map[string]func(body []byte){
		"evicted":   func([]byte) { node.Delete("~b:x:k:v0") },
		"cut":       func(b []byte) { node.Set("~b:x:k:v0", b[:len(b)-1]) },
		"another's": func(b []byte) { b[3]++; node.Set("~b:x:k:v0", b) },
		"foreign":   func([]byte) { node.Set("~b:x:k:v0", []byte("hello")) },
	} {
		for _, read := range []func() (string, error){
			func() (string, error) { return c.Get(t.Context(), "k") },
			func() (string, error) { m, err := c.GetMany(t.Context(), []string{"k"}); return m["k"], err },
		} {
			body, _ := node.Get("~b:x:k:v0")
			spoil(body)
			gone++
			if v, err := read(); err != nil || v != src.rows["k"] {
				t.Fatalf("%s: %d bytes, %v", name, len(v), err)
			}
			want(t, c, "k", src.rows["k"], client.LayerL2)
		}
	}
	if s := c.Stats(); s.Loads != uint64(1+gone) || s.BodiesGone < uint64(gone) || s.NodeErrors != 0 {
		t.Errorf("%d bodies gone: %+v", gone, s)
	}
}

// TestLargeTruth: a cache that is itself the truth: Sets that cross leave one value, whole, and reads meanwhile see one or the other.
func TestLargeTruth(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		conf := largeConfig(func(c *client.CacheConfig[string]) { c.Truth, c.NoEarlyRefresh = true, false })
		one, other := newCache(t, open(t, cfg), conf), newCache(t, open(t, cfg), conf)
		if err := one.SetMany(t.Context(), map[string]string{"k": sized("0", 3000), "m": sized("m", 4000), "s": "s"}); err != nil {
			t.Fatal(err)
		}
		want(t, other, "m", sized("m", 4000), client.LayerL2)
		want(t, other, "s", "s", client.LayerL2)
		var wg sync.WaitGroup
		for w, c := range []*client.Cache[string]{one, other} {
			wg.Go(func() {
				for i := range 100 {
					if err := c.Set(t.Context(), "k", sized(fmt.Sprint(w, "-", i), 3000)); err != nil {
						t.Errorf("Set: %v", err)
					}
				}
			})
			wg.Go(func() {
				for i := range 200 {
					v, err := c.Get(t.Context(), "k")
					if i%2 == 0 {
						var m map[string]string
						m, err = c.GetMany(t.Context(), []string{"k"})
						v = m["k"]
					}
					// A reader whom writers have overtaken eight times on end gives up.
					if (err != nil && !errors.Is(err, client.ErrNotFound)) || (v != "" && (len(v) != 3000 || sized(strings.SplitN(v, ".", 2)[0], 3000) != v)) {
						t.Errorf("got %d bytes, %v", len(v), err)
					}
				}
			})
		}
		wg.Wait()
		if v, err := one.Get(t.Context(), "k"); err != nil || len(v) != 3000 {
			t.Errorf("after all Sets: %d bytes, %v", len(v), err)
		}
	})
}

// TestLargeFlight: a crowd that reads one large key over and over needs few transfers, and each caller's bytes are its own.
func TestLargeFlight(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: 5 * time.Second})
	c := newCache(t, cl, client.CacheConfig[[]byte]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
		Load: func(context.Context, string) ([]byte, error) { return []byte(sized("v", 1<<20)), nil }})
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do(t.Context(), "CONFIG", "RESETSTAT"); err != nil {
		t.Fatal(err)
	}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			<-start
			v, err := c.Get(t.Context(), "k")
			if err != nil || string(v) != sized("v", 1<<20) {
				t.Errorf("%d bytes, %v", len(v), err)
				return
			}
			clear(v)
		})
	}
	close(start)
	wg.Wait()
	n, _ := commandStats(t, server, "getrange")
	t.Logf("%d transfers for 64 readers", n)
	if n < 1 || n > 32 {
		t.Errorf("%d transfers for 64 readers of one key, want far fewer", n)
	}
}

// TestRB18_OversizedValues: a value beyond what is stored, or beyond what the server takes, is returned to all who ask, costs the small keys nothing,
// and leaves no memory behind.
func TestRB18_OversizedValues(t *testing.T) {
	for name, limit := range map[string]int{"stopped before it is sent": 0, "refused by the server": 4 << 20} {
		t.Run(name, func(t *testing.T) { oversized(t, limit) })
	}
}

func oversized(t *testing.T, limit int) {
	const big = 2 << 20
	server := redistest.Start(t, redistest.Config{Args: []string{"--proto-max-bulk-len", "1mb"}})
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: 5 * time.Second})
	var loads atomic.Int32
	release := make(chan struct{})
	value := sized("big", big)
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, NoEarlyRefresh: true, L1: client.L1All, L1MaxBytes: 1 << 20, MaxValueBytes: limit,
		Load: func(_ context.Context, key string) (string, error) {
			if key != "BIG" {
				return "value of " + key, nil
			}
			loads.Add(1)
			<-release
			return value, nil
		}})
	small := newCache(t, cl, client.CacheConfig[string]{Name: "s", TTL: time.Minute, Truth: true, L1: client.L1Off})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)

	stop := make(chan struct{})
	var others, wg sync.WaitGroup
	var operations atomic.Int32
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := fmt.Sprint("small", i%20)
			if err := small.Set(t.Context(), key, "v"); err != nil {
				t.Errorf("Set of a small key: %v", err)
			}
			if v, err := small.Get(t.Context(), key); err != nil || v != "v" {
				t.Errorf("Get of a small key: %q, %v", v, err)
			}
			operations.Add(1)
		}
	})
	get := func() {
		if v, err := c.Get(t.Context(), "BIG"); err != nil || v != value {
			t.Errorf("Get(BIG): %d bytes, %v", len(v), err)
		}
	}
	for range 100 {
		wg.Go(get)
	}
	for c.Stats().Waiting < 100 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	if n := loads.Load(); n > 2 { // one; and perhaps one for those who came when it had begun
		t.Errorf("%d loads for 100 concurrent callers", n)
	}
	for range 100 {
		get()
	}
	close(stop)
	others.Wait()

	s := c.Stats()
	skipped := s.Oversized
	if limit > 0 {
		skipped = s.FillErrors
	}
	if skipped == 0 || s.Fills != 0 || s.L1Bytes > 1<<20 || operations.Load() < 20 || small.Stats().NodeErrors != 0 {
		t.Errorf("%d small operations; %+v", operations.Load(), s)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 10<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

// TestLargeInPlaceCodec: a codec may decode in the bytes that it gets, also where callers share a transfer.
func TestLargeInPlaceCodec(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: 5 * time.Second})
	c := newCache(t, cl, largeConfig(func(c *client.CacheConfig[string]) {
		c.Codec = inPlace{}
		c.Load = func(context.Context, string) (string, error) { return sized("v", 200_000), nil }
	}))
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 5 {
				if v, err := c.Get(t.Context(), "k"); err != nil || v != sized("v", 200_000) {
					t.Errorf("%d bytes, %v", len(v), err)
				}
			}
		})
	}
	wg.Wait()
	if s := c.Stats(); s.Loads != 1 {
		t.Errorf("%d loads", s.Loads)
	}
}

// TestLargeValueOnANodeThatHangs: a body that does not come is a node error, and the value comes from the loader; in a cache that is itself the
// truth it is the caller's error.
func TestLargeValueOnANodeThatHangs(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: 100 * time.Millisecond})
	c := newCache(t, cl, largeConfig(func(c *client.CacheConfig[string]) {
		c.Load = func(context.Context, string) (string, error) { return sized("v", 5000), nil }
	}))
	truth := newCache(t, cl, largeConfig(func(c *client.CacheConfig[string]) { c.Name, c.Truth, c.NoEarlyRefresh = "t", true, false }))
	var node *client.NodeError
	server.Stop()
	if v, err := c.Get(t.Context(), "k"); err != nil || v != sized("v", 5000) {
		t.Errorf("%d bytes, %v", len(v), err)
	}
	if err := truth.Set(t.Context(), "k", sized("v", 5000)); !errors.As(err, &node) || node.Node != "a" || len(node.Keys) != 1 {
		t.Errorf("Set: %v, want a *NodeError", err)
	}
	server.Cont()
	if s := c.Stats(); s.NodeErrors == 0 || s.Fills != 0 {
		t.Errorf("%+v", s)
	}
}
