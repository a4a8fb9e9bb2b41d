// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// TestSourceBreaker: when the loads of many keys fail, the source is left alone; who needs it is told so at once, with what it last said. When it is back, it is met
// by few at first, and the keys that failed in the meantime are not held back for long.
func TestSourceBreaker(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{err: errDatabase}
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: src.load})
		nodes.Node(0).Down() // it has no part in this
		next := 0
		get := func() error {
			next++
			_, err := c.Get(t.Context(), fmt.Sprint(next))
			return err
		}
		for range 10 {
			if err := get(); err != errDatabase { //nolint:errorlint // this very one
				t.Error(err)
			}
		}
		src.taken()
		began := time.Now()
		for range 100 {
			err := get()
			if !errors.Is(err, client.ErrSourceDown) || !errors.Is(err, errDatabase) {
				t.Fatal(err)
			}
			mentions(t, err, []string{"cache x", "the source is failing", errDatabase.Error()})
		}
		if _, err := c.GetMany(t.Context(), []string{"m", "n"}); !errors.Is(err, client.ErrSourceDown) {
			t.Error(err)
		}
		if n := src.taken(); n != 0 || time.Since(began) != 0 {
			t.Errorf("%d loads, %v", n, time.Since(began))
		}
		if s := c.Stats(); s.SourceState != "open" || s.SourceRefused != 102 || s.LoadErrors != 10 {
			t.Errorf("%+v", s)
		}
		for time.Since(began) < 30*time.Second { // one probe after each pause
			get()
			time.Sleep(10 * time.Millisecond)
		}
		if n := src.taken(); n < 6 || n > 16 {
			t.Errorf("%d probes in 30 s", n)
		}
		src.set("v", nil, 0)
		var mu sync.Mutex
		var wg sync.WaitGroup
		src.highest = 0
		began = time.Now()
		var steps []int // the most loads at once, by quarter second since the first success
		var first time.Time
		for time.Since(began) < 10*time.Second && c.Stats().SourceState != "closed" {
			for range 10 {
				mu.Lock()
				next++
				key := fmt.Sprint(next)
				mu.Unlock()
				wg.Go(func() { c.Get(t.Context(), key) })
			}
			time.Sleep(10 * time.Millisecond)
			src.mu.Lock()
			if src.calls != nil && first.IsZero() {
				first = time.Now()
			}
			if !first.IsZero() {
				i := int(time.Since(first) / (250 * time.Millisecond))
				for len(steps) <= i {
					steps = append(steps, 0)
				}
				steps[i] = max(steps[i], src.highest)
			}
			src.highest = src.running
			src.mu.Unlock()
		}
		wg.Wait()
		if len(steps) < 6 || steps[0] > 2 || steps[1] > 4 || steps[3] > 16 {
			t.Errorf("at most so many loads at once in each quarter of a second: %v", steps)
		}
		if got := time.Since(began); got > 5*time.Second+2500*time.Millisecond {
			t.Errorf("closed after %v", got)
		}
		want(t, c, "1", "v", client.LayerSource) // it failed first
	})
}

// TestSourceBreaker_EndsTheBackoff: a key that has failed often is not left alone any longer once the source is well again: it has failed because the source did.
func TestSourceBreaker_EndsTheBackoff(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{err: errDatabase}
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: src.load})
		began := time.Now()
		for range 5 { // five in a row: for 8 s at least
			if _, err := c.GetWith(t.Context(), "k", nil, client.GetOptions{Refresh: true}); !errors.Is(err, errDatabase) {
				t.Error(err)
			}
		}
		for i := range 5 {
			if _, err := c.Get(t.Context(), fmt.Sprint("other", i)); !errors.Is(err, errDatabase) {
				t.Error(err)
			}
		}
		if s := c.Stats().SourceState; s != "open" {
			t.Fatalf("the breaker is %s", s)
		}
		src.set("v", nil, 0)
		for i := 0; c.Stats().SourceState != "closed"; i++ {
			if time.Since(began) > 7*time.Second {
				t.Fatalf("the breaker is still %s", c.Stats().SourceState)
			}
			_, _ = c.Get(t.Context(), fmt.Sprint("probe", i)) // refused, most of them
			time.Sleep(10 * time.Millisecond)
		}
		want(t, c, "k", "v", client.LayerSource)
	})
}

// TestRB34_WhatIsNotTheSourcesFailure: callers that leave, absences, errors that the cache was told are answers, and loads that were never made do not open the
// breaker.
func TestRB34_WhatIsNotTheSourcesFailure(t *testing.T) {
	errDenied := errors.New("you may not see this row")
	for name, tc := range map[string]struct {
		load func(ctx context.Context, outer context.Context) (string, error)
		want error
	}{
		"callers leave": {func(context.Context, context.Context) (string, error) {
			time.Sleep(50 * time.Millisecond)
			return "v", nil
		}, context.DeadlineExceeded},
		"not found":               {func(context.Context, context.Context) (string, error) { return "", client.ErrNotFound }, client.ErrNotFound},
		"an answer":               {func(context.Context, context.Context) (string, error) { return "", errDenied }, errDenied},
		"a context of the loader": {func(_, outer context.Context) (string, error) { <-outer.Done(); return "", context.Canceled }, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
				type outerKey struct{}
				c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoNegative: true,
					SourceFailure: func(err error) bool { return !errors.Is(err, errDenied) },
					Load: func(ctx context.Context, _ string) (string, error) {
						return tc.load(ctx, ctx.Value(outerKey{}).(context.Context))
					}})
				for i := range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					_, err := c.Get(context.WithValue(ctx, outerKey{}, ctx), fmt.Sprint(i%20))
					if !errors.Is(err, tc.want) && !errors.Is(err, context.Canceled) && err != nil {
						t.Errorf("%d: %v", i, err)
					}
					cancel()
				}
				time.Sleep(time.Second)
				if s := c.Stats(); s.SourceState != "closed" || s.SourceRefused != 0 || s.HeldBack != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestRB34_CancelledProbe: the caller whose load is the probe leaves; the load goes on and is the probe all the same.
func TestRB34_CancelledProbe(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{err: errDatabase}
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: src.load})
		for i := range 10 {
			c.Get(t.Context(), fmt.Sprint(i))
		}
		src.set("v", nil, 0)
		time.Sleep(time.Second)
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := c.Get(ctx, fmt.Sprint("probe", i)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			time.Sleep(10 * time.Millisecond)
		}
		if s := c.Stats().SourceState; s != "recovering" {
			t.Errorf("after three probes that succeeded it is %s", s)
		}
		want(t, c, "k", "v", client.LayerSource)
	})
}

// TestSourceBreaker_Hangs: a source that answers nobody is found out by timeouts, panics are failures too, and a probe that hangs gives its place back at its timeout.
func TestSourceBreaker_Hangs(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{hang: true}
		panics := false
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, LoadTimeout: time.Second,
			Load: func(ctx context.Context, key string) (string, error) {
				if panics {
					panic("no rows")
				}
				return src.load(ctx, key)
			}})
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if _, err := c.Get(t.Context(), fmt.Sprint(i)); !errors.Is(err, client.ErrLoadTimeout) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		wantError(t, c, "k", client.ErrSourceDown)
		time.Sleep(time.Second)
		wantError(t, c, "k", client.ErrLoadTimeout)
		wantError(t, c, "l", client.ErrSourceDown)
		src.mu.Lock()
		src.hang, src.row = false, "v"
		src.mu.Unlock()
		time.Sleep(5 * time.Second)
		for i := range 10 {
			want(t, c, fmt.Sprint("new", i), "v", client.LayerSource)
			time.Sleep(500 * time.Millisecond)
		}
		if s := c.Stats().SourceState; s != "closed" {
			t.Errorf("it is %s", s)
		}
		panics = true
		var caught *client.PanicError
		for i := range 10 {
			if _, err := c.Get(t.Context(), fmt.Sprint("panic", i)); !errors.As(err, &caught) {
				t.Error(err)
			}
		}
		if s := c.Stats().SourceState; s != "open" {
			t.Errorf("after ten panics it is %s", s)
		}
	})
}

// TestStaleIfError_SourceDown: while the breaker is open every key with an old entry is answered with that, also those that have not failed themselves.
func TestStaleIfError_SourceDown(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "v1"}
		c := staleCache(t, open(t, nodes.Config()), src, nil)
		for i := range 30 {
			want(t, c, fmt.Sprint(i), "v1", client.LayerSource)
		}
		src.set("v2", errDatabase, 0)
		time.Sleep(11 * time.Second)
		for i := range 30 {
			wantStale(t, c, fmt.Sprint(i), "v1", client.LayerL2, errDatabase)
		}
		if s := c.Stats(); s.SourceState != "open" || s.Loads != 40 || s.StaleServed != 30 {
			t.Errorf("%+v", s)
		}
		wantStale(t, c, "29", "v1", client.LayerL2, client.ErrSourceDown)
		wantError(t, c, "new", client.ErrSourceDown)
		src.set("v2", nil, 0)
		for began := time.Now(); c.Stats().SourceState != "closed" && time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
			for i := range 30 {
				if _, err := c.Get(t.Context(), fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
		for i := range 30 {
			if r, err := c.Lookup(t.Context(), fmt.Sprint(i)); err != nil || r.Value != "v2" || r.Stale {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}

// TestSourceBreaker_KeysAreFreeAgain: keys that were to be left alone for long may be tried as soon as the source is known to be well: it was not their fault.
func TestSourceBreaker_KeysAreFreeAgain(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{err: errDatabase}
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: src.load})
		for range 10 { // the next step takes 15 s at least
			if _, err := c.GetWith(t.Context(), "hot", nil, client.GetOptions{Refresh: true}); !errors.Is(err, errDatabase) {
				t.Error(err)
			}
		}
		src.set("v", nil, 0)
		began := time.Now()
		for i := 0; c.Stats().SourceState != "closed"; i++ {
			if time.Since(began) > 10*time.Second {
				t.Fatal("it does not close")
			}
			wantError(t, c, "hot", errDatabase)
			c.Get(t.Context(), fmt.Sprint(i))
			time.Sleep(100 * time.Millisecond)
		}
		want(t, c, "hot", "v", client.LayerSource)
	})
}
