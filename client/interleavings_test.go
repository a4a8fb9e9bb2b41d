// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// A NoFill read that comes after Invalidate has returned joins the load that began before it.
// A load that will not be stored (too large; no negatives; node down at its read; patience over) is never "refused", so a caller that
// joins it after another process's invalidation has returned gets the old value.
func TestLateJoinerOfALoadThatIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		var row atomic.Value
		row.Store("old-old-old-old")
		cfg := client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, MaxValueBytes: 8,
			Load: func(context.Context, string) (string, error) {
				v := row.Load().(string)
				time.Sleep(time.Second)
				return v, nil
			}}
		a, b := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = a.Get(t.Context(), "k") })
		time.Sleep(500 * time.Millisecond)
		row.Store("new-new-new-new")
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if r, err := a.Lookup(t.Context(), "k"); r.Value != "new-new-new-new" || err != nil {
			t.Errorf("a read after the other process's Invalidate: %+v, %v; want the new row", r, err)
		}
		wg.Wait()
	})
}

// heldCodec is a codec whose Decode can be held up.
type heldCodec struct {
	hold *atomic.Pointer[chan struct{}]
}

func (heldCodec) ID() uint8                                 { return 200 }
func (heldCodec) Append(d []byte, v string) ([]byte, error) { return append(d, v...), nil }
func (s heldCodec) Decode(b []byte) (string, error) {
	if h := s.hold.Load(); h != nil {
		<-*h
	}
	return string(b), nil
}

// A flight that found the entry at its lease (another process had loaded it) hands it to a caller that came after the entry was invalidated.
func TestLateJoinerOfAnEntryFoundByTheFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		var row atomic.Value
		row.Store("old")
		var hold atomic.Pointer[chan struct{}]
		blocker := make(chan struct{})
		mk := func(codec client.Codec[string]) *client.Cache[string] {
			cfg := nodes.Config()
			cfg.MaxLoads = 1
			return newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true, Codec: codec,
				Load: func(_ context.Context, k string) (string, error) {
					if k == "blocker" {
						<-blocker
					}
					return row.Load().(string), nil
				}})
		}
		a, b := mk(heldCodec{&hold}), mk(heldCodec{new(atomic.Pointer[chan struct{}])})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = a.Get(t.Context(), "blocker") })
		synctest.Wait()
		wg.Go(func() { _, _ = a.Get(t.Context(), "k") }) // missed, waits for a place
		synctest.Wait()
		_, _ = b.Get(t.Context(), "k") // stores "old"
		ch := make(chan struct{})
		hold.Store(&ch)
		close(blocker)
		time.Sleep(100 * time.Millisecond) // a's flight has found "old" and decodes it
		hold.Store(nil)
		row.Store("new")
		if err := b.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { time.Sleep(100 * time.Millisecond); close(ch) })
		if r, err := a.Lookup(t.Context(), "k"); r.Value != "new" || err != nil {
			t.Errorf("a read after the other process's Invalidate: %+v, %v; want the new row", r, err)
		}
		wg.Wait()
	})
}

// An entry past its soft TTL that is read through GetMany only is never refreshed.
func TestGetManyRefreshesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int32
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, SoftTTL: 10 * time.Second,
			NoJitter: true, NoEarlyRefresh: true, L1: client.L1Off,
			Load: func(context.Context, string) (string, error) { return fmt.Sprint(loads.Add(1)), nil }})
		for range 25 {
			if _, err := c.GetMany(t.Context(), []string{"k"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if s := c.Stats(); s.Refreshes == 0 {
			t.Errorf("25 GetMany over 50 s, soft TTL 10 s: %d loads, %d refreshes; want about 4", loads.Load(), s.Refreshes)
		}
	})
}

// SetOptions.Version is ignored.
// A key of another type: every Get loads, nothing heals it.
// A loader's read joins a flight that waits for the place which this very loader holds.
func TestNestedReadJoinsNoQueuedFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clienttest.Start(t, 1).Config()
		cfg.MaxLoads = 1
		cl := open(t, cfg)
		queued := make(chan struct{})
		var c *client.Cache[string]
		c = newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
			Load: func(ctx context.Context, k string) (string, error) {
				if k == "outer" {
					<-queued
					return c.Get(ctx, "inner")
				}
				return "v", nil
			}})
		var wg sync.WaitGroup
		wg.Go(func() {
			start := time.Now()
			if v, err := c.Get(t.Context(), "outer"); v != "v" || err != nil {
				t.Errorf("outer: %q, %v after %v; want v", v, err, time.Since(start))
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if v, err := c.Get(t.Context(), "inner"); v != "v" || err != nil {
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

// A loader that reads many keys of another cache has them all loaded at once, in its one place.
func TestCapHoldsForNestedLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clienttest.Start(t, 1).Config()
		cfg.MaxLoads = 1
		cl := open(t, cfg)
		var running, most atomic.Int32
		inner := newCache(t, cl, client.CacheConfig[string]{Name: "inner", TTL: time.Minute, L1: client.L1Off,
			Load: func(context.Context, string) (string, error) {
				n := running.Add(1)
				defer running.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(50 * time.Millisecond)
				return "v", nil
			}})
		outer := newCache(t, cl, client.CacheConfig[string]{Name: "outer", TTL: time.Minute, L1: client.L1Off,
			Load: func(ctx context.Context, _ string) (string, error) {
				keys := make([]string, 32)
				for i := range keys {
					keys[i] = fmt.Sprint(i)
				}
				_, err := inner.GetMany(ctx, keys)
				return "v", err
			}})
		if _, err := outer.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if most.Load() > 1 {
			t.Errorf("MaxLoads 1: %d loads ran at once, LoadsHighest says %d", most.Load(), cl.Stats().LoadsHighest)
		}
	})
}

// LoadMany that says ErrNotFound.
// InvalidateMany on a node that hangs waits one timeout for each 64 keys.
// Refreshes fill the queue that misses need.
func TestRefreshesDoNotTurnMissesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clienttest.Start(t, 1).Config()
		cfg.MaxLoads, cfg.LoadQueue = 1, 4
		cl := open(t, cfg)
		var slow atomic.Bool
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, SoftTTL: 10 * time.Second, NoJitter: true, NoEarlyRefresh: true, L1: client.L1Off,
			Load: func(context.Context, string) (string, error) {
				if slow.Load() {
					time.Sleep(500 * time.Millisecond)
				}
				return "v", nil
			}})
		for i := range 10 {
			_, _ = c.Get(t.Context(), fmt.Sprint(i))
		}
		time.Sleep(15 * time.Second)
		slow.Store(true)
		for i := range 10 { // all served from the node; each starts a refresh
			_, _ = c.Get(t.Context(), fmt.Sprint(i))
		}
		time.Sleep(10 * time.Millisecond)
		if _, err := c.Get(t.Context(), "cold"); err != nil {
			t.Errorf("a miss while 10 served entries are being refreshed: %v", err)
		}
	})
}

// A forced refresh that finds the row gone leaves the old entry for everybody.
func TestForcedRefreshOfAVanishedRow(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		var gone atomic.Bool
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
			Version: func(string) uint64 { return 7 },
			Load: func(context.Context, string) (string, error) {
				if gone.Load() {
					return "", client.ErrNotFound
				}
				return "v", nil
			}})
		_, _ = c.Get(t.Context(), "k")
		gone.Store(true)
		if _, err := c.GetWith(t.Context(), "k", nil, client.GetOptions{Refresh: true}); !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
		if v, err := c.Get(t.Context(), "k"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("Get after a forced refresh that said ErrNotFound: %q, %v", v, err)
		}
	})
}

// Two Closes at once: the second one closes the connections under the first one's loads.
// A refresh that a loader's read started asks for the loader's key: no recursion, nobody waits for it.
func TestRefreshStartedByALoaderIsNotItsLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *client.Cache[string]
		var refreshErr atomic.Value
		var armed atomic.Bool
		c = newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, SoftTTL: 10 * time.Second,
			NoJitter: true, NoEarlyRefresh: true, L1: client.L1Off,
			Load: func(ctx context.Context, k string) (string, error) {
				if k == "outer" {
					v, err := c.Get(ctx, "inner") // soft-expired: its refresh starts from here
					time.Sleep(time.Second)
					return v, err
				}
				if armed.Load() {
					v, err := c.Get(ctx, "outer")
					if err != nil {
						refreshErr.Store(err)
					}
					return v, err
				}
				return "v", nil
			}})
		_, _ = c.Get(t.Context(), "inner")
		time.Sleep(15 * time.Second)
		armed.Store(true)
		if _, err := c.Get(t.Context(), "outer"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := refreshErr.Load(); err != nil {
			t.Errorf("the background refresh: %v", err)
		}
	})
}
