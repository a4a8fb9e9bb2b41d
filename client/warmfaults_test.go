// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"iter"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/ring"
)

// warmBehind starts a warm-up and gives its answer when asked.
func warmBehind(ctx context.Context, c *client.Cache[string], keys []string, o client.WarmOptions) func() (client.WarmResult, error) {
	type answer struct {
		r   client.WarmResult
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		r, err := c.Warm(ctx, slices.Values(keys), o)
		ch <- answer{r, err}
	}()
	return func() (client.WarmResult, error) {
		a := <-ch
		return a.r, a.err
	}
}

// TestWarmInvalidatedMeanwhile: an invalidation that comes while Warm loads wins: the old row is not stored, whichever process invalidates.
func TestWarmInvalidatedMeanwhile(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		src, keys := newWarmer(20)
		var loading, goOn chan struct{}
		src.gate = func([]string) { loading <- struct{}{}; <-goOn }
		warmWorld(t, 2, nil, src, func(t *testing.T, nodes *clienttest.Nodes, cl *client.Client, c *client.Cache[string]) {
			loading, goOn = make(chan struct{}), make(chan struct{})
			invalidator := c
			if elsewhere {
				cfg := nodes.Config()
				other, err := client.New(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = other.Close(context.Background()) }()
				invalidator = newCache(t, other, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo})
			}
			answer := warmBehind(t.Context(), c, keys, client.WarmOptions{})
			<-loading // the rows are about to be read; the test says that these are the old ones
			if err := invalidator.Invalidate(t.Context(), keys[3]); err != nil {
				t.Fatal(err)
			}
			close(goOn)
			r, err := answer()
			if want := (client.WarmResult{Done: 20, Loaded: 19, Unstored: 1}); err != nil || !equal(counts(r), want) {
				t.Errorf("%+v, %v, want %+v", counts(r), err, want)
			}
			node, name := c.Where(keys[3])
			if v, there := nodes.ByID(node).Get(name); there {
				t.Errorf("the old row is on its node: %q", v)
			}
		})
	}
}

// TestWarmAndReaders: a reader of a key that Warm is loading gets that load's value, and a key that a reader is loading is left to it: one load each.
func TestWarmAndReaders(t *testing.T) {
	src, keys := newWarmer(20)
	src.delay = time.Second
	warmWorld(t, 2, nil, src, func(t *testing.T, _ *clienttest.Nodes, _ *client.Client, c *client.Cache[string]) {
		early := inBackground(t, c, keys[0])
		synctest.Wait()
		answer := warmBehind(t.Context(), c, keys, client.WarmOptions{})
		again := warmBehind(t.Context(), c, keys, client.WarmOptions{})
		time.Sleep(100 * time.Millisecond)
		late := inBackground(t, c, keys[1])
		for i, read := range []func() (string, error){early, late} {
			if v, err := read(); err != nil || v != "v"+keys[i] {
				t.Errorf("%q, %v", v, err)
			}
		}
		r1, err1 := answer()
		r2, err2 := again()
		if err := errors.Join(err1, err2); err != nil || r1.Loaded+r2.Loaded != 19 || r1.Busy+r2.Busy != 21 {
			t.Errorf("%+v, %+v, %v", counts(r1), counts(r2), err)
		}
		for k, n := range src.loads {
			if n != 1 {
				t.Errorf("%s was loaded %d times", k, n)
			}
		}
	})
}

// TestWarmRefresh: it loads what is there as well, and the entry is served until the new one is stored.
func TestWarmRefresh(t *testing.T) {
	src, keys := newWarmer(50)
	warmWorld(t, 2, func(_ *client.Config, cc *client.CacheConfig[string]) { cc.L1 = client.L1Off }, src, func(t *testing.T, _ *clienttest.Nodes, _ *client.Client, c *client.Cache[string]) {
		if _, err := c.Warm(t.Context(), slices.Values(keys[:30]), client.WarmOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for k := range src.rows {
			src.rows[k] = "new"
		}
		src.delay = time.Second
		answer := warmBehind(t.Context(), c, keys, client.WarmOptions{Refresh: true})
		time.Sleep(500 * time.Millisecond)
		if v, err := c.Get(t.Context(), keys[0]); v != "v"+keys[0] || err != nil {
			t.Errorf("during the refresh: %q, %v", v, err)
		}
		if r, err := answer(); err != nil || r.Loaded != 50 {
			t.Errorf("%+v, %v", counts(r), err)
		}
		src.delay = 0
		for _, k := range keys {
			want(t, c, k, "new", client.LayerL2)
		}
	})
}

// TestWarmWithANodeDown: its keys fail, with that reason; nothing is loaded for them; the others are warmed. So it is when the node dies in the middle of
// a load, or when it hangs.
func TestWarmWithANodeDown(t *testing.T) {
	for _, when := range []string{"before", "hanging", "during the load"} {
		src, keys := newWarmer(90)
		var once sync.Once
		var down func()
		if when == "during the load" {
			src.gate = func([]string) { once.Do(down) }
		}
		warmWorld(t, 3, nil, src, func(t *testing.T, nodes *clienttest.Nodes, cl *client.Client, c *client.Cache[string]) {
			var lost int
			for _, k := range keys {
				if node, _ := c.Where(k); node == "node-1" {
					lost++
				}
			}
			down = nodes.Node(1).Down
			switch when {
			case "before":
				down()
			case "hanging":
				nodes.Node(1).Hang()
			}
			r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{Rate: 900, Batch: 90})
			if want := (client.WarmResult{Done: 90, Loaded: int64(90 - lost), Failed: int64(lost)}); !equal(counts(r), want) {
				t.Errorf("%s: %+v, want %+v", when, counts(r), want)
			}
			if !client.Unavailable(err) && when != "during the load" {
				t.Errorf("%s: %v is not Unavailable", when, err)
			}
			for _, f := range r.Failures {
				var node *client.NodeError
				if where, _ := c.Where(f.Key); where != "node-1" || !errors.As(f, &node) || node.Node != "node-1" {
					t.Errorf("%s: %v, whose node is %s", when, f, where)
				}
			}
			if n := len(src.loads); when != "during the load" && n != 90-lost {
				t.Errorf("%s: %d keys were loaded, want those of the nodes that are there, %d", when, n, 90-lost)
			}
			nodes.Node(1).Up()
			if r, err = c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{}); err != nil || r.Present+r.Loaded+r.Busy != 90 {
				t.Errorf("%s: when it is back: %+v, %v", when, counts(r), err)
			}
		})
	}
}

// TestWarmGivesLostLeasesBack: a lease that was granted, but whose reply did not come in time, keeps nobody waiting until it ends by itself.
func TestWarmGivesLostLeasesBack(t *testing.T) {
	src, keys := newWarmer(2)
	armed := new(atomic.Bool)
	var gate chan struct{}
	src.gate = func(keys []string) {
		armed.Store(true)                                            // the next command is the second key's request for its lease
		time.AfterFunc(900*time.Millisecond, func() { close(gate) }) // long after the timeout
		time.Sleep(300 * time.Millisecond)
	}
	edit := func(cfg *client.Config, _ *client.CacheConfig[string]) {
		dialer := cfg.Redis
		cfg.Redis = func(n ring.Node, o *redis.Options) {
			dialer(n, o)
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return &gatedConn{conn, armed, gate}, err
			}
		}
		gate = make(chan struct{})
	}
	warmWorld(t, 1, edit, src, func(t *testing.T, nodes *clienttest.Nodes, _ *client.Client, c *client.Cache[string]) {
		time.Sleep(10 * time.Millisecond) // the first health check is through, the next one comes in a second
		r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{Rate: 10})
		if want := (client.WarmResult{Done: 2, Loaded: 1, Failed: 1}); !equal(counts(r), want) || err == nil || armed.Load() {
			t.Errorf("%+v, %v, want %+v", counts(r), err, want)
		}
		time.Sleep(time.Second)
		for _, name := range nodes.Node(0).Keys() {
			if strings.HasPrefix(name, "~l:") {
				t.Errorf("a lease is left: %s", name)
			}
		}
	})
}

// TestWarmBacksOff: while the source fails, the pauses grow to ten seconds, and the call goes on; one that is well again is warmed at the old pace.
func TestWarmBacksOff(t *testing.T) {
	broken := errors.New("the database is down")
	for _, single := range []bool{false, true} {
		src, keys := newWarmer(400)
		started := time.Time{}
		edit := func(_ *client.Config, cc *client.CacheConfig[string]) {
			if single {
				cc.Load, cc.LoadMany = src.load, nil
			}
		}
		warmWorld(t, 2, edit, src, func(t *testing.T, nodes *clienttest.Nodes, cl *client.Client, c *client.Cache[string]) {
			started = time.Now()
			src.fails = func([]string) error {
				if time.Since(started) < time.Minute {
					return broken
				}
				return nil
			}
			r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{Rate: 100, Share: 0.01})
			unit := int64(10)
			if single {
				unit = 1
			}
			// 0.1, 0.2, ... 6.4, 10, 10, ... each shortened by up to a half: 9 to 18 attempts in a minute.
			if attempts := r.Failed / unit; !errors.Is(err, broken) || attempts < 9 || attempts > 20 || r.Failed+r.Loaded != 400 || r.Done != 400 {
				t.Errorf("%d attempts; %+v, %v", attempts, counts(r), err)
			}
			if took := time.Since(started); took > 80*time.Second {
				t.Errorf("it took %v, want the minute and little more", took)
			}
			if int64(len(r.Failures)) != r.Failed || r.Failures[0].Key != keys[0] {
				t.Errorf("%d failures are told of %d, the first is %v", len(r.Failures), r.Failed, r.Failures[0])
			}
			if n := cl.Stats().LoadsRejected; n != 0 {
				t.Errorf("%d loads were rejected", n)
			}
			for _, node := range []int{0, 1} { // nobody has to wait for a lease that a failed load left
				for _, name := range nodes.Node(node).Keys() {
					if strings.HasPrefix(name, "~l:") {
						t.Errorf("a lease is left: %s", name)
					}
				}
			}
		})
	}
}

// TestWarmBoundsItsFailures: it names a thousand and counts the rest. A loader that panics is a failure like any other.
func TestWarmBoundsItsFailures(t *testing.T) {
	src, keys := newWarmer(1500)
	warmWorld(t, 1, nil, src, func(t *testing.T, _ *clienttest.Nodes, _ *client.Client, c *client.Cache[string]) {
		src.fails = func([]string) error { panic("a bad row") }
		r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{Rate: 5000})
		var panicked *client.PanicError
		if r.Done != 1500 || r.Failed != 1500 || len(r.Failures) != 1000 || !errors.As(err, &panicked) {
			t.Errorf("%+v with %d failures, %.100v", counts(r), len(r.Failures), err)
		}
	})
}

// TestWarmCannotStore: what cannot be stored is loaded once, counted, and no failure.
func TestWarmCannotStore(t *testing.T) {
	src, keys := newWarmer(20)
	warmWorld(t, 1, func(_ *client.Config, cc *client.CacheConfig[string]) { cc.MaxValueBytes = 5 }, src, func(t *testing.T, _ *clienttest.Nodes, _ *client.Client, c *client.Cache[string]) {
		src.rows[keys[0]] = "ok"
		if r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{}); err != nil || r.Loaded != 1 || r.Unstored != 19 {
			t.Errorf("%+v, %v", counts(r), err)
		}
		if r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{}); err != nil || r.Present != 1 || r.Unstored != 19 || src.calls != 1 {
			t.Errorf("at once again: %+v, %v, %d calls", counts(r), err, src.calls) // markers say so, for a second
		}
	})
}

// TestWarmLaggingSource: a row older than an invalidation announced is read once more, on the place that the load has, though there is no
// other; and it is not stored.
func TestWarmLaggingSource(t *testing.T) {
	src, keys := newWarmer(5)
	edit := func(cfg *client.Config, cc *client.CacheConfig[string]) {
		cfg.MaxLoads, cc.Version = 1, func(string) uint64 { return 1 }
	}
	warmWorld(t, 1, edit, src, func(t *testing.T, _ *clienttest.Nodes, cl *client.Client, c *client.Cache[string]) {
		if err := c.InvalidateVersion(t.Context(), keys[2], 2); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{})
		if want := (client.WarmResult{Done: 5, Loaded: 4, Unstored: 1}); err != nil || !equal(counts(r), want) || time.Since(start) > 100*time.Millisecond {
			t.Errorf("%+v after %v, %v, want %+v", counts(r), time.Since(start), err, want)
		}
		if src.loads[keys[2]] != 2 || src.calls != 2 {
			t.Errorf("%d calls, loads %v", src.calls, src.loads)
		}
		if s := cl.Stats(); s.LoadsHighest != 1 || s.LoadsRejected != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestWarmEndsAtOnce: with ctx or with Close, whatever it waits for: its rate, a place, a load, a pause.
func TestWarmEndsAtOnce(t *testing.T) {
	for _, what := range []string{"rate", "place", "load", "pause"} {
		for _, closing := range []bool{false, true} {
			src, keys := newWarmer(100)
			src.delay = 2 * time.Second
			edit := func(cfg *client.Config, _ *client.CacheConfig[string]) { cfg.MaxLoads = 1 }
			synctestWorld := func(t *testing.T, _ *clienttest.Nodes, cl *client.Client, c *client.Cache[string]) {
				o, ended := client.WarmOptions{Batch: 10}, time.Duration(0)
				switch what {
				case "rate":
					o.Rate, src.delay = 0.001, 0
				case "place":
					inBackground(t, c, "held")
					synctest.Wait()
				case "load":
					o.Batch = 100
				case "pause":
					src.delay, src.fails = 0, func([]string) error { return errors.New("broken") }
				}
				ctx, cancel := context.WithCancel(t.Context())
				answer := warmBehind(ctx, c, keys, o)
				time.Sleep(1500 * time.Millisecond)
				start := time.Now()
				if closing {
					go func() { _ = cl.Close(context.Background()) }()
				} else {
					cancel()
				}
				r, err := answer()
				ended = time.Since(start)
				wanted := context.Canceled
				if closing {
					wanted = client.ErrClosed
				}
				if !errors.Is(err, wanted) || ended > 10*time.Millisecond {
					t.Errorf("%s, closing %t: %v after %v, %+v", what, closing, err, ended, counts(r))
				}
				if sum := r.Loaded + r.Present + r.Busy + r.Unstored + r.Failed; sum < r.Done || what != "pause" && r.Failed > 0 {
					t.Errorf("%s, closing %t: %+v", what, closing, counts(r))
				}
				cancel()
				if closing {
					if err := cl.Close(context.Background()); err != nil {
						t.Error(err)
					}
					if _, err := c.Warm(t.Context(), slices.Values(keys), o); err != client.ErrClosed { //nolint:errorlint // exactly this
						t.Errorf("after Close: %v", err)
					}
				}
				time.Sleep(time.Minute) // long enough for whatever would go on
				src.mu.Lock()
				defer src.mu.Unlock()
				if what == "load" && src.calls != 1 {
					t.Errorf("%d loads, want the one that was under way", src.calls)
				}
			}
			warmWorld(t, 1, edit, src, synctestWorld)
		}
	}
}

// TestWarmReadsItsKeysAsItGoes: the sequence is not read ahead of the batch, nor after the end.
func TestWarmReadsItsKeysAsItGoes(t *testing.T) {
	src, keys := newWarmer(200)
	warmWorld(t, 1, nil, src, func(t *testing.T, _ *clienttest.Nodes, _ *client.Client, c *client.Cache[string]) {
		read := 0
		var seq iter.Seq[string] = func(yield func(string) bool) {
			for _, k := range keys {
				if read++; !yield(k) {
					return
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := c.Warm(ctx, seq, client.WarmOptions{Batch: 50, Progress: func(p client.WarmProgress) {
			if int64(read) != p.Done {
				t.Errorf("%d keys were read for %d", read, p.Done)
			}
			if p.Done == 100 {
				cancel()
			}
		}})
		if r.Done != 100 || read > 101 || !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v; %d keys were read", counts(r), err, read)
		}
	})
}

// TestWarmFromALoader: a loader may warm other keys; it needs places for that, like anybody, and does not wait for itself.
func TestWarmFromALoader(t *testing.T) {
	src, keys := newWarmer(30)
	warmWorld(t, 1, nil, src, func(t *testing.T, _ *clienttest.Nodes, cl *client.Client, c *client.Cache[string]) {
		outer := newCache(t, cl, client.CacheConfig[string]{Name: "outer", TTL: time.Hour, Load: func(ctx context.Context, key string) (string, error) {
			r, err := c.Warm(ctx, slices.Values(keys), client.WarmOptions{})
			if r.Loaded != 30 {
				t.Errorf("%+v", counts(r))
			}
			return "v", err
		}})
		if _, err := outer.Get(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})
}
