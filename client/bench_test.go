// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// realNodes is a configuration of real nodes.
func realNodes(b testing.TB, n int) client.Config {
	b.Helper()
	cfg := client.Config{OperationTimeout: time.Second}
	for i, s := range redistest.StartNodes(b, n) {
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: fmt.Sprintf("node-%d", i), Addr: s.Addr()})
	}
	return cfg
}

// warm reads a key until it is in L1.
func warm[V any](tb testing.TB, c *client.Cache[V], key string) {
	tb.Helper()
	for range 10 {
		if r, err := c.Lookup(tb.Context(), key); err != nil {
			tb.Fatal(err)
		} else if r.Layer == client.LayerL1 {
			return
		}
	}
	tb.Fatalf("%s does not get into L1", key)
}

// l1Config keeps everything in L1 for as long as a benchmark runs.
func l1Config[V any](load func(context.Context, string) (V, error)) client.CacheConfig[V] {
	return client.CacheConfig[V]{Name: "bench", TTL: time.Hour, L1: client.L1All, L1TTL: time.Hour, L1BlindTTL: time.Hour, Load: load}
}

func loadRow(_ context.Context, key string) (row, error)      { return row{1, key}, nil }
func loadBytes(_ context.Context, key string) ([]byte, error) { return make([]byte, 100), nil }

// TestL1HitAllocations: no allocation for typed and string values; []byte pays its one copy.
func TestL1HitAllocations(t *testing.T) {
	cl := open(t, clienttest.Start(t, 1).Config())
	typed := newCache(t, cl, l1Config(loadRow))
	texts := l1Config(echo)
	texts.Name = "texts"
	bytes := l1Config(loadBytes)
	bytes.Name = "bytes"
	s, y := newCache(t, cl, texts), newCache(t, cl, bytes)
	warm(t, typed, "k")
	warm(t, s, "k")
	warm(t, y, "k")
	ctx := t.Context()
	for name, tc := range map[string]struct {
		allowed float64
		get     func() error
	}{
		"typed":  {0, func() error { _, err := typed.Get(ctx, "k"); return err }},
		"string": {0, func() error { _, err := s.Get(ctx, "k"); return err }},
		"bytes":  {1, func() error { _, err := y.Get(ctx, "k"); return err }},
	} {
		n := testing.AllocsPerRun(1000, func() {
			if err := tc.get(); err != nil {
				t.Error(err)
			}
		})
		if n > tc.allowed {
			t.Errorf("%s: %v allocations an L1 hit, want at most %v", name, n, tc.allowed)
		}
	}
}

// TestL2HitAllocations: the key's names, the value, and the generation that is read beside it; a text is one more.
func TestL2HitAllocations(t *testing.T) {
	cfg := realNodes(t, 1)
	cl := open(t, cfg)
	bytes := newCache(t, cl, client.CacheConfig[[]byte]{Name: "bytes", TTL: time.Hour, L1: client.L1Off, NoEarlyRefresh: true, Load: loadBytes})
	texts := newCache(t, cl, client.CacheConfig[string]{Name: "texts", TTL: time.Hour, L1: client.L1Off, NoEarlyRefresh: true, Load: echo})
	ctx := t.Context()
	for name, tc := range map[string]struct {
		allowed float64
		get     func() error
	}{
		"bytes":  {3, func() error { _, err := bytes.Get(ctx, "k"); return err }},
		"string": {4, func() error { _, err := texts.Get(ctx, "k"); return err }},
	} {
		least := 1000.0
		// Heartbeats allocate too, and so do reads of a node that seems to be slow, as it may for seconds on a busy machine.
		for end := time.Now().Add(20 * time.Second); least > tc.allowed && time.Now().Before(end); {
			least = min(least, testing.AllocsPerRun(200, func() {
				if err := tc.get(); err != nil {
					t.Error(err)
				}
			}))
		}
		if least > tc.allowed {
			t.Errorf("%s: %v allocations an L2 hit, want at most %v", name, least, tc.allowed)
		}
	}
}

func BenchmarkL1Hit(b *testing.B) {
	for _, keys := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			nodes := clienttest.Start(b, 1)
			cl := open(b, nodes.Config())
			nodes.Node(0).Down() // nothing but L1 is wanted, and it takes loaded values
			c := newCache(b, cl, l1Config(loadRow))
			names := make([]string, keys)
			for i := range names {
				names[i] = strconv.Itoa(i)
			}
			for part := range slices.Chunk(names, 1000) {
				if _, err := c.GetMany(b.Context(), part); err != nil {
					b.Fatal(err)
				}
			}
			if n := c.Stats().L1Entries; n != keys {
				b.Fatalf("%d of %d keys are in L1", n, keys)
			}
			ctx := b.Context()
			b.ReportAllocs()
			b.ResetTimer()
			defer countCPU(b)()
			var next atomic.Uint64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(next.Add(7919)); pb.Next(); i++ {
					if _, err := c.Get(ctx, names[i%keys]); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkL1HitBytes(b *testing.B) {
	cl := open(b, clienttest.Start(b, 1).Config())
	c := newCache(b, cl, l1Config(loadBytes))
	warm(b, c, "k")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Get(ctx, "k"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkL2Hit reads 1,000 keys of one node, through a cache and with the bare driver over as many connections.
func BenchmarkL2Hit(b *testing.B) {
	cl := open(b, realNodes(b, 1))
	c := newCache(b, cl, client.CacheConfig[[]byte]{Name: "bench", TTL: time.Hour, L1: client.L1Off, NoEarlyRefresh: true, Load: loadBytes})
	keys, names := make([]string, 1000), make([]string, 1000)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
		_, names[i] = c.Where(keys[i])
	}
	if _, err := c.GetMany(b.Context(), keys); err != nil {
		b.Fatal(err)
	}
	driver, ctx := cl.Node(names[0]), b.Context()
	for _, goroutines := range []int{1, 64} {
		for name, get := range map[string]func(i int) error{
			"shelf":  func(i int) error { _, err := c.Get(ctx, keys[i]); return err },
			"driver": func(i int) error { return driver.Get(ctx, names[i]).Err() },
		} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", name, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				var left, next atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for range goroutines {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if err := get(int(next.Add(1)) % len(keys)); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkMiss is get, lease and fill around a loader that takes no time, each of a key of its own.
func BenchmarkMiss(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			cl := open(b, realNodes(b, 1))
			c := newCache(b, cl, client.CacheConfig[[]byte]{Name: "bench", TTL: time.Hour, L1: client.L1Off, Load: loadBytes})
			ctx := b.Context()
			b.ReportAllocs()
			defer countCPU(b)()
			var next atomic.Int64
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						if _, err := c.Get(ctx, strconv.FormatInt(n, 10)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkStampede is ten thousand callers of one key that nobody has, and a load of 5 ms: how long until all have their answer, beyond the load (the median, of which the machine moves
// less), and what each of them computes. A context that can end costs each of them more where they wait.
func BenchmarkStampede(b *testing.B) {
	background := func() (context.Context, context.CancelFunc) { return context.Background(), func() {} }
	b.Run("context=background", func(b *testing.B) { benchStampede(b, background) })
	b.Run("context=each its own", func(b *testing.B) {
		benchStampede(b, func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) })
	})
}

func benchStampede(b *testing.B, newContext func() (context.Context, context.CancelFunc)) {
	const callers, load = 10_000, 5 * time.Millisecond
	cl := open(b, realNodes(b, 1))
	var loads atomic.Int64
	c := newCache(b, cl, client.CacheConfig[[]byte]{Name: "bench", TTL: time.Hour, L1: client.L1Off, NoEarlyRefresh: true,
		Load: func(ctx context.Context, key string) ([]byte, error) {
			loads.Add(1)
			time.Sleep(load)
			return loadBytes(ctx, key)
		}})
	b.ReportAllocs()
	var beyond []time.Duration
	computed := int64(0)
	for n := 0; b.Loop(); n++ {
		key, start := strconv.Itoa(n), make(chan struct{})
		var wg sync.WaitGroup
		for range callers {
			ctx, cancel := newContext()
			wg.Go(func() {
				defer cancel()
				<-start
				if _, err := c.Get(ctx, key); err != nil {
					b.Error(err)
				}
			})
		}
		runtime.GC() // also gives the goroutines the time to get to the line
		before, began := cpuTime(), time.Now()
		close(start)
		wg.Wait()
		beyond, computed = append(beyond, time.Since(began)-load), computed+cpuTime()-before
	}
	slices.Sort(beyond)
	b.ReportMetric(float64(beyond[len(beyond)/2])/1e6, "ms-beyond")
	b.ReportMetric(float64(computed)/float64(len(beyond)*callers), "cpu-ns/caller")
	b.ReportMetric(float64(loads.Load())/float64(len(beyond)), "loads/op")
}

func BenchmarkGetMany(b *testing.B) {
	for _, nodes := range []int{1, 8} {
		b.Run(fmt.Sprintf("keys=100/nodes=%d", nodes), func(b *testing.B) {
			cl := open(b, realNodes(b, nodes))
			c := newCache(b, cl, client.CacheConfig[[]byte]{Name: "bench", TTL: time.Hour, L1: client.L1Off, Load: loadBytes})
			keys := make([]string, 100)
			for i := range keys {
				keys[i] = strconv.Itoa(i)
			}
			ctx := b.Context()
			if _, err := c.GetMany(ctx, keys); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if m, err := c.GetMany(ctx, keys); err != nil || len(m) != len(keys) {
					b.Fatal(len(m), err)
				}
			}
		})
	}
}

func BenchmarkInvalidate(b *testing.B) {
	cl := open(b, realNodes(b, 1))
	c := newCache(b, cl, client.CacheConfig[[]byte]{Name: "bench", TTL: time.Hour, Load: loadBytes})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Invalidate(ctx, "k"); err != nil {
			b.Fatal(err)
		}
	}
}
