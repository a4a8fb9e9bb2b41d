// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// Readers that join what is under way: late, nested, from other clients, at a node that fails meanwhile.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

func TestLateJoinerOfAFillThatFailed(t *testing.T) {
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprint("many=", many), func(t *testing.T) {
			server := redistest.Start(t, redistest.Config{})
			cfg := client.Config{Nodes: []ring.Node{{ID: "n", Addr: server.Addr()}}, OperationTimeout: 300 * time.Millisecond}
			var row atomic.Value
			row.Store("old")
			gate := make(chan struct{})
			var loads atomic.Int32
			load := func(context.Context, string) (string, error) {
				v := row.Load().(string)
				if loads.Add(1) == 1 {
					<-gate
				}
				return v, nil
			}
			cc := client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true, Load: load}
			if many {
				cc.LoadMany = func(ctx context.Context, ks []string) (map[string]string, error) {
					v, err := load(ctx, ks[0])
					return map[string]string{ks[0]: v}, err
				}
			}
			a, b := newCache(t, open(t, cfg), cc), newCache(t, open(t, cfg), cc)
			var wg sync.WaitGroup
			wg.Go(func() {
				if many {
					_, _ = a.GetMany(t.Context(), []string{"k"})
				} else {
					_, _ = a.Get(t.Context(), "k")
				}
			})
			for loads.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			row.Store("new")
			if err := b.Invalidate(t.Context(), "k"); err != nil { // another process's write, confirmed by the node
				t.Fatal(err)
			}
			wg.Go(func() {
				if r, err := a.Lookup(t.Context(), "k"); r.Value != "new" {
					t.Errorf("read after another process's Invalidate returned nil: %+v, %v", r, err)
				}
			})
			for a.Stats().Waiting < 2 {
				time.Sleep(time.Millisecond)
			}
			server.Stop() // only the fill meets it
			close(gate)
			wg.Wait()
			server.Cont()
		})
	}
}

// own load is slow; the other key is filled by the other process long before the batch looks.

func TestBatchLooksBeforeItLoadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		var loadsOfB atomic.Int32
		mk := func() *client.Cache[string] {
			return newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
				LoadMany: func(_ context.Context, ks []string) (map[string]string, error) {
					m := map[string]string{}
					for _, k := range ks {
						m[k] = "v"
						if k == "b" {
							loadsOfB.Add(1)
						}
					}
					if _, slow := m["slow"]; slow {
						time.Sleep(2900 * time.Millisecond)
					} else {
						time.Sleep(200 * time.Millisecond)
					}
					return m, nil
				}, WaitTimeout: 2 * time.Second})
		}
		p, q := mk(), mk()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = q.Get(t.Context(), "b") })
		time.Sleep(50 * time.Millisecond)
		m, err := p.GetMany(t.Context(), []string{"slow", "b"})
		wg.Wait()
		t.Log(m, err, p.Stats().L2Hits)
		if n := loadsOfB.Load(); n != 1 {
			t.Errorf("b was stored %v before the batch looked, and loaded %d times; want 1", 2700*time.Millisecond, n)
		}
	})
}

// Late joiners of a batch whose values are not stored load one after the other.

func TestLateBatchLoadsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoNegative: true,
			LoadMany: func(context.Context, []string) (map[string]string, error) {
				calls.Add(1)
				time.Sleep(100 * time.Millisecond)
				return nil, nil
			}})
		keys := make([]string, 200)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = c.GetMany(t.Context(), keys) })
		time.Sleep(50 * time.Millisecond)
		start := time.Now()
		_, err := c.GetMany(t.Context(), keys)
		if d := time.Since(start); d > time.Second || calls.Load() > 3 {
			t.Errorf("second GetMany: %v, %d LoadMany calls, %v; want about 0.15 s and 2", d, calls.Load(), err)
		}
		wg.Wait()
	})
}

// A goroutine that a loader left behind queues for a place in the flight of those who have one.

func TestLeftBehindGoroutineBlocksNoNestedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clienttest.Start(t, 1).Config()
		cfg.MaxLoads = 1
		cl := open(t, cfg)
		left := make(chan context.Context, 1)
		queued := make(chan struct{})
		var c *client.Cache[string]
		c = newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
			Load: func(ctx context.Context, k string) (string, error) {
				switch k {
				case "first":
					left <- ctx
				case "outer":
					<-queued
					return c.Get(ctx, "inner")
				}
				return "v", nil
			}})
		_, _ = c.Get(t.Context(), "first")
		prefetch := context.WithoutCancel(<-left)
		var wg sync.WaitGroup
		wg.Go(func() {
			if v, err := c.Get(t.Context(), "outer"); v != "v" || err != nil {
				t.Errorf("outer: %q, %v", v, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if v, err := c.Get(prefetch, "inner"); v != "v" || err != nil {
				t.Errorf("prefetch of inner: %q, %v", v, err)
			}
		})
		for cl.Stats().LoadsQueued == 0 {
			time.Sleep(time.Millisecond)
		}
		close(queued)
		wg.Wait()
	})
}

// the same with two clients

func TestTwoClientsNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		c1 := nodes.Config()
		c2 := nodes.Config()
		c2.MaxLoads = 1
		cl1, cl2 := open(t, c1), open(t, c2)
		queued := make(chan struct{})
		var inner *client.Cache[string]
		inner = newCache(t, cl2, client.CacheConfig[string]{Name: "in", TTL: time.Minute, L1: client.L1Off,
			Load: func(ctx context.Context, k string) (string, error) {
				if k == "outer" {
					<-queued
					return inner.Get(ctx, "k")
				}
				return "v", nil
			}})
		other := newCache(t, cl1, client.CacheConfig[string]{Name: "other", TTL: time.Minute, L1: client.L1Off,
			Load: func(ctx context.Context, k string) (string, error) { return inner.Get(ctx, k) }})
		var wg sync.WaitGroup
		wg.Go(func() {
			if v, err := inner.Get(t.Context(), "outer"); v != "v" || err != nil {
				t.Errorf("outer: %q, %v", v, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if v, err := other.Get(t.Context(), "k"); v != "v" || err != nil {
				t.Errorf("other: %q, %v", v, err)
			}
		})
		for cl2.Stats().LoadsQueued == 0 {
			time.Sleep(time.Millisecond)
		}
		close(queued)
		wg.Wait()
	})
}

// in-place decryption, as in aead.Open(data[:0], ...)

type inPlace struct{}

func (inPlace) ID() uint8 { return 201 }

func (inPlace) Append(d []byte, v string) ([]byte, error) {
	for _, b := range []byte(v) {
		d = append(d, b^0x55)
	}
	return d, nil
}

func (inPlace) Decode(b []byte) (string, error) {
	for i := range b {
		b[i] ^= 0x55
	}
	return string(b), nil
}

func TestInPlaceCodec(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	c := newCache(t, open(t, client.Config{Nodes: []ring.Node{{ID: "n", Addr: server.Addr()}}, OperationTimeout: 5 * time.Second}),
		client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true, Codec: inPlace{},
			Load: func(context.Context, string) (string, error) { return "hello", nil }})
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var wrong atomic.Int32
	for range 500 {
		wg.Go(func() {
			if v, err := c.Get(t.Context(), "k"); v != "hello" || err != nil {
				wrong.Add(1)
			}
		})
	}
	wg.Wait()
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d of 500 callers got a wrong value", n)
	}
}

var _ = errors.Is

// The owner hung for the leader's read only; it answered the invalidation, and the late joiner's read.

func TestLateJoinerAfterABlip(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	cfg := client.Config{Nodes: []ring.Node{{ID: "n", Addr: server.Addr()}}, OperationTimeout: 300 * time.Millisecond}
	var row atomic.Value
	row.Store("old")
	gate := make(chan struct{})
	var loads atomic.Int32
	cc := client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
		Load: func(context.Context, string) (string, error) {
			v := row.Load().(string)
			if loads.Add(1) == 1 {
				<-gate
			}
			return v, nil
		}}
	a, b := newCache(t, open(t, cfg), cc), newCache(t, open(t, cfg), cc)
	server.Stop()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = a.Get(t.Context(), "k") })
	for loads.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	server.Cont()
	row.Store("new")
	for b.Invalidate(t.Context(), "k") != nil {
		time.Sleep(10 * time.Millisecond)
	}
	before := a.Stats().NodeErrors
	wg.Go(func() {
		if r, err := a.Lookup(t.Context(), "k"); r.Value != "new" {
			t.Errorf("read after another process's Invalidate returned nil: %+v, %v; node errors of this read: %d", r, err, a.Stats().NodeErrors-before)
		}
	})
	for a.Stats().Waiting < 2 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	close(gate)
	wg.Wait()
}

// Nothing fails here at all.

func TestLateJoinerOfANoFillLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		var row atomic.Value
		row.Store("old")
		cfg := client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
			Load: func(context.Context, string) (string, error) {
				v := row.Load().(string)
				time.Sleep(time.Second)
				return v, nil
			}}
		a, b := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
		o := client.GetOptions{NoFill: true}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = a.GetWith(t.Context(), "k", nil, o) })
		time.Sleep(500 * time.Millisecond)
		row.Store("new")
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if r, err := a.LookupWith(t.Context(), "k", nil, o); r.Value != "new" || err != nil {
			t.Errorf("a read after the other process's Invalidate: %+v, %v; want the new row", r, err)
		}
		wg.Wait()
	})
}

func TestNestedNoFillJoinsNoQueuedFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clienttest.Start(t, 1).Config()
		cfg.MaxLoads = 1
		cl := open(t, cfg)
		queued := make(chan struct{})
		o := client.GetOptions{NoFill: true}
		var c *client.Cache[string]
		c = newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
			Load: func(ctx context.Context, k string) (string, error) {
				if k == "outer" {
					<-queued
					return c.GetWith(ctx, "inner", nil, o)
				}
				return "v", nil
			}})
		var wg sync.WaitGroup
		wg.Go(func() {
			if v, err := c.Get(t.Context(), "outer"); v != "v" || err != nil {
				t.Errorf("outer: %q, %v; want v", v, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if v, err := c.GetWith(t.Context(), "inner", nil, o); v != "v" || err != nil {
				t.Errorf("inner: %q, %v; want v", v, err)
			}
		})
		for cl.Stats().LoadsQueued == 0 {
			time.Sleep(time.Millisecond)
		}
		close(queued)
		wg.Wait()
	})
}

// The node hangs after the load began: how often does one caller wait for it?

func TestHangingNodeIsWaitedForOnceAfterALoad(t *testing.T) {
	for _, many := range []bool{false, true} {
		server := redistest.Start(t, redistest.Config{})
		const timeout = time.Second
		var loaded time.Time
		load := func() (string, error) { server.Stop(); loaded = time.Now(); return "v", nil }
		cc := client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
			Load: func(context.Context, string) (string, error) { return load() }}
		if many {
			cc.LoadMany = func(_ context.Context, ks []string) (map[string]string, error) {
				v, err := load()
				return map[string]string{ks[0]: v}, err
			}
		}
		c := newCache(t, open(t, client.Config{Nodes: []ring.Node{{ID: "n", Addr: server.Addr()}}, OperationTimeout: timeout}), cc)
		_, err := c.GetMany(t.Context(), []string{"k"})
		t.Logf("many=%v: answer %v after the load (timeout %v), %v", many, time.Since(loaded), timeout, err)
		if time.Since(loaded) > 2*timeout {
			t.Errorf("many=%v: the caller waited twice", many)
		}
		server.Cont()
	}
}

// gatedConn holds back the first reply after the gate was armed.
type gatedConn struct {
	net.Conn
	armed *atomic.Bool
	gate  chan struct{}
}

func (c *gatedConn) Read(b []byte) (int, error) {
	if c.armed.CompareAndSwap(true, false) {
		<-c.gate
	}
	return c.Conn.Read(b)
}

// TestJoinerAfterTheFill: the fill has been stored, and then another process's invalidation has returned, while the fill's reply is on its way. Who comes now, and
// misses, joins a run whose fill was stored, and must not get its value all the same.
func TestJoinerAfterTheFill(t *testing.T) {
	for _, many := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := clienttest.Start(t, 1)
			armed, gate := new(atomic.Bool), make(chan struct{})
			cfg := nodes.Config()
			dialer := cfg.Redis
			cfg.Redis = func(n ring.Node, o *redis.Options) {
				dialer(n, o)
				dial := o.Dialer
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					return &gatedConn{conn, armed, gate}, err
				}
			}
			var row atomic.Value
			row.Store("old")
			var loads atomic.Int32
			cc := client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
				LoadMany: func(_ context.Context, keys []string) (map[string]string, error) {
					if loads.Add(1) == 1 {
						armed.Store(true) // the next command is the fill
					}
					return map[string]string{keys[0]: row.Load().(string)}, nil
				}}
			a, b := newCache(t, open(t, cfg), cc), newCache(t, open(t, nodes.Config()), cc)
			var wg sync.WaitGroup
			wg.Go(func() {
				if many {
					_, _ = a.GetMany(context.Background(), []string{"k"})
				} else {
					_, _ = a.Get(context.Background(), "k")
				}
			})
			synctest.Wait() // the fill is stored, its reply held back
			if _, stored := nodes.Node(0).Get("x:k:v0"); !stored {
				t.Fatal("the fill has not arrived")
			}
			row.Store("new")
			if err := b.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				if v, err := a.Get(context.Background(), "k"); err != nil || v != "new" {
					t.Errorf("many=%v: after the invalidation: %q, %v; want new", many, v, err)
				}
			})
			synctest.Wait()
			close(gate)
			wg.Wait()
		})
	}
}

// TestJoinerDuringTheLoad: who comes while the load runs is proved by the fill, which is sent after it came: it gets the flight's value, with no
// further trip.
func TestJoinerDuringTheLoad(t *testing.T) {
	for _, many := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
				LoadMany: func(_ context.Context, keys []string) (map[string]string, error) {
					time.Sleep(time.Second)
					return map[string]string{keys[0]: "v"}, nil
				}})
			var wg sync.WaitGroup
			wg.Go(func() {
				if many {
					_, _ = c.GetMany(context.Background(), []string{"k"})
				} else {
					_, _ = c.Get(context.Background(), "k")
				}
			})
			time.Sleep(500 * time.Millisecond)
			if r, err := c.Lookup(t.Context(), "k"); err != nil || r.Value != "v" || r.Layer != client.LayerSource {
				t.Errorf("many=%v: %+v, %v; want the flight's value", many, r, err)
			}
			wg.Wait()
		})
	}
}

// TestJoinersTakeLittle: in a crowd that misses, a caller who joins takes next to no memory but what its read and its answer need, and there is no goroutine for it: the load has two, the run's and
// the loader's.
func TestJoinersTakeLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 2000
		var gate chan struct{}
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[[]byte]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
			Load: func(context.Context, string) ([]byte, error) { <-gate; return []byte("v"), nil }})
		crowd := func(key string) (goroutines int, bytes uint64) {
			gate = make(chan struct{})
			var wg sync.WaitGroup
			get := func() {
				if v, err := c.Get(context.Background(), key); err != nil || string(v) != "v" {
					t.Errorf("%q, %v", v, err)
				}
			}
			idle := runtime.NumGoroutine()
			wg.Go(get)
			synctest.Wait()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range callers {
				wg.Go(get)
			}
			synctest.Wait() // they have read, and wait for the load
			if n := c.Stats().Waiting; n != callers+1 {
				t.Errorf("%d callers wait, want %d", n, callers+1)
			}
			goroutines = runtime.NumGoroutine() - idle - callers - 1
			close(gate)
			wg.Wait()
			runtime.ReadMemStats(&after)
			return goroutines, (after.TotalAlloc - before.TotalAlloc) / callers
		}
		goroutines, bytes := crowd("first")                          // has the connections made, and the buffers
		for i := 0; i < 5 && (goroutines != 2 || bytes > 700); i++ { // what ends of earlier tests meanwhile counts too
			goroutines, bytes = crowd(strconv.Itoa(i))
		}
		if goroutines != 2 || bytes > 700 {
			t.Errorf("%d goroutines beside those of the callers, want 2, and %d bytes a caller, want at most 700", goroutines, bytes)
		}
	})
}
