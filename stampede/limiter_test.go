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
		if got, want := l.Stats(), (stampede.LimiterStats{Cap: 2, Running: 2, Queued: 5, Highest: 2, Rejected: 1}); got != want {
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
		"Floor is -1":         {Floor: -1, Adaptive: true},
		"Floor is 65":         {Floor: 65, Adaptive: true},
		"Floor is 1":          {Floor: 1},
	} {
		if _, err := stampede.NewLimiter(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestLimiter_SetMost: a cap that falls leaves those who run alone and lets nobody in until it has room again; one that grows lets in those who
// have waited longest.
func TestLimiter_SetMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stampede.LimiterConfig{Max: 4, QueueTimeout: time.Minute})
		var places []*stampede.Place
		for range 4 {
			places = append(places, acquire(t, l, t.Context()))
		}
		l.SetMost(2)
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		release := make(chan struct{})
		for i := range 4 {
			wg.Go(func() {
				p := acquire(t, l, t.Context())
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				<-release
				p.Release()
			})
			synctest.Wait()
		}
		state := func(want stampede.LimiterStats, in ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(order)
			if got := l.Stats(); got != want || !slices.Equal(order, in) {
				t.Errorf("%+v, let in %v; want %+v, %v", got, order, want, in)
			}
		}
		state(stampede.LimiterStats{Cap: 2, Running: 4, Queued: 4, Highest: 4})
		places[0].Release()
		places[1].Release()
		state(stampede.LimiterStats{Cap: 2, Running: 2, Queued: 4, Highest: 4})
		if _, ok := l.TryAcquireBelow(4); ok {
			t.Error("the background got a place of none")
		}
		places[2].Release()
		state(stampede.LimiterStats{Cap: 2, Running: 2, Queued: 3, Highest: 4}, 0)
		l.SetMost(100) // Max is what there is
		state(stampede.LimiterStats{Cap: 4, Running: 4, Queued: 1, Highest: 4}, 0, 1, 2)
		l.SetMost(-1)
		close(release)
		places[3].Release()
		wg.Wait()
		state(stampede.LimiterStats{Cap: 1, Highest: 4}, 0, 1, 2, 3)
	})
}

// TestLimiter_BackgroundOfASmallCap: of a cap that has been lowered the background gets as large a part as of Max.
func TestLimiter_BackgroundOfASmallCap(t *testing.T) {
	l := newLimiter(t, stampede.LimiterConfig{Max: 40})
	l.SetMost(8)
	n := 0
	for ; n < 40; n++ {
		if _, ok := l.TryAcquireBelow(30); !ok { // three quarters
			break
		}
	}
	if n != 6 {
		t.Errorf("%d places, want 6 of 8", n)
	}
}

// TestLimiter_RefusalIsCheap: a full queue refuses at once, without a timer, and with one error for all; the error names the cap that was in force.
func TestLimiter_RefusalIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stampede.LimiterConfig{Max: 2, Queue: 1, QueueTimeout: time.Hour})
		a, b := acquire(t, l, t.Context()), acquire(t, l, t.Context())
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { l.Acquire(ctx) })
		synctest.Wait()
		began := time.Now()
		if n := testing.AllocsPerRun(100, func() { l.Acquire(t.Context()) }); n > 0 {
			t.Errorf("%v allocations a refusal", n)
		}
		if time.Since(began) != 0 {
			t.Errorf("a refusal took %v", time.Since(began))
		}
		for most, text := range map[int]string{2: "2 loads are running (Max) and 1 waiting (Queue)", 1: "1 loads are running, as many as may at present, of 2 (Max)"} {
			l.SetMost(most)
			if _, err := l.Acquire(t.Context()); !errors.Is(err, stampede.ErrOverloaded) || errors.Is(err, stampede.ErrNoPlace) || !strings.Contains(err.Error(), text) {
				t.Errorf("cap %d: %v", most, err)
			}
		}
		leave()
		wg.Wait()
		a.Release()
		b.Release()
	})
}
