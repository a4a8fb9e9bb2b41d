// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// warmer is a source that counts what it is asked for, and how much of it in which second.
type warmer struct {
	mu    sync.Mutex
	rows  map[string]string
	loads map[string]int
	times []time.Time // one a key
	calls int
	delay time.Duration
	fails func(keys []string) error
	gate  func(keys []string) // runs before anything else
}

func (w *warmer) loadMany(ctx context.Context, keys []string) (map[string]string, error) {
	if w.gate != nil {
		w.gate(keys)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	for _, k := range keys {
		w.loads[k]++
		w.times = append(w.times, time.Now())
	}
	if w.fails != nil {
		if err := w.fails(keys); err != nil {
			return nil, err
		}
	}
	found := make(map[string]string)
	for _, k := range keys {
		if v, ok := w.rows[k]; ok {
			found[k] = v
		}
	}
	if w.delay > 0 {
		w.mu.Unlock()
		time.Sleep(w.delay)
		w.mu.Lock()
	}
	return found, ctx.Err()
}

func (w *warmer) load(ctx context.Context, key string) (string, error) {
	rows, err := w.loadMany(ctx, []string{key})
	if v, ok := rows[key]; err != nil || ok {
		return v, err
	}
	return "", client.ErrNotFound
}

func newWarmer(n int) (*warmer, []string) {
	keys, rows := numbered(n)
	return &warmer{rows: rows, loads: make(map[string]int)}, keys
}

// most is the most keys that were loaded within any window of a second.
func (w *warmer) most() (most int) {
	for i, start := range w.times {
		n, _ := slices.BinarySearchFunc(w.times, start.Add(time.Second), time.Time.Compare)
		most = max(most, n-i)
	}
	return most
}

// warmWorld is a bubble with a client and a cache over embedded nodes.
func warmWorld(t *testing.T, nodes int, edit func(*client.Config, *client.CacheConfig[string]), src *warmer, test func(*testing.T, *clienttest.Nodes, *client.Client, *client.Cache[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ns := clienttest.Start(t, nodes)
		cfg, cc := ns.Config(), client.CacheConfig[string]{Name: "x", TTL: time.Hour, LoadMany: src.loadMany, NoEarlyRefresh: true, L1: client.L1All}
		if edit != nil {
			edit(&cfg, &cc)
		}
		cl, err := client.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := cl.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		test(t, ns, cl, newCache(t, cl, cc))
	})
}

// counts is a result without its lists.
func counts(r client.WarmResult) client.WarmResult {
	r.Failures, r.Last = nil, ""
	return r
}

// TestWarm: everything is loaded once and stored, what is there is passed over, absence is remembered; L1 and hot keys hear nothing of it.
func TestWarm(t *testing.T) {
	for _, single := range []bool{false, true} {
		onBackends(t, 3, func(t *testing.T, cfg client.Config) {
			src, keys := newWarmer(600)
			cc := client.CacheConfig[string]{Name: "x", TTL: time.Hour, LoadMany: src.loadMany, NoEarlyRefresh: true, L1: client.L1All}
			if single {
				cc.Load, cc.LoadMany = src.load, nil
			}
			cl := open(t, cfg)
			c := newCache(t, cl, cc)
			ctx, o := t.Context(), client.WarmOptions{Rate: 1e5}
			for _, k := range keys[:100] {
				if _, err := c.Get(ctx, k); err != nil {
					t.Fatal(err)
				}
			}
			before := c.Stats()
			asked := append([]string{"none", keys[0], keys[200]}, keys...)
			r, err := c.Warm(ctx, slices.Values(asked), o)
			// A key that stands twice in one batch is present; in another batch it is found there. Either way it is loaded once.
			if want := (client.WarmResult{Done: 603, Loaded: 501, Absent: 1, Present: 102}); err != nil || !equal(counts(r), want) || r.Last != keys[599] {
				t.Fatalf("%+v, %v\nwant %+v", r, err, want)
			}
			if s := c.Stats(); s.L1Misses != before.L1Misses || s.L1Entries != before.L1Entries || s.L1Hits != before.L1Hits || s.L2Hits != before.L2Hits {
				t.Errorf("the warm-up shows in the reads' counters: %+v, before %+v", s, before)
			}
			src.gate = func(keys []string) { t.Errorf("%v are loaded, they are there", keys) }
			if r, err = c.Warm(ctx, slices.Values(asked), o); err != nil || r.Present != 603 || r.Loaded != 0 {
				t.Errorf("once more: %+v, %v", r, err)
			}
			for _, k := range keys {
				if v, err := c.Get(ctx, k); err != nil || v != "v"+k {
					t.Errorf("%s is %q, %v", k, v, err)
				}
			}
			if _, err := c.Get(ctx, "none"); !errors.Is(err, client.ErrNotFound) {
				t.Errorf("an absent row: %v", err)
			}
			for k, n := range src.loads {
				if n != 1 {
					t.Errorf("%s was loaded %d times", k, n)
				}
			}
		})
	}
}

func equal(a, b client.WarmResult) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }

// TestWarmKeepsItsRate: over the whole, and in every second of it; and it does reach it. Keys that are there cost nothing of it, but have a bound of
// their own.
func TestWarmKeepsItsRate(t *testing.T) {
	for _, tc := range []struct {
		rate   float64
		keys   int
		single bool
	}{{100, 300, false}, {100, 200, true}, {5, 20, false}, {0.5, 4, true}, {1000, 1200, false}} {
		src, keys := newWarmer(tc.keys)
		src.delay = time.Millisecond
		edit := func(_ *client.Config, cc *client.CacheConfig[string]) {
			if tc.single {
				cc.Load, cc.LoadMany = src.load, nil
			}
		}
		warmWorld(t, 2, edit, src, func(t *testing.T, _ *clienttest.Nodes, _ *client.Client, c *client.Cache[string]) {
			unit := max(1, int(tc.rate/10))
			if tc.single {
				unit = 1
			}
			start := time.Now()
			r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{Rate: tc.rate})
			took, least := time.Since(start).Seconds(), float64(tc.keys-unit)/tc.rate
			if err != nil || r.Loaded != int64(tc.keys) || took < least*0.999 || took > least*1.05+1 {
				t.Errorf("%+v: %.1f s, want %.1f; %+v, %v", tc, took, least, counts(r), err)
			}
			if most, allowed := src.most(), int(math.Ceil(tc.rate))+unit; most > allowed {
				t.Errorf("%+v: %d keys within a second, want at most %d", tc, most, allowed)
			}
			start = time.Now()
			if r, err = c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{Rate: tc.rate, Batch: 16}); err != nil || r.Present != int64(tc.keys) {
				t.Errorf("%+v, %v", counts(r), err)
			}
			took, least = time.Since(start).Seconds(), max(0, float64(tc.keys-16))/tc.rate/20
			if took < least*0.999 || took > least*1.05+1 {
				t.Errorf("%+v: looking at what is there took %.2f s, want %.2f", tc, took, least)
			}
		})
	}
}

// TestWarmResumes: a warm-up that is cancelled, again and again, and goes on with Skip, loads every key exactly once. What was being loaded when it was
// cancelled is stored all the same.
func TestWarmResumes(t *testing.T) {
	src, keys := newWarmer(1000)
	src.delay = 250 * time.Millisecond // the loads of three tenths of a second run at once
	warmWorld(t, 3, nil, src, func(t *testing.T, _ *clienttest.Nodes, _ *client.Client, c *client.Cache[string]) {
		var r client.WarmResult
		var loaded int64
		for calls := 0; ; calls++ {
			ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
			start, skip := time.Now(), r.Done
			var err error
			r, err = c.Warm(ctx, slices.Values(keys), client.WarmOptions{Rate: 200, Skip: skip})
			cancel()
			loaded += r.Loaded
			if r.Done < skip || r.Done > skip && r.Last != keys[r.Done-1] {
				t.Fatalf("call %d from %d: %+v", calls, skip, counts(r))
			}
			if err == nil {
				break
			}
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 1200*time.Millisecond || calls > 100 {
				t.Fatalf("call %d: %v after %v", calls, err, time.Since(start))
			}
			if r.Done < 1000 && r.Done == skip && r.Loaded == 0 {
				t.Fatalf("call %d came to nothing: %+v", calls, counts(r))
			}
		}
		if r.Done != 1000 || loaded > 1000 {
			t.Errorf("at the end %d done, %d loaded", r.Done, loaded)
		}
		time.Sleep(time.Second) // what was left behind is through
		for _, k := range keys {
			if n := src.loads[k]; n != 1 {
				t.Errorf("%s was loaded %d times", k, n)
			}
		}
		if r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{}); err != nil || r.Present != 1000 {
			t.Errorf("not everything is there: %+v, %v", counts(r), err)
		}
	})
}

// TestWarmLeavesTheLoadsToUsers: with all places taken, Warm waits and users are served, in their order, before it, whoever came first; and
// it never takes more than its share, nor the last quarter of the places.
func TestWarmLeavesTheLoadsToUsers(t *testing.T) {
	src, keys := newWarmer(40)
	var mu sync.Mutex
	var order []string
	var step chan struct{}
	src.gate = func(keys []string) {
		mu.Lock()
		if name := keys[0]; len(keys) > 1 || strings.HasPrefix(name, "k") {
			order = append(order, "warm")
		} else {
			order = append(order, name)
		}
		mu.Unlock()
		<-step
	}
	edit := func(cfg *client.Config, _ *client.CacheConfig[string]) {
		cfg.MaxLoads, cfg.LoadQueueTimeout = 1, time.Minute
	}
	warmWorld(t, 2, edit, src, func(t *testing.T, _ *clienttest.Nodes, cl *client.Client, c *client.Cache[string]) {
		step = make(chan struct{})
		ask := func(key string) func() (string, error) {
			answer := inBackground(t, c, key)
			synctest.Wait()
			return answer
		}
		src.rows["u1"], src.rows["u2"], src.rows["u3"] = "1", "2", "3"
		answers := []func() (string, error){ask("u1")}
		warmed := make(chan client.WarmResult, 1)
		go func() {
			r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{})
			if err != nil {
				t.Error(err)
			}
			warmed <- r
		}()
		time.Sleep(time.Second) // Warm wants a place all the while
		answers = append(answers, ask("u2"), ask("u3"))
		for range 3 {
			time.Sleep(500 * time.Millisecond)
			if s := cl.Stats(); s.LoadsRunning != 1 || !slices.Equal(order, []string{"u1", "u2", "u3"}[:len(order)]) {
				t.Errorf("%v, %+v", order, s)
			}
			step <- struct{}{}
			synctest.Wait()
		}
		close(step)
		for _, answer := range answers {
			if _, err := answer(); err != nil {
				t.Error(err)
			}
		}
		if r := <-warmed; r.Loaded != 40 {
			t.Errorf("%+v", counts(r))
		}
		if !slices.Equal(order[:4], []string{"u1", "u2", "u3", "warm"}) {
			t.Errorf("the loads came in the order %v", order)
		}
		if s := cl.Stats(); s.LoadsRejected != 0 || s.LoadsQueued != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestWarmTakesItsShare: as many loads at once as that, and none of the last quarter of the places.
func TestWarmTakesItsShare(t *testing.T) {
	for _, tc := range []struct {
		places, users int
		share         float64
		want          int
	}{{64, 0, 0, 16}, {64, 0, 0.5, 32}, {64, 0, 1, 48}, {64, 40, 0, 8}, {64, 48, 1, 0}, {8, 0, 0.01, 1}, {1, 0, 0, 1}, {3, 0, 1, 3}} {
		src, keys := newWarmer(60)
		var hold chan struct{}
		src.gate = func([]string) { <-hold }
		edit := func(cfg *client.Config, cc *client.CacheConfig[string]) {
			cfg.MaxLoads, cc.Load, cc.LoadMany = tc.places, src.load, nil
			cc.LoadTimeout = time.Hour
		}
		warmWorld(t, 1, edit, src, func(t *testing.T, _ *clienttest.Nodes, cl *client.Client, c *client.Cache[string]) {
			hold = make(chan struct{})
			var answers []func() (string, error)
			for i := range tc.users {
				answers = append(answers, inBackground(t, c, fmt.Sprint("u", i)))
			}
			synctest.Wait()
			warmed := make(chan error, 1)
			go func() {
				_, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{Rate: 1000, Share: tc.share})
				warmed <- err
			}()
			time.Sleep(time.Minute)
			if n := cl.Stats().LoadsRunning - tc.users; n != tc.want {
				t.Errorf("%+v: %d loads of Warm at once", tc, n)
			}
			close(hold)
			if err := <-warmed; err != nil {
				t.Error(err)
			}
			for _, answer := range answers {
				answer()
			}
			synctest.Wait()
			if n := cl.Stats().LoadsRunning; n != 0 {
				t.Errorf("%d places were not given back", n)
			}
		})
	}
}

// TestWarmArguments: what is wrong is refused before anything happens; an invalid key is one failure among others.
func TestWarmArguments(t *testing.T) {
	src, keys := newWarmer(10)
	warmWorld(t, 1, nil, src, func(t *testing.T, _ *clienttest.Nodes, cl *client.Client, c *client.Cache[string]) {
		ctx := t.Context()
		refused := func(field string, c *client.Cache[string], keys []string, o client.WarmOptions) {
			t.Helper()
			seq := slices.Values(keys)
			if keys == nil {
				seq = nil
			}
			r, err := c.Warm(ctx, seq, o)
			var wrong *client.ConfigError
			if !errors.As(err, &wrong) || wrong.Field != field || !equal(r, client.WarmResult{}) {
				t.Errorf("%s: %+v, %v", field, r, err)
			}
		}
		refused("WarmOptions.Rate", c, keys, client.WarmOptions{Rate: -1})
		refused("WarmOptions.Rate", c, keys, client.WarmOptions{Rate: math.NaN()})
		refused("WarmOptions.Share", c, keys, client.WarmOptions{Share: 1.5})
		refused("WarmOptions.Share", c, keys, client.WarmOptions{Share: math.NaN()})
		refused("WarmOptions.Batch", c, keys, client.WarmOptions{Batch: -1})
		refused("WarmOptions.Batch", c, keys, client.WarmOptions{Batch: 10_001})
		refused("WarmOptions.Skip", c, keys, client.WarmOptions{Skip: -1})
		refused("WarmOptions.Total", c, keys, client.WarmOptions{Total: -1})
		refused("keys", c, nil, client.WarmOptions{})
		refused("CacheConfig.Truth", newCache(t, cl, client.CacheConfig[string]{Name: "t", TTL: time.Minute, Truth: true}), keys, client.WarmOptions{})
		if src.calls > 0 {
			t.Errorf("refused calls loaded %v", src.loads)
		}
		for _, o := range []client.WarmOptions{{}, {Skip: 0}, {Batch: 1}} {
			if r, err := c.Warm(ctx, slices.Values([]string{}), o); err != nil || !equal(r, client.WarmResult{}) {
				t.Errorf("no keys: %+v, %v", r, err)
			}
		}
		if r, err := c.Warm(ctx, slices.Values(keys), client.WarmOptions{Skip: 100}); err == nil || r.Done != 10 || r.Last != "" || src.calls > 0 {
			t.Errorf("more is skipped than there is: %+v, %v", r, err)
		}
		long := strings.Repeat("k", client.MaxKeyBytes+1)
		r, err := c.Warm(ctx, slices.Values([]string{"", keys[0], long, keys[0], keys[1]}), client.WarmOptions{})
		if want := (client.WarmResult{Done: 5, Loaded: 2, Present: 1, Failed: 2}); !equal(counts(r), want) || !errors.Is(err, client.ErrInvalidKey) {
			t.Errorf("%+v, %v, want %+v", counts(r), err, want)
		}
		if len(r.Failures) != 2 || r.Failures[0].Key != "" || r.Failures[1].Key != long || !strings.Contains(err.Error(), "2 of 5") {
			t.Errorf("%d failures, %v", len(r.Failures), err)
		}
	})
}

// TestWarmTells: Progress sees each batch once, in order, with the speed and the time that is left.
func TestWarmTells(t *testing.T) {
	src, keys := newWarmer(1000)
	warmWorld(t, 2, nil, src, func(t *testing.T, _ *clienttest.Nodes, _ *client.Client, c *client.Cache[string]) {
		var told []client.WarmProgress
		r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{
			Rate: 100, Skip: 100, Total: 1000, Progress: func(p client.WarmProgress) { told = append(told, p) },
		})
		if err != nil || len(told) != 9 {
			t.Fatalf("%d reports, %v", len(told), err)
		}
		for i, p := range told {
			if want := int64(200 + 100*i); p.Done != want || p.Loaded != want-100 || p.Last != keys[want-1] || p.Total != 1000 {
				t.Errorf("report %d: %+v", i, p)
			}
			left := time.Duration(1000-p.Done) * time.Second / 100
			if p.Speed < 99 || p.Speed > 112 || p.Left > left+time.Second || p.Left < left*85/100 {
				t.Errorf("report %d: %.1f keys a second, %v left, want 100 and %v", i, p.Speed, p.Left, left)
			}
		}
		if last := told[8].WarmResult; !equal(last, r) {
			t.Errorf("the last report is %+v, the result %+v", last, r)
		}
		for range 2 {
			if _, err := c.Warm(t.Context(), maps.Keys(src.rows), client.WarmOptions{Progress: func(p client.WarmProgress) {
				if p.Total != 0 || p.Left != 0 {
					t.Errorf("nothing is known of a total: %+v", p)
				}
			}}); err != nil {
				t.Error(err)
			}
		}
	})
}
