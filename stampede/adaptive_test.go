// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// database answers within 5 ms as long as no more than its capacity is asked at once; what is above that makes all as much slower.
type database struct {
	capacity atomic.Int64
	slower   atomic.Int64 // times; of queries that nothing delays
	running  atomic.Int64
	highest  atomic.Int64 // since it was last reset
}

func (d *database) query() {
	n := d.running.Add(1)
	defer d.running.Add(-1)
	for h := d.highest.Load(); n > h && !d.highest.CompareAndSwap(h, n); h = d.highest.Load() {
	}
	took := 5 * time.Millisecond * time.Duration(max(1, d.slower.Load()))
	if c := d.capacity.Load(); n > c {
		took = took * time.Duration(n) / time.Duration(c)
	}
	time.Sleep(took)
}

// adaptiveRun is a crowd that always wants more places than there are.
func adaptiveRun(t *testing.T, config stampede.LimiterConfig, test func(l *stampede.Limiter, d *database)) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, config)
		g := l.NewGauge()
		d := new(database)
		d.capacity.Store(1000)
		var stop atomic.Bool
		var crowd sync.WaitGroup
		for i := range 100 {
			crowd.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				for !stop.Load() {
					p := acquire(t, l, t.Context())
					began := time.Now()
					d.query()
					p.Release()
					g.Ended(time.Since(began), time.Now())
				}
			})
		}
		test(l, d)
		stop.Store(true)
		crowd.Wait()
	})
}

// TestAdaptive: with a database that is strong enough the cap stays at Max; when it gets weaker the cap goes down to what it bears, never below Floor; and
// up again when it has recovered, never above Max.
func TestAdaptive(t *testing.T) {
	adaptiveRun(t, stampede.LimiterConfig{Max: 40, Adaptive: true, QueueTimeout: time.Hour}, func(l *stampede.Limiter, d *database) {
		between := func(when string, low, high int) {
			t.Helper()
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				if c := l.Stats().Cap; c < low || c > high {
					t.Errorf("%s: the cap is %d, want %d to %d", when, c, low, high)
				}
			}
		}
		between("a strong database", 40, 40)
		d.capacity.Store(8)
		time.Sleep(3 * time.Second)
		between("a database for 8 queries", 8, 18) // twice the latency is what is borne
		d.capacity.Store(1)
		time.Sleep(3 * time.Second)
		between("a database for one query", 4, 6) // the floor is a tenth
		d.capacity.Store(1000)
		time.Sleep(5 * time.Second)
		between("a database that has recovered", 40, 40)
		if h := l.Stats().Highest; h > 40 {
			t.Errorf("%d loads at once, above Max", h)
		}
	})
}

// TestAdaptive_SlowerForGood: queries that take three times as long, however few, lower the cap at first, and are what is normal a few minutes later.
func TestAdaptive_SlowerForGood(t *testing.T) {
	adaptiveRun(t, stampede.LimiterConfig{Max: 40, Adaptive: true, QueueTimeout: time.Hour}, func(l *stampede.Limiter, d *database) {
		time.Sleep(time.Second)
		d.slower.Store(3)
		time.Sleep(3 * time.Second)
		if c := l.Stats().Cap; c > 10 {
			t.Errorf("soon after: the cap is %d", c)
		}
		time.Sleep(3 * time.Minute)
		if c := l.Stats().Cap; c != 40 {
			t.Errorf("later: the cap is %d", c)
		}
	})
}

// TestAdaptive_Kinds: a thousand rows take longer than one, and that is no congestion: each kind is compared with itself. And who finds a place always gets no more of them.
func TestAdaptive_Kinds(t *testing.T) {
	l := newLimiter(t, stampede.LimiterConfig{Max: 40, Adaptive: true})
	one, many := l.NewGauge(), l.NewGauge()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	tell := func(windows int, one_, many_ time.Duration) {
		for range windows * 20 {
			now = now.Add(5 * time.Millisecond)
			one.Ended(one_, now)
			if many_ > 0 {
				many.Ended(many_, now)
			}
		}
	}
	tell(20, time.Millisecond, 0)
	tell(20, time.Millisecond, 500*time.Millisecond)
	tell(20, 1500*time.Microsecond, 700*time.Millisecond)
	if c := l.Stats().Cap; c != 40 {
		t.Errorf("the cap is %d: one kind was compared with the other", c)
	}
	tell(1, 10*time.Millisecond, 5*time.Second)
	if c := l.Stats().Cap; c != 32 {
		t.Errorf("the cap is %d after a window of slow loads, want 32", c)
	}
	tell(10, 10*time.Millisecond, 5*time.Second) // less than the loads take that ran then
	if c := l.Stats().Cap; c != 32 {
		t.Errorf("the cap is %d: loads from before the cut have cut again", c)
	}
	tell(100, time.Millisecond, 500*time.Millisecond)
	if c := l.Stats().Cap; c != 32 {
		t.Errorf("the cap is %d, though nobody was short of a place", c)
	}
}

// TestAdaptive_Most: what SetMost says is a bound for it too, in both directions.
func TestAdaptive_Most(t *testing.T) {
	adaptiveRun(t, stampede.LimiterConfig{Max: 40, Adaptive: true, QueueTimeout: time.Hour}, func(l *stampede.Limiter, d *database) {
		l.SetMost(3) // below the floor
		time.Sleep(2 * time.Second)
		d.highest.Store(0)
		time.Sleep(2 * time.Second)
		if s := l.Stats(); s.Cap != 3 || d.highest.Load() != 3 {
			t.Errorf("%+v, %d queries at once, want 3", s, d.highest.Load())
		}
		l.SetMost(20)
		if c := l.Stats().Cap; c != 20 {
			t.Errorf("the cap is %d: it stood at its most and did not go along", c)
		}
		d.capacity.Store(3)
		time.Sleep(3 * time.Second)
		low := l.Stats().Cap
		l.SetMost(40)
		if c := l.Stats().Cap; c > low || c > 8 {
			t.Errorf("the cap went from %d to %d though the loads are slow", low, c)
		}
	})
}
