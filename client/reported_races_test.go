// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// Reported races of a load with the invalidation that passes it: RB-04 and, for rows that were absent, RB-20. (Changes that only a change stream sees, and second
// deletes, are not there yet.)

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// hold stops who passes it first after it was armed.
type hold struct {
	armed         atomic.Bool
	held, release chan struct{}
}

func newHold() *hold { return &hold{held: make(chan struct{}), release: make(chan struct{})} }

func (h *hold) pass() {
	if h.armed.CompareAndSwap(true, false) {
		close(h.held)
		<-h.release
	}
}

// after is a loader that has read its row and is then held.
func (h *hold) after(load func(context.Context, string) (string, error)) func(context.Context, string) (string, error) {
	return func(ctx context.Context, key string) (string, error) {
		v, err := load(ctx, key)
		h.pass()
		return v, err
	}
}

// settled: both processes read the new row a hundred times, from whatever layer, and the node has it.
func (p *couple) settled(t *testing.T, key, row string) {
	t.Helper()
	for name, c := range map[string]*client.Cache[string]{"P1": p.p1, "P2": p.p2} {
		for range 100 {
			if r, err := c.Lookup(t.Context(), key); err != nil || r.Value != row {
				t.Fatalf("%s, afterwards: %+v, %v; want %q", name, r, err, row)
			}
		}
		r, err := c.LookupWith(t.Context(), key, nil, client.GetOptions{BypassL1: true})
		if err != nil || r.Value != row || r.Layer != client.LayerL2 {
			t.Errorf("%s, the node's: %+v, %v; want %q from L2", name, r, err, row)
		}
	}
}

// TestRB04_InvalidationDuringALoad: what P1 has read is old when it comes back with it. It may be P1's caller's answer, and is nobody's else, then or later.
func TestRB04_InvalidationDuringALoad(t *testing.T) {
	for _, by := range []string{"P1", "P2"} {
		for what, configure := range map[string]func(h *hold, cfg *client.CacheConfig[string]){
			"miss": func(h *hold, cfg *client.CacheConfig[string]) { cfg.Load = h.after(cfg.Load) },
			"early refresh": func(h *hold, cfg *client.CacheConfig[string]) {
				cfg.NoEarlyRefresh, cfg.Beta = false, 1e9 // each read of the node is elected: 48 s are nothing beside 1 ms times Beta
				cfg.Load = h.after(cfg.Load)
			},
			"on the way from L2 to L1": func(h *hold, cfg *client.CacheConfig[string]) { cfg.Codec = slowDecode{h.pass} },
		} {
			t.Run(what+", invalidated by "+by, func(t *testing.T) {
				h := newHold()
				p := startCouple(t, map[string]string{"k": "old"}, func(name string, cfg *client.CacheConfig[string]) {
					cfg.TTL, cfg.Codec = time.Minute, slowDecode{func() {}}
					load := cfg.Load
					cfg.Load = func(ctx context.Context, key string) (string, error) {
						time.Sleep(time.Millisecond) // early refresh goes by what a load costs
						return load(ctx, key)
					}
					if name == "P1" {
						configure(h, cfg)
					}
				})
				if what != "miss" {
					want(t, p.p2, "k", "old", client.LayerSource) // so that P1 finds it on the node
				}
				h.armed.Store(true)
				invalidatedDuring(t, p, h, map[string]*client.Cache[string]{"P1": p.p1, "P2": p.p2}[by], what)
			})
		}
	}
}

func invalidatedDuring(t *testing.T, p *couple, h *hold, by *client.Cache[string], what string) {
	slow := inBackground(t, p.p1, "k")
	select {
	case <-h.held:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody is held")
	}
	pushes := p.p1.Stats().Pushes
	p.src.set("k", "new")
	if err := by.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	if by == p.p2 && what != "miss" { // P1 has read the key, so it hears of it
		eventually(t, "pushed", func() bool { return p.p1.Stats().Pushes > pushes })
	}
	late := inBackground(t, p.p1, "k") // the second reader: it comes before the held one is let go
	if v, err := p.p2.Get(t.Context(), "k"); err != nil || v != "new" {
		t.Errorf("P2, after the invalidation: %q, %v; want new", v, err)
	}
	if by == p.p1 || what != "miss" { // else it has joined the flight that is held
		if v, err := late(); err != nil || v != "new" {
			t.Errorf("P1, after the invalidation: %q, %v; want new", v, err)
		}
		close(h.release)
	} else {
		eventually(t, "joined", func() bool { return p.p1.Stats().Waiting == 2 })
		close(h.release)
		if v, err := late(); err != nil || v != "new" {
			t.Errorf("P1, who joined the held load after the invalidation: %q, %v; want new", v, err)
		}
	}
	if v, err := slow(); err != nil || v != "old" && v != "new" {
		t.Errorf("the held reader: %q, %v", v, err)
	}
	if what == "early refresh" { // the held load ends behind everybody's back
		eventually(t, "the refresh refused", func() bool { return p.p1.Stats().FillsRefused > 0 })
	}
	p.never(t, "k", "new", gone, gone)
	p.settled(t, "k", "new")
	intoL1(t, p.p1, "k", "new")
	intoL1(t, p.p2, "k", "new")
}

// TestRB20_LateAbsence: a load that saw no row comes back after the row was made and the key invalidated. The absence is its caller's answer at most; P2, which held an absence
// of its own in process, hears of the row.
func TestRB20_LateAbsence(t *testing.T) {
	for _, refresh := range []bool{false, true} {
		t.Run(fmt.Sprint("held refresh ", refresh), func(t *testing.T) {
			h := newHold()
			p := startCouple(t, map[string]string{}, func(name string, cfg *client.CacheConfig[string]) {
				if name == "P1" {
					cfg.Load = h.after(cfg.Load)
				}
			})
			if refresh { // else the node has nothing, and nobody can hold anything
				eventually(t, "the absence in P2's L1", func() bool {
					r, err := p.p2.Lookup(t.Context(), "k")
					return errors.Is(err, client.ErrNotFound) && r.Layer == client.LayerL1
				})
			}
			h.armed.Store(true)
			first := make(chan error, 1)
			go func() {
				_, err := p.p1.GetWith(context.WithoutCancel(t.Context()), "k", nil, client.GetOptions{Refresh: refresh})
				first <- err
			}()
			<-h.held
			gone := p.write(t, "k", "row")
			if v, err := p.p1.Get(t.Context(), "k"); err != nil || v != "row" {
				t.Errorf("P1, at once: %q, %v", v, err)
			}
			for old := true; old; { // within the bound: a round trip, a second if the push is late
				asked := time.Now()
				r, err := p.p2.Lookup(t.Context(), "k")
				if old = errors.Is(err, client.ErrNotFound); old && (asked.Sub(gone) >= silence || r.Layer != client.LayerL1) || err != nil && !old {
					t.Fatalf("P2, %v after the invalidation: %+v, %v", asked.Sub(gone), r, err)
				}
			}
			close(h.release)
			if err := <-first; err != nil && !errors.Is(err, client.ErrNotFound) {
				t.Errorf("the held reader: %v", err)
			}
			p.settled(t, "k", "row")
			if n := p.p1.Stats().FillsRefused; n != 1 {
				t.Errorf("FillsRefused %d, want 1", n)
			}
		})
	}
}

// TestRB20_OnlyNotFoundIsAnAbsence: no other error leaves one, on the node or in process: the next read asks again.
func TestRB20_OnlyNotFoundIsAnAbsence(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, fails := range map[string]error{
		"cancelled":           context.Canceled,
		"ended context":       ended.Err(),
		"deadline":            fmt.Errorf("query: %w", context.DeadlineExceeded),
		"i/o timeout":         &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded},
		"no rows of a driver": fmt.Errorf("driver: connection 7: %w", sql.ErrNoRows),
		"another not found":   errors.New(client.ErrNotFound.Error()),
		"connection":          sql.ErrConnDone,
		"two":                 errors.Join(sql.ErrNoRows, context.Canceled),
	} {
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", many ", many), func(t *testing.T) {
				var bad atomic.Bool
				bad.Store(true)
				cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, L1: client.L1All, NoErrorBackoff: true}
				if many {
					cfg.LoadMany = func(_ context.Context, keys []string) (map[string]string, error) {
						if bad.Load() {
							return map[string]string{}, fails
						}
						return map[string]string{keys[0]: "row"}, nil
					}
				} else {
					cfg.Load = func(context.Context, string) (string, error) {
						if bad.Load() {
							return "", fails
						}
						return "row", nil
					}
				}
				c := newCache(t, open(t, nodes.Config()), cfg)
				key := t.Name()
				for range 2 {
					if _, err := c.Get(t.Context(), key); !errors.Is(err, fails) || errors.Is(err, client.ErrNotFound) {
						t.Errorf("Get: %v, want %v", err, fails)
					}
					if m, err := c.GetMany(t.Context(), []string{key}); !errors.Is(err, fails) || errors.Is(err, client.ErrNotFound) || len(m) != 0 {
						t.Errorf("GetMany: %v, %v, want %v", m, err, fails)
					}
				}
				if s := c.Stats(); s.Loads != 4 || s.L1Entries != 0 {
					t.Errorf("%d loads, %d entries in process; want 4 and 0", s.Loads, s.L1Entries)
				}
				if b, there := nodes.Node(0).Get("x:" + key + ":v0"); there {
					t.Errorf("the node has %q", b)
				}
				bad.Store(false)
				want(t, c, key, "row", client.LayerSource)
			})
		}
	}
}

// TestRB20_AbsenceAfterTheLoadWasGivenUp: a loader that says "not found" when its time was over (its query was cancelled, say) has said nothing.
func TestRB20_AbsenceAfterTheLoadWasGivenUp(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	var calls atomic.Int32
	returned := make(chan struct{})
	c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Hour, L1: client.L1All, LoadTimeout: 500 * time.Millisecond, NoErrorBackoff: true,
		Load: func(ctx context.Context, _ string) (string, error) {
			if calls.Add(1) > 1 {
				return "row", nil
			}
			defer close(returned)
			<-ctx.Done()
			return "", client.ErrNotFound
		}})
	if v, err := c.Get(t.Context(), "k"); err == nil || errors.Is(err, client.ErrNotFound) {
		t.Errorf("a load whose time was over: %q, %v; want that it was", v, err)
	}
	<-returned
	want(t, c, "k", "row", client.LayerSource)
}

// TestRB20_AbsenceEndsInTime: with pushes, which let copies live for minutes, an absence lives no longer than NegativeTTL in any process, and on the node.
func TestRB20_AbsenceEndsInTime(t *testing.T) {
	const negative = 500 * time.Millisecond
	p := startCouple(t, map[string]string{}, func(_ string, cfg *client.CacheConfig[string]) { cfg.NegativeTTL = negative })
	began := time.Now()
	for _, c := range []*client.Cache[string]{p.p1, p.p2} {
		if _, err := c.Get(t.Context(), "k"); !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
	}
	left, err := p.server.Client().PTTL(t.Context(), "x:k:v0").Result()
	if err != nil || left > negative || left <= 0 && time.Since(began) < negative/2 {
		t.Errorf("on the node it lives %v, %v; want at most %v", left, err, negative)
	}
	p.src.set("k", "row") // and nobody tells
	loaded := time.Now()
	var wg sync.WaitGroup
	for name, c := range map[string]*client.Cache[string]{"P1": p.p1, "P2": p.p2} {
		wg.Go(func() {
			for absent, local := true, 0; absent; time.Sleep(time.Millisecond) {
				asked := time.Now()
				r, err := c.Lookup(t.Context(), "k")
				if absent = errors.Is(err, client.ErrNotFound); !absent {
					if err != nil || r.Value != "row" {
						t.Errorf("%s: %+v, %v", name, r, err)
					}
					t.Logf("%s: %d times from L1", name, local)
					return
				}
				if r.Layer == client.LayerL1 {
					local++
				}
				if asked.Sub(loaded) > negative {
					t.Errorf("%s: absent %v after the last load (from %v)", name, asked.Sub(loaded), r.Layer)
					return
				}
			}
		})
	}
	wg.Wait()
}
