// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

func newLimiter(t testing.TB, c stampede.LimiterConfig) *stampede.Limiter {
	t.Helper()
	l, err := stampede.NewLimiter(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t testing.TB, l *stampede.Limiter, ctx context.Context) *stampede.Place {
	t.Helper()
	p, err := l.Acquire(ctx)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return p
}

func TestLimiter_OrderAndOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stampede.LimiterConfig{Max: 2, Queue: 5, QueueTimeout: time.Minute})
		a, b := acquire(t, l, t.Context()), acquire(t, l, t.Context())
		if _, ok := l.TryAcquire(t.Context()); ok {
			t.Error("TryAcquire got a third place of two")
		}
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				p := acquire(t, l, t.Context())
				order = append(order, i) // one after the other: only one place moves
				p.Release()
			})
			synctest.Wait()
		}
		if _, err := l.Acquire(t.Context()); !errors.Is(err, stampede.ErrOverloaded) {
			t.Errorf("sixth in a queue of five: %v, want ErrOverloaded", err)
		}
		if got, want := l.Stats(), (stampede.LimiterStats{Running: 2, Queued: 5, Highest: 2, Rejected: 1}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
		a.Release()
		a.Release() // the second must not free b's place
		wg.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Errorf("served in order %v", order)
		}
		if got := l.Stats(); got.Running != 1 || got.Queued != 0 || got.Highest != 2 {
			t.Errorf("stats %+v, want 1 running, none queued", got)
		}
		b.Release()
	})
}

func TestLimiter_WaitsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stampede.LimiterConfig{Max: 1})
		p := acquire(t, l, t.Context())
		start := time.Now()
		_, err := l.Acquire(t.Context())
		if !errors.Is(err, stampede.ErrOverloaded) || errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want ErrOverloaded after 1s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		for range 2 { // the second time ctx is over before
			if _, err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stampede.ErrOverloaded) {
				t.Errorf("got %v, want the caller's own error", err)
			}
		}
		if got := l.Stats(); got.Rejected != 1 || got.Queued != 0 {
			t.Errorf("stats %+v, want 1 rejected, none queued", got)
		}
		p.Release()
	})
}

// TestLimiter_Reuse: a context that holds a place takes no second one, the place
// is free only when all its shares are released, and a place that was given
// back, or is another limiter's, counts for nothing.
func TestLimiter_Reuse(t *testing.T) {
	l := newLimiter(t, stampede.LimiterConfig{Max: 1, QueueTimeout: time.Millisecond})
	other := newLimiter(t, stampede.LimiterConfig{Max: 1})
	outer := acquire(t, l, t.Context())
	ctx := outer.With(t.Context())
	o := acquire(t, other, ctx)
	if other.Stats().Running != 1 {
		t.Error("a place of one limiter served for another")
	}
	inner := acquire(t, l, o.With(ctx)) // found behind the other limiter's
	if l.Stats().Running != 1 {
		t.Errorf("%d places taken, want 1", l.Stats().Running)
	}
	outer.Release()
	outer.Release() // must not count for the inner share
	if _, ok := l.TryAcquire(t.Context()); ok {
		t.Error("the place was free while a share of it was held")
	}
	inner.Release()
	if l.Stats().Running != 0 {
		t.Errorf("%d places taken at the end, want 0", l.Stats().Running)
	}
	again := acquire(t, l, ctx)
	if l.Stats().Running != 1 {
		t.Error("a place that was given back was used again")
	}
	again.Release()
	o.Release()
}

// TestLimiter_NeverMore: random comings and goings never exceed the bounds and
// leave nothing behind.
func TestLimiter_NeverMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stampede.LimiterConfig{Max: 7, Queue: 20, QueueTimeout: 50 * time.Millisecond})
		var wg sync.WaitGroup
		var mu sync.Mutex
		running, highest, refused := 0, 0, uint64(0)
		for i := range 500 {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(100))*time.Millisecond)
				defer cancel()
				p, err := l.Acquire(ctx)
				mu.Lock()
				if errors.Is(err, stampede.ErrOverloaded) {
					refused++
				}
				if err == nil {
					running++
					highest = max(highest, running)
				}
				mu.Unlock()
				if err != nil {
					return
				}
				time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
				mu.Lock()
				running--
				mu.Unlock()
				p.Release()
			})
		}
		wg.Wait()
		got := l.Stats()
		if highest > 7 || got.Highest != 7 || got.Running != 0 || got.Queued != 0 || got.Rejected != refused || refused == 0 {
			t.Errorf("highest %d, refused %d, stats %+v", highest, refused, got)
		}
	})
}

func TestNewLimiter_Invalid(t *testing.T) {
	for field, c := range map[string]stampede.LimiterConfig{
		"Max is -1":           {Max: -1},
		"Queue is -2":         {Queue: -2},
		"QueueTimeout is -3s": {QueueTimeout: -3 * time.Second},
	} {
		if _, err := stampede.NewLimiter(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
