// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-shelf/shelf/stampede"
)

// TestLimiter_Background: work in the background gets no place at or above its limit, none while somebody waits, and none from its context.
func TestLimiter_Background(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stampede.LimiterConfig{Max: 3})
		want := func(limit int, ok bool) *stampede.Place {
			t.Helper()
			p, got := l.TryAcquireBelow(limit)
			if got != ok || (p != nil) != ok {
				t.Errorf("below %d with %+v: %t, want %t", limit, l.Stats(), got, ok)
			}
			return p
		}
		want(0, false)
		a := want(1, true)
		want(1, false)
		b := acquire(t, l, t.Context()) // a user's counts too
		want(2, false)
		c := want(3, true)
		want(4, false) // no place is left
		if s := l.Stats(); s.Running != 3 || s.Highest != 3 {
			t.Errorf("%+v", s)
		}
		var waiter sync.WaitGroup
		waiter.Go(func() { acquire(t, l, t.Context()).Release() })
		synctest.Wait()
		want(4, false)
		a.Release()
		waiter.Wait()
		b.Release()
		c.Release()
		if s := l.Stats(); s.Running != 0 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestLimiter_BackgroundIsExact: many that ask at once get no more than the limit.
func TestLimiter_BackgroundIsExact(t *testing.T) {
	l := newLimiter(t, stampede.LimiterConfig{Max: 64})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 200 {
				if p, ok := l.TryAcquireBelow(5); ok {
					p.Release()
				}
			}
		})
	}
	wg.Wait()
	if s := l.Stats(); s.Highest > 5 || s.Running != 0 {
		t.Errorf("%+v, want at most 5 at once", s)
	}
}
