// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// gated is a loader whose first call reads the row and is then held until it is let go; later calls pass.
type gated struct {
	*source
	held    chan struct{} // closed when the first call has read its row
	release chan struct{} // close it to let that call return
	first   atomic.Bool
}

func newGated(rows map[string]string) *gated {
	return &gated{source: newSource(rows), held: make(chan struct{}), release: make(chan struct{})}
}

func (g *gated) load(ctx context.Context, key string) (string, error) {
	v, err := g.source.load(ctx, key)
	if g.first.CompareAndSwap(false, true) {
		close(g.held)
		select {
		case <-g.release:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return v, err
}

// inBackground runs a read and returns its answer later.
func inBackground(t *testing.T, c *client.Cache[string], key string) (answer func() (string, error)) {
	t.Helper()
	type reply struct {
		v   string
		err error
	}
	ch := make(chan reply, 1)
	go func() {
		v, err := c.Get(context.WithoutCancel(t.Context()), key)
		ch <- reply{v, err}
	}()
	return func() (string, error) {
		r := <-ch
		return r.v, r.err
	}
}

// TestNoFillSurvivesAnInvalidation is the race that this library exists for:
//
//  1. a reader misses and reads row version 1
//  2. the row becomes version 2, and is invalidated, here or in another process
//  3. the reader comes back with version 1
//
// It may return version 1 to its own caller; nobody who asks after the invalidation may get it, here or elsewhere, then or later.
func TestNoFillSurvivesAnInvalidation(t *testing.T) {
	for _, by := range []string{"here", "elsewhere"} {
		t.Run("by "+by, func(t *testing.T) {
			onBackends(t, 1, func(t *testing.T, cfg client.Config) {
				src := newGated(map[string]string{"k": "old"})
				cc := client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All}
				caches := map[string]*client.Cache[string]{"here": newCache(t, open(t, cfg), cc), "elsewhere": newCache(t, open(t, cfg), cc)}
				slow := inBackground(t, caches["here"], "k")
				<-src.held
				src.set("k", "new")
				if err := caches[by].Invalidate(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				for _, place := range []string{by, "here", "elsewhere"} {
					if place == "here" && by == "elsewhere" {
						continue // this process's flight is not told; who joins it is looked at below
					}
					if v, err := caches[place].Get(t.Context(), "k"); err != nil || v != "new" {
						t.Errorf("%s, after the invalidation: %q, %v; want new", place, v, err)
					}
				}
				late := inBackground(t, caches["here"], "k") // joins the flight where it was not detached
				close(src.release)
				if v, err := slow(); err != nil || (v != "old" && v != "new") {
					t.Errorf("the slow reader: %q, %v", v, err)
				}
				if v, err := late(); err != nil || v != "new" {
					t.Errorf("a reader that came after the invalidation and joined the slow one: %q, %v; want new", v, err)
				}
				for place, c := range caches {
					for range 100 {
						if v, err := c.Get(t.Context(), "k"); err != nil || v != "new" {
							t.Fatalf("%s, afterwards: %q, %v; want new", place, v, err)
						}
					}
				}
				if s := caches["here"].Stats(); s.FillsRefused != 1 {
					t.Errorf("FillsRefused is %d, want 1", s.FillsRefused)
				}
			})
		})
	}
}

// TestNoL1FillSurvivesAnInvalidation is the same one shelf further: the value was read from the node, and is on its way into L1.
func TestNoL1FillSurvivesAnInvalidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		src := newSource(map[string]string{"k": "old"})
		gate := make(chan struct{})
		var hold atomic.Bool
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{
			Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All, NoEarlyRefresh: true,
			Codec: slowDecode{func() {
				if hold.CompareAndSwap(true, false) {
					<-gate // between the node's reply and L1
				}
			}},
		})
		want(t, c, "k", "old", client.LayerSource)
		hold.Store(true)
		slow := inBackground(t, c, "k")
		synctest.Wait()
		src.set("k", "new")
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		close(gate)
		if v, err := slow(); err != nil || v != "old" {
			t.Errorf("the slow reader: %q, %v", v, err)
		}
		want(t, c, "k", "new", client.LayerSource)
	})
}

// slowDecode is the string codec with a stop before decoding.
type slowDecode struct{ stop func() }

func (slowDecode) ID() uint8                                   { return 201 }
func (slowDecode) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (s slowDecode) Decode(b []byte) (string, error)           { s.stop(); return string(b), nil }

// TestWriteInvalidatesWhateverHappens: after an error, after the caller has left, after a panic.
func TestWriteInvalidatesWhateverHappens(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		src := newSource(map[string]string{"k": "0"})
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All})
		boom := errors.New("connection lost after COMMIT")
		ctx, leave := context.WithCancel(t.Context())
		for i, write := range []func() error{
			func() error {
				return c.Write(t.Context(), "k", func(context.Context) error { src.set("k", "1"); return nil })
			},
			func() error {
				return c.Write(t.Context(), "k", func(context.Context) error { src.set("k", "2"); return boom })
			},
			func() error {
				return c.Write(ctx, "k", func(ctx context.Context) error { src.set("k", "3"); leave(); return ctx.Err() })
			},
			func() (err error) {
				defer func() { err = fmt.Errorf("panic: %v", recover()) }()
				return c.Write(t.Context(), "k", func(context.Context) error { src.set("k", "4"); panic("boom") })
			},
		} {
			for range 3 { // warm every layer with the old value
				if _, err := c.Get(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			err := write()
			wantErr := []error{nil, boom, context.Canceled, nil}[i]
			if i == 3 && (err == nil || err.Error() != "panic: boom") {
				t.Errorf("write 4: %v, want the panic passed on", err)
			} else if i != 3 && !errors.Is(err, wantErr) {
				t.Errorf("write %d: %v, want %v", i+1, err, wantErr)
			}
			want(t, c, "k", fmt.Sprint(i+1), client.LayerSource)
		}
	})
}

// TestWriteIsRefusedBeforeItBegins: a caller that has left already does not write at all.
func TestWriteIsRefusedBeforeItBegins(t *testing.T) {
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.Write(ctx, "k", func(context.Context) error { t.Error("fn was run"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := c.Invalidate(ctx, "k"); err != nil { // but an invalidation follows a write that has happened
		t.Errorf("Invalidate with an ended context: %v", err)
	}
}

func TestWriteThrough(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		src := newGated(map[string]string{"k": "old", "x": "1"})
		cc := client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All}
		c, other := newCache(t, open(t, cfg), cc), newCache(t, open(t, cfg), cc)
		ctx := t.Context()

		// A reader that is under way cannot put the old value over the written one.
		slow := inBackground(t, other, "k")
		<-src.held
		v, err := c.WriteThrough(ctx, "k", func(context.Context) (string, error) { src.set("k", "new"); return "new", nil })
		if err != nil || v != "new" {
			t.Fatalf("WriteThrough: %q, %v", v, err)
		}
		want(t, c, "k", "new", client.LayerL2)
		close(src.release)
		if _, err := slow(); err != nil {
			t.Fatal(err)
		}
		want(t, other, "k", "new", client.LayerL2)

		// Another writer passes by while fn runs: what fn returned may be the older row, so neither is kept.
		_, err = c.WriteThrough(ctx, "x", func(context.Context) (string, error) {
			src.set("x", "3")
			return "2", other.Invalidate(ctx, "x")
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, c, "x", "3", client.LayerSource)

		// fn fails: it may have written all the same.
		failed := errors.New("failed")
		_, err = c.WriteThrough(ctx, "x", func(context.Context) (string, error) { src.set("x", "4"); return "", failed })
		if !errors.Is(err, failed) {
			t.Errorf("got %v, want fn's error", err)
		}
		want(t, c, "x", "4", client.LayerSource)
	})
}

// TestWriteThroughWithALaggingReplica: what was written through is announced as an invalidation of its version would be, stored or not: a loader that lags
// cannot store the row from before it once the entry is gone.
func TestWriteThroughWithALaggingReplica(t *testing.T) {
	for what, refused := range map[string]bool{"stored": false, "refused": true} {
		t.Run(what, func(t *testing.T) {
			onBackends(t, 1, func(t *testing.T, cfg client.Config) {
				c := newCache(t, open(t, cfg), client.CacheConfig[row]{Name: "x", TTL: time.Minute, L1: client.L1Off, Version: func(r row) uint64 { return r.Version },
					Load: func(context.Context, string) (row, error) { return row{1, "old"}, nil }})
				_, err := c.WriteThrough(t.Context(), "k", func(ctx context.Context) (row, error) {
					if refused {
						return row{2, "new"}, c.Invalidate(ctx, "k")
					}
					return row{2, "new"}, nil
				})
				if err == nil {
					err = c.Invalidate(t.Context(), "k") // by somebody who knows no version
				}
				if err != nil {
					t.Fatal(err)
				}
				r, err := c.Lookup(t.Context(), "k")
				if err != nil || r.Value.Version != 1 || !r.Stale || c.Stats().Fills != uint64(map[bool]int{false: 1, true: 0}[refused]) {
					t.Errorf("%+v, %v, %d fills; want the old row, marked stale and not stored", r, err, c.Stats().Fills)
				}
			})
		})
	}
}

// row is a value with a version.
type row struct {
	Version uint64
	Name    string
}

// TestLaggingReplica: after an invalidation that names the new row version, an older row is read again once, then returned marked and
// not stored; so is an absence.
func TestLaggingReplica(t *testing.T) {
	for name, lagging := range map[string]error{"old row": nil, "no row": client.ErrNotFound} {
		t.Run(name, func(t *testing.T) {
			onBackends(t, 1, func(t *testing.T, cfg client.Config) {
				var loads atomic.Int32
				var behind atomic.Bool
				behind.Store(true)
				c := newCache(t, open(t, cfg), client.CacheConfig[row]{
					Name: "x", TTL: time.Minute, L1: client.L1Off, Version: func(r row) uint64 { return r.Version },
					Load: func(context.Context, string) (row, error) {
						loads.Add(1)
						if behind.Load() {
							return row{1 << 60, "old"}, lagging
						}
						return row{1<<60 + 1, "new"}, nil
					},
				})
				if err := c.InvalidateVersion(t.Context(), "k", 1<<60+1); err != nil {
					t.Fatal(err)
				}
				for i := range 2 {
					r, err := c.Lookup(t.Context(), "k")
					if !errors.Is(err, lagging) || r.Layer != client.LayerSource || !r.Stale {
						t.Errorf("read %d while the source lags: %+v, %v", i, r, err)
					}
					if n := loads.Load(); n != int32(2*i+2) {
						t.Errorf("%d loads after read %d, want %d", n, i, 2*i+2)
					}
				}
				behind.Store(false)
				want(t, c, "k", row{1<<60 + 1, "new"}, client.LayerSource)
				want(t, c, "k", row{1<<60 + 1, "new"}, client.LayerL2)
			})
		})
	}
}

func TestSet(t *testing.T) {
	onBackends(t, 2, func(t *testing.T, cfg client.Config) {
		cfg.NoPush = true // the first read of a key may go to L1
		cl := open(t, cfg)
		ctx := t.Context()
		truth := newCache(t, cl, client.CacheConfig[row]{Name: "session", TTL: time.Hour, Truth: true, L1: client.L1All})
		if _, err := truth.Get(ctx, "a"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("before Set: %v, want ErrNotFound", err)
		}
		for _, name := range []string{"first", "second"} {
			if err := truth.Set(ctx, "a", row{Name: name}); err != nil {
				t.Fatal(err)
			}
			want(t, truth, "a", row{Name: name}, client.LayerL2)
			want(t, truth, "a", row{Name: name}, client.LayerL1)
		}
		if err := truth.SetMany(ctx, map[string]row{"a": {Name: "third"}, "b": {Name: "b"}, "c": {Name: "c"}}); err != nil {
			t.Fatal(err)
		}
		m, err := truth.GetMany(ctx, []string{"a", "b", "c", "d"})
		if err != nil || len(m) != 3 || m["a"].Name != "third" || m["c"].Name != "c" {
			t.Errorf("GetMany: %v, %v", m, err)
		}
		if err := truth.Invalidate(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := truth.Get(ctx, "a"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("after Invalidate: %v, want ErrNotFound", err)
		}

		versioned := newCache(t, cl, client.CacheConfig[row]{Name: "flag", TTL: time.Hour, Truth: true, L1: client.L1Off,
			Version: func(r row) uint64 { return r.Version }})
		for _, v := range []uint64{1 << 53, 1<<53 + 1, 1 << 53, 7} {
			if err := versioned.Set(ctx, "f", row{Version: v}); err != nil {
				t.Fatal(err)
			}
		}
		want(t, versioned, "f", row{Version: 1<<53 + 1}, client.LayerL2)
		if s := versioned.Stats(); s.SetsOlder != 2 {
			t.Errorf("SetsOlder is %d, want 2", s.SetsOlder)
		}

		if err := newCache(t, cl, client.CacheConfig[string]{Name: "y", TTL: time.Hour, Load: echo}).Set(ctx, "k", "v"); !errors.Is(err, client.ErrNotTruth) {
			t.Errorf("Set on a cache with a source: %v, want ErrNotTruth", err)
		}
		small := newCache(t, cl, client.CacheConfig[string]{Name: "small", TTL: time.Hour, Truth: true, MaxValueBytes: 3})
		if err := small.SetMany(ctx, map[string]string{"fits": "123", "large": "1234"}); !errors.Is(err, client.ErrTooLarge) || !strings.Contains(err.Error(), `"large"`) {
			t.Errorf("a large value: %v, want ErrTooLarge that names the key", err)
		}
		if _, err := small.Get(ctx, "fits"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("a batch with a wrong value was stored in part: %v", err)
		}
	})
}

// TestWritesNameWhatTheyDidNotReach: with one node of several down, its keys fail, with the node and the keys in the error; the
// others are done.
func TestWritesNameWhatTheyDidNotReach(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	cl := open(t, nodes.Config())
	src := newSource(map[string]string{})
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprint("k", i))
		src.set(keys[i], "old")
	}
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All})
	if _, err := c.GetMany(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		src.set(k, "new")
	}
	nodes.Node(1).Down()
	err := c.InvalidateMany(t.Context(), keys)
	var ne *client.NodeError
	if !errors.As(err, &ne) || ne.Node != "node-1" || ne.Op != "invalidate" || !client.Unavailable(err) {
		t.Fatalf("got %v, want a *NodeError of node-1", err)
	}
	lost := make(map[string]bool)
	for _, k := range ne.Keys {
		lost[k] = true
	}
	for _, k := range keys {
		if owned := ownerOf(c, k) == "node-1"; owned != lost[k] {
			t.Errorf("key %s: owned by node-1 is %v, named in the error is %v", k, owned, lost[k])
		}
		if v, err := c.Get(t.Context(), k); err != nil || v != "new" { // also the lost ones: their node is down
			t.Errorf("Get(%s) = %q, %v; want new", k, v, err)
		}
	}
}

// TestLateJoinerLoadsAgain: a caller that came after another process's invalidation, and joined a load from before it, does not get what that load
// read.
func TestLateJoinerLoadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		src := newGated(map[string]string{"k": "old"})
		cc := client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1All}
		here, elsewhere := newCache(t, open(t, nodes.Config()), cc), newCache(t, open(t, nodes.Config()), cc)
		slow := inBackground(t, here, "k")
		<-src.held
		src.set("k", "new")
		if err := elsewhere.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		late := inBackground(t, here, "k")
		synctest.Wait() // it has joined
		close(src.release)
		if v, err := slow(); err != nil || v != "old" {
			t.Errorf("the slow reader: %q, %v", v, err)
		}
		if v, err := late(); err != nil || v != "new" {
			t.Errorf("the late joiner: %q, %v; want new", v, err)
		}
		if n := src.count("k"); n != 2 {
			t.Errorf("%d loads, want 2", n)
		}
	})
}
