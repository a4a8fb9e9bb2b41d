// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

func TestFilterConfigRefused(t *testing.T) {
	w := newFilterWorld(t, 0)
	for _, tc := range []struct {
		name string
		do   func(c *stampede.FilterConfig)
		want []string
	}{
		{"no keys expected", func(c *stampede.FilterConfig) { c.ExpectedKeys = 0 }, []string{"ExpectedKeys", "0", "1 to 4294967296"}},
		{"negative keys", func(c *stampede.FilterConfig) { c.ExpectedKeys = -1 }, []string{"ExpectedKeys", "-1"}},
		{"too many keys", func(c *stampede.FilterConfig) { c.ExpectedKeys = 1<<32 + 1 }, []string{"ExpectedKeys", "4294967297"}},
		{"negative rate", func(c *stampede.FilterConfig) { c.FalsePositives = -0.1 }, []string{"FalsePositives", "-0.1", "0.01"}},
		{"rate too large", func(c *stampede.FilterConfig) { c.FalsePositives = 0.6 }, []string{"FalsePositives", "0.6"}},
		{"rate NaN", func(c *stampede.FilterConfig) { c.FalsePositives = math.NaN() }, []string{"FalsePositives", "NaN"}},
		{"a time without a unit", func(c *stampede.FilterConfig) { c.RebuildEvery = 60 }, []string{"RebuildEvery", "60ns", "at least 1s"}},
		{"neither keys nor feed", func(c *stampede.FilterConfig) { c.Keys = nil }, []string{"Keys", "Feed"}},
		{"a store without a feed", func(c *stampede.FilterConfig) { c.Store = &filterLink{} }, []string{"Feed", "Store"}},
		{"no draw", func(c *stampede.FilterConfig) { c.Draw = nil }, []string{"Draw"}},
	} {
		cfg := w.cfg
		tc.do(&cfg)
		_, err := stampede.NewFilter(cfg)
		if err == nil {
			t.Errorf("%s: accepted", tc.name)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not mention %q", tc.name, err, part)
			}
		}
	}
}

// alone runs a filter without a feed.
func (w *filterWorld) alone() (f *stampede.Filter, end func()) {
	w.t.Helper()
	f, err := stampede.NewFilter(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	return f, func() { stop(); <-done }
}

// TestFilterAlone: nothing is absent before the first build has ended; then what is not known is; rows that are added while a build is under way are known to it; a build
// forgets deleted rows; failed builds leave the last one in use, until it is twice RebuildEvery old.
func TestFilterAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		for i := range 1000 {
			w.commit(fmt.Sprint("row", i))
		}
		f, end := w.alone()
		defer end()
		absent := func(key string, want bool) {
			t.Helper()
			if got := f.Absent(key, time.Now()); got != want {
				t.Errorf("Absent(%s) = %t, want %t; %+v", key, got, want, f.Stats())
			}
		}
		time.Sleep(500 * time.Millisecond) // the scan takes 2 s at least
		absent("nobody", false)
		if s := f.Stats(); s.Complete || !strings.Contains(s.Why, "first build") {
			t.Errorf("before the first build: %+v", s)
		}
		w.commit("late")
		if err := f.Add(t.Context(), "late"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		absent("nobody", true)
		absent("row999", false)
		absent("late", false)
		if s := f.Stats(); !s.Complete || s.Why != "" || s.Keys != 1001 || s.Capacity != 2000 || s.Builds != 1 {
			t.Errorf("after the first build: %+v", s)
		}
		w.mu.Lock()
		w.rows = w.rows[1:]
		w.mu.Unlock()
		absent("row0", false)
		time.Sleep(time.Minute + 5*time.Second)
		absent("row0", true)
		absent("row1", false)
		w.mu.Lock()
		w.failing = true
		w.mu.Unlock()
		until(t, 2*time.Minute, "a build has failed", func() bool { return strings.Contains(f.Stats().Why, "the database has gone") })
		absent("nobody", true)
		scanned := f.Stats().Scanned
		time.Sleep(time.Until(scanned.Add(2*time.Minute - 1)))
		absent("nobody", true)
		time.Sleep(time.Nanosecond)
		absent("nobody", false)
		if s := f.Stats(); s.Complete || !strings.Contains(s.Why, "twice RebuildEvery") {
			t.Errorf("when no build succeeds: %+v", s)
		}
		w.mu.Lock()
		w.failing = false
		w.mu.Unlock()
		time.Sleep(time.Minute + 5*time.Second) // the longest back-off
		absent("nobody", true)
	})
}

// TestFilterKeysThatDoNotReturn: a Keys that panics or ends its goroutine is a build that failed; one that stops when it is told to, because Run ends, is none that is
// complete.
func TestFilterKeysThatDoNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		call := 0
		w.cfg.Keys = func(_ context.Context, yield func(string) bool) error {
			switch call++; call {
			case 1:
				panic("no such table")
			case 2:
				runtime.Goexit()
			}
			yield("row")
			return nil
		}
		f, end := w.alone()
		defer end()
		for _, why := range []string{"no such table", "Goexit"} {
			until(t, time.Minute, "a build has failed: "+why, func() bool { return strings.Contains(f.Stats().Why, why) })
		}
		time.Sleep(time.Minute)
		if !f.Absent("nobody", time.Now()) || f.Absent("row", time.Now()) {
			t.Errorf("%+v", f.Stats())
		}
		if s := f.Stats(); s.Failures != 2 {
			t.Errorf("%d failures, want 2", s.Failures)
		}
	})
}

// TestFilterGrows: more rows than were expected are known all the same, and the next build, which comes at once, has room for them.
func TestFilterGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		w.cfg.ExpectedKeys, w.cfg.RebuildEvery, w.cfg.FalsePositives = 100, time.Hour, 0.01
		f, end := w.alone()
		defer end()
		time.Sleep(5 * time.Second)
		for i := range 1000 {
			key := fmt.Sprint("row", i)
			w.commit(key)
			if err := f.Add(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		before := f.Stats()
		if before.Estimated < 0.3 || before.Keys < 300 {
			t.Errorf("1,000 keys where 100 were expected: %+v", before)
		}
		time.Sleep(time.Minute)
		s := f.Stats()
		if s.Keys < 980 || s.Keys > s.Capacity*3/2 || s.Capacity > 2000 || s.Estimated > 0.07 || s.Builds < 2 || s.Builds > 4 {
			t.Errorf("after the filter has grown: %+v", s)
		}
	})
}

// TestFilterMeasures: the share of false positives that Stats tells is what was counted, and what so many keys make likely.
func TestFilterMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		w.cfg.ExpectedKeys, w.cfg.FalsePositives, w.cfg.RebuildEvery = 2000, 0.01, time.Hour
		for i := range w.cfg.ExpectedKeys {
			w.commit(fmt.Sprint("row", i))
		}
		f, end := w.alone()
		defer end()
		time.Sleep(time.Minute)
		if m := f.Stats().Measured(); m != 0 {
			t.Errorf("measured before the first question: %v", m)
		}
		const absent = 50_000
		falses := 0
		for i := range absent {
			if now := time.Now(); !f.Absent(fmt.Sprint("nobody", i), now) {
				f.Missed(now)
				falses++
			}
		}
		s := f.Stats()
		if got := s.Measured(); got != float64(falses)/absent || got > 1.5*s.Estimated || got < s.Estimated/1.5 || s.Lookups != absent {
			t.Errorf("measured %v, counted %d of %d: %+v", got, falses, absent, s)
		}
	})
}

// TestFilterConcurrently: on real processors, additions, questions and builds at once lose no key.
func TestFilterConcurrently(t *testing.T) {
	const writers, each = 4, 5000
	w := newFilterWorld(t, 1)
	var mu sync.Mutex
	var rows []string
	var builds atomic.Int32
	w.cfg.ExpectedKeys, w.cfg.RebuildEvery = writers*each, time.Second
	w.cfg.Keys = func(_ context.Context, yield func(string) bool) error {
		builds.Add(1)
		mu.Lock()
		now := rows
		mu.Unlock()
		for _, row := range now {
			yield(row)
		}
		return nil
	}
	f, end := w.alone()
	defer end()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range each {
				key := fmt.Sprint(i, "/", n)
				mu.Lock()
				rows = append(rows, key)
				mu.Unlock()
				if err := f.Add(t.Context(), key); err != nil {
					t.Error(err)
				}
				for _, k := range []int{n, n / 2, 0} {
					if key := fmt.Sprint(i, "/", k); f.Absent(key, time.Now()) {
						t.Errorf("%s is absent", key)
					}
				}
				if n%100 == 0 {
					time.Sleep(50 * time.Millisecond) // so that it takes some builds
				}
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n < 2 {
		t.Errorf("%d builds: too few for this to be a test", n)
	}
}
