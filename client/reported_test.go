// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// Failures that users of other cache libraries have reported, with the outcome that is right here.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// TestRB01_CancellationIsTheCallersOwn: the first caller of a shared load gives up, or a waiter does; everybody else gets the value, from one load,
// and it is stored.
func TestRB01_CancellationIsTheCallersOwn(t *testing.T) {
	for name, leader := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var loads atomic.Int32
				c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
					Load: func(ctx context.Context, _ string) (string, error) {
						loads.Add(1)
						select {
						case <-time.After(300 * time.Millisecond):
							return "v", nil
						case <-ctx.Done():
							return "", ctx.Err()
						}
					}})
				start := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() {
					ctx, cancel := leader(t.Context())
					defer cancel()
					_, err := c.Get(ctx, "k")
					if !errors.Is(err, ctx.Err()) || time.Since(start) > 70*time.Millisecond {
						t.Errorf("the first caller: %v after %v, want its own %v within 70ms", err, time.Since(start), ctx.Err())
					}
				})
				time.Sleep(20 * time.Millisecond)
				for i := range 50 {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						defer cancel()
						if i == 7 {
							time.AfterFunc(40*time.Millisecond, cancel) // at 60 ms
						}
						v, err := c.Get(ctx, "k")
						switch {
						case i == 7 && (!errors.Is(err, context.Canceled) || time.Since(start) > 80*time.Millisecond):
							t.Errorf("the waiter that left: %v after %v", err, time.Since(start))
						case i != 7 && (err != nil || v != "v"):
							t.Errorf("waiter %d: %q, %v", i, v, err)
						}
					})
				}
				wg.Wait()
				if n := loads.Load(); n != 1 {
					t.Errorf("%d loads, want 1", n)
				}
				want(t, c, "k", "v", client.LayerL2)
			})
		})
	}
}

// TestRB08_TTLMeansWhatItSays: zero, negative, tiny and enormous times to live follow one rule, in the configuration, for one Set, and for one
// loaded value: 1 ms to MaxTTL, all else is an error without a side effect. Nothing is ever stored without an expiry.
func TestRB08_TTLMeansWhatItSays(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	cl := open(t, nodes.Config())
	truth := newCache(t, cl, client.CacheConfig[string]{Name: "t", TTL: time.Hour, NoJitter: true, Truth: true, L1: client.L1All})
	for i, tc := range []struct {
		ttl  time.Duration
		good bool
	}{
		{0, false}, {-1, false}, {-time.Second, false}, {1, false}, {999 * time.Microsecond, false}, {math.MaxInt64, false}, {math.MinInt64, false},
		{time.Millisecond, true}, {time.Second, true}, {client.MaxTTL, true}, {client.MaxTTL + 1, false},
	} {
		cfg := client.CacheConfig[string]{Name: fmt.Sprint("c", i), TTL: tc.ttl, NoJitter: true, Load: echo}
		_, err := client.NewCache(cl, cfg)
		if (err == nil) != tc.good {
			t.Errorf("CacheConfig.TTL %v: %v", tc.ttl, err)
		}
		if tc.ttl == 0 {
			continue // in SetOptions zero is the cache's own
		}
		key := fmt.Sprint("k", i)
		err = truth.SetWith(t.Context(), key, "v", client.SetOptions{TTL: tc.ttl})
		if tc.good != (err == nil) || (err != nil && !errors.Is(err, client.ErrInvalidTTL)) {
			t.Errorf("SetOptions.TTL %v: %v", tc.ttl, err)
		}
		_, stored := nodes.Node(0).Get("t:" + key + ":v0")
		if !tc.good && stored {
			t.Errorf("TTL %v was refused, and stored all the same", tc.ttl)
		}
		if _, err := truth.Get(t.Context(), key); !tc.good && !errors.Is(err, client.ErrNotFound) {
			t.Errorf("TTL %v was refused, and is served all the same: %v", tc.ttl, err)
		}
		if tc.good && tc.ttl >= time.Second {
			if left := nodes.Node(0).TTL("t:" + key + ":v0"); left > tc.ttl || left < tc.ttl-time.Second {
				t.Errorf("TTL %v is %v on the node", tc.ttl, left)
			}
		}
	}
	if err := truth.Set(t.Context(), "default", "v"); err != nil {
		t.Fatal(err)
	}
	loaded := newCache(t, cl, client.CacheConfig[string]{Name: "l", TTL: time.Hour, NoJitter: true, L1: client.L1All, Load: func(ctx context.Context, key string) (string, error) {
		ttl, err := time.ParseDuration(key)
		if err != nil {
			return "", err
		}
		good := ttl >= time.Millisecond && ttl <= client.MaxTTL
		if err := client.SetTTL(ctx, key, ttl); (err == nil) != good || (err != nil && !errors.Is(err, client.ErrInvalidTTL)) {
			t.Errorf("SetTTL(%v): %v", ttl, err)
		}
		return echo(ctx, key)
	}})
	for _, ttl := range []time.Duration{0, -1, -time.Second, 1, 999 * time.Microsecond, math.MaxInt64, time.Second, client.MaxTTL} {
		key, applied := ttl.String(), time.Hour // a TTL that is refused changes nothing
		if ttl >= time.Millisecond && ttl <= client.MaxTTL {
			applied = ttl
		}
		want(t, loaded, key, "value of "+key, client.LayerSource)
		if left := nodes.Node(0).TTL("l:" + key + ":v0"); left > applied || left < applied-time.Second || left <= 0 {
			t.Errorf("a loaded value with SetTTL(%v) lives %v on the node, want %v", ttl, left, applied)
		}
	}
	for _, key := range nodes.Node(0).Keys() {
		if nodes.Node(0).TTL(key) <= 0 && !strings.HasPrefix(key, "~g:") { // a cache's generation stays
			t.Errorf("%q has no expiry", key)
		}
	}
}

// TestRB10_JitterOnTheWire: whatever TTL and jitter, what is sent to a node is at least 1 ms and within the promised range, and it does spread.
func TestRB10_JitterOnTheWire(t *testing.T) {
	synctest.Test(t, jitterOnTheWire) // no time passes between the write and the look
}

func jitterOnTheWire(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	cl := open(t, nodes.Config())
	for i, ttl := range []time.Duration{time.Millisecond, 9 * time.Millisecond, time.Second, 24 * time.Hour} {
		for j, jitter := range []float64{0, 0.01, 0.1, 1} {
			truth := newCache(t, cl, client.CacheConfig[string]{Name: fmt.Sprintf("t%d-%d", i, j), TTL: ttl, Jitter: jitter, NoJitter: jitter == 0, Truth: true, L1: client.L1Off})
			least, most := client.MaxTTL, time.Duration(0)
			for k := range 100 {
				key := fmt.Sprint("k", k)
				if err := truth.Set(t.Context(), key, "v"); err != nil { // PX 0 or less would be an error of the server
					t.Fatalf("TTL %v, jitter %v: %v", ttl, jitter, err)
				}
				left := nodes.Node(0).TTL(fmt.Sprintf("t%d-%d:%s:v0", i, j, key))
				if left > ttl || left < max(time.Millisecond, time.Duration(float64(ttl)*(1-jitter))-time.Millisecond) {
					t.Errorf("TTL %v, jitter %v: %v on the node", ttl, jitter, left)
				}
				least, most = min(least, left), max(most, left)
			}
			if jitter == 0 && (least != ttl || most != ttl) {
				t.Errorf("TTL %v without jitter: between %v and %v", ttl, least, most)
			}
			if ttl >= time.Second && jitter >= 0.1 && most-least < time.Duration(float64(ttl)*jitter/2) {
				t.Errorf("TTL %v, jitter %v: all between %v and %v", ttl, jitter, least, most)
			}
		}
	}
}

// TestRB14_CachedBytesBelongToNobody: what a caller or the loader does to its slice is seen by nobody else, on any path.
func TestRB14_CachedBytesBelongToNobody(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	cfg := client.CacheConfig[[]byte]{Name: "x", TTL: time.Minute, L1: client.L1All}
	own := []byte("abc")
	both, stuck := make(chan struct{}), make(chan struct{})
	cfg.Load = func(context.Context, string) ([]byte, error) { <-both; return own, nil }
	here, there := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
	ctx := t.Context()
	scribble := func(b []byte) {
		if string(b) != "abc" {
			t.Errorf("got %q, want abc", b)
		}
		for i := range b {
			b[i] = 'X'
		}
		_ = append(b[:0], "YYY"...)
	}
	var wg sync.WaitGroup
	time.AfterFunc(10*time.Second, func() { close(stuck) }) // so that a broken test ends
	for range 8 {                                           // the miss path, and the flight that is shared
		wg.Go(func() {
			b, err := here.Get(ctx, "k")
			if err != nil {
				t.Error(err)
			}
			scribble(b)
		})
	}
	for here.Stats().Waiting < 8 { // all of them have joined
		select {
		case <-stuck:
			t.Fatal("the callers do not come together")
		default:
			runtime.Gosched()
		}
	}
	close(both)
	wg.Wait()
	copy(own, "ZZZ") // the loader reuses its buffer
	for _, c := range []*client.Cache[[]byte]{here, there} {
		for range 3 { // L2, L1, L1
			b, err := c.Get(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			scribble(b)
			m, err := c.GetMany(ctx, []string{"k"})
			if err != nil {
				t.Fatal(err)
			}
			scribble(m["k"])
		}
	}
	if here.Stats().L1Hits == 0 {
		t.Error("L1 was not met")
	}
	truth := newCache(t, open(t, nodes.Config()), client.CacheConfig[[]byte]{Name: "t", TTL: time.Minute, Truth: true})
	mine := []byte("abc")
	if err := truth.Set(ctx, "k", mine); err != nil {
		t.Fatal(err)
	}
	copy(mine, "ZZZ")
	b, err := truth.Get(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	scribble(b)
	many := newCache(t, open(t, nodes.Config()), client.CacheConfig[[]byte]{Name: "m", TTL: time.Minute, L1: client.L1All,
		LoadMany: func(_ context.Context, keys []string) (map[string][]byte, error) {
			return map[string][]byte{keys[0]: mine}, nil
		}})
	copy(mine, "abc")
	for range 3 {
		m, err := many.GetMany(ctx, []string{"k"})
		if err != nil {
			t.Fatal(err)
		}
		scribble(m["k"])
		copy(mine, "ZZZ")
	}
}

// TestRB14_LoaderReusesItsBuffer while the value is still on its way to the node and to its callers.
func TestRB14_LoaderReusesItsBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		buffer := []byte("abc")
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[[]byte]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: func(context.Context, string) ([]byte, error) {
			nodes.Node(0).Slow(100 * time.Millisecond) // the fill takes as long
			return buffer, nil
		}})
		got := make(chan string)
		go func() {
			b, err := c.Get(context.WithoutCancel(t.Context()), "k")
			got <- fmt.Sprintf("%s %v", b, err)
		}()
		time.Sleep(50 * time.Millisecond)
		synctest.Wait() // the load has returned, the fill is on its way
		copy(buffer, "ZZZ")
		if v := <-got; v != "abc <nil>" {
			t.Errorf("the caller got %s", v)
		}
		if b, err := c.Get(t.Context(), "k"); err != nil || string(b) != "abc" {
			t.Errorf("the node has %q, %v", b, err)
		}
	})
}

// oddKeys are the keys that other libraries routed or stored wrongly.
func oddKeys() []string {
	return []string{
		"foo{}{bar}", "{}foo", "foo{{bar}}zap", "foo{bar}{zap}", "a}b{c", "{u1}.a", "{u1}.b", "a b", "a\r\nGET x", "a\x00b", "\xff\xfe\xfd",
		"\u00e9", "e\u0301", strings.Repeat("k", client.MaxKeyBytes),
		"x:k:v0", "~l:x:k:v0", "~m:x:k:v0", "k:v0", "k", ":", " k", "k ", "K",
	}
}

// TestRB17_OddKeys: keys are bytes. All that is done to one key goes to one node and one name, and no two keys share an entry.
func TestRB17_OddKeys(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		cl := open(t, cfg)
		src := newSource(make(map[string]string))
		keys := oddKeys()
		for i, k := range keys {
			src.rows[k] = fmt.Sprint("row ", i)
		}
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1Off})
		ctx := t.Context()
		for i, k := range keys {
			want(t, c, k, fmt.Sprint("row ", i), client.LayerSource)
			raw := cl.Node("x:" + k + ":v0")
			if n, err := raw.Exists(ctx, "x:"+k+":v0").Result(); err != nil || n != 1 {
				t.Errorf("key %d is not under its documented name at its node: %d, %v", i, n, err)
			}
		}
		for i, k := range keys {
			want(t, c, k, fmt.Sprint("row ", i), client.LayerL2)
		}
		m, err := c.GetMany(ctx, keys)
		if err != nil || len(m) != len(keys) {
			t.Errorf("GetMany: %d of %d, %v", len(m), len(keys), err)
		}
		truth := newCache(t, cl, client.CacheConfig[string]{Name: "t", TTL: time.Minute, Truth: true, L1: client.L1Off})
		absent := newCache(t, cl, client.CacheConfig[string]{Name: "n", TTL: time.Minute, L1: client.L1Off, Load: func(context.Context, string) (string, error) { return "", client.ErrNotFound }})
		for i, k := range keys {
			if err := truth.Set(ctx, k, fmt.Sprint("set ", i)); err != nil {
				t.Errorf("Set of key %d: %v", i, err)
			}
			for range 2 { // an absence is stored under the key's own name, too
				if _, err := absent.Get(ctx, k); !errors.Is(err, client.ErrNotFound) {
					t.Errorf("absence of key %d: %v", i, err)
				}
			}
		}
		for i, k := range keys {
			want(t, truth, k, fmt.Sprint("set ", i), client.LayerL2)
		}
		if n := absent.Stats().Loads; n != uint64(len(keys)) {
			t.Errorf("%d loads of %d absent keys", n, len(keys))
		}
		for _, k := range []string{"", strings.Repeat("k", client.MaxKeyBytes+1)} {
			if _, err := c.Get(ctx, k); !errors.Is(err, client.ErrInvalidKey) {
				t.Errorf("a key of %d bytes: %v", len(k), err)
			}
		}
		for i, k := range keys {
			src.set(k, fmt.Sprint("new row ", i))
			if err := c.Invalidate(ctx, k); err != nil {
				t.Errorf("key %d: %v", i, err)
			}
			for j, other := range keys {
				if j > i { // not touched by the others' invalidations
					want(t, c, other, fmt.Sprint("row ", j), client.LayerL2)
				}
			}
			want(t, c, k, fmt.Sprint("new row ", i), client.LayerSource)
		}
	})
}

// TestRB22_LateHolderTouchesNobodysLease: a load that outlives its lease neither releases the next holder's lease nor replaces its value.
func TestRB22_LateHolderTouchesNobodysLease(t *testing.T) {
	for _, ends := range []string{"fills", "releases"} {
		t.Run("A "+ends, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { lateHolder(t, ends == "fills") }) })
	}
}

// lateHolder: A's load ends after its lease did. If it succeeds A fills, if it fails A releases: neither may touch B's lease.
func lateHolder(t *testing.T, succeeds bool) {
	nodes := clienttest.Start(t, 1)
	failed := errors.New("failed")
	var running, most, loads atomic.Int32
	process := func(took time.Duration, value string) *client.Cache[string] {
		return newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{
			Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true, LoadTimeout: 3 * time.Second, LeaseTTL: 4 * time.Second,
			Load: func(context.Context, string) (string, error) {
				loads.Add(1)
				n := running.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				defer running.Add(-1)
				time.Sleep(took)
				if value == "a" && !succeeds {
					return "", failed
				}
				return value, nil
			},
		})
	}
	a, b, third := process(1500*time.Millisecond, "a"), process(2*time.Second, "b"), process(0, "c")
	slow := inBackground(t, a, "k")
	time.Sleep(500 * time.Millisecond)
	nodes.Node(0).Delete("~l:x:k:v0") // A's lease runs out (as by eviction)
	time.Sleep(100 * time.Millisecond)
	next := inBackground(t, b, "k") // B takes it and loads until 2.6 s
	time.Sleep(50 * time.Millisecond)
	lease, held := nodes.Node(0).Get("~l:x:k:v0")
	if !held {
		t.Fatal("B has no lease")
	}
	if v, err := slow(); succeeds && (err != nil || v != "a") || !succeeds && !errors.Is(err, failed) { // at 1.5 s
		t.Errorf("A's own caller: %q, %v; want what its load gave", v, err)
	}
	if now, _ := nodes.Node(0).Get("~l:x:k:v0"); string(now) != string(lease) {
		t.Errorf("B's lease was %q and is %q after A ended", lease, now)
	}
	last := inBackground(t, third, "k") // C misses and must wait for B
	if v, err := next(); err != nil || v != "b" {
		t.Errorf("B's caller: %q, %v", v, err)
	}
	if v, err := last(); err != nil || v != "b" {
		t.Errorf("C: %q, %v; want B's value", v, err)
	}
	want(t, a, "k", "b", client.LayerL2)
	if most.Load() > 2 || loads.Load() != 2 {
		t.Errorf("%d loads, %d at once; want 2 and at most 2", loads.Load(), most.Load())
	}
}
