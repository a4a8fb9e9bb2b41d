// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package meter_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/bench/meter"
)

// always is one operation for all goroutines.
func always(op meter.Op) func(int) meter.Op { return func(int) meter.Op { return op } }

func TestMeasureCounts(t *testing.T) {
	var kept [4][]byte
	s, err := meter.Measure(t.Context(), meter.Plan{For: 50 * time.Millisecond, Goroutines: 4, TimeEvery: 1}, func(g int) meter.Op {
		return func(context.Context, *meter.Turn) (int, error) {
			time.Sleep(5 * time.Millisecond)
			kept[g] = make([]byte, 1000)
			return 3, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Wall < 50*time.Millisecond {
		t.Errorf("ended after %v", s.Wall)
	}
	if most := int64(4 * 3 * (s.Wall/(5*time.Millisecond) + 1)); s.Ops < 12 || s.Ops > most || s.Ops%3 != 0 {
		t.Errorf("%d operations in %v, want 12 to %d, by threes", s.Ops, s.Wall, most)
	}
	if s.P50 < 5*time.Millisecond || s.P99 < s.P50 {
		t.Errorf("p50 %v, p99 %v of sleeps of 5 ms", s.P50, s.P99)
	}
	if calls := uint64(s.Ops / 3); s.Mallocs < calls || s.Bytes < 1000*calls {
		t.Errorf("%d allocations of %d bytes in %d calls that make one of 1,000", s.Mallocs, s.Bytes, calls)
	}
}

// TestMeasureBegins: each goroutine has done something, however short the time is.
func TestMeasureBegins(t *testing.T) {
	s, err := meter.Measure(t.Context(), meter.Plan{For: 1, Goroutines: 100}, always(func(context.Context, *meter.Turn) (int, error) { return 1, nil }))
	if err != nil || s.Ops < 100 {
		t.Errorf("%d operations of 100 goroutines, %v", s.Ops, err)
	}
}

func TestMeasureErrors(t *testing.T) {
	bad := errors.New("bad")
	plenty := func(context.Context, *meter.Turn) (int, error) { return 1000, nil }
	s, err := meter.Measure(t.Context(), meter.Plan{For: 10 * time.Millisecond, Goroutines: 2}, func(g int) meter.Op {
		failed := g > 0
		return func(ctx context.Context, turn *meter.Turn) (int, error) {
			if !failed {
				failed = true
				return 0, bad
			}
			return plenty(ctx, turn)
		}
	})
	if err != nil || s.Failed != 1 || s.Error != "bad" {
		t.Errorf("one failure of many: %v, %+v", err, s)
	}
	_, err = meter.Measure(t.Context(), meter.Plan{For: 10 * time.Millisecond}, always(func(context.Context, *meter.Turn) (int, error) { return 0, bad }))
	if err == nil || !strings.Contains(err.Error(), "bad") {
		t.Errorf("nothing but failures: %v", err)
	}
	if _, err := meter.Measure(t.Context(), meter.Plan{}, always(plenty)); err == nil {
		t.Error("a plan without a time is none")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := meter.Measure(ctx, meter.Plan{For: 10 * time.Millisecond}, always(plenty)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestMeasureProcs(t *testing.T) {
	before, seen := runtime.GOMAXPROCS(0), 0
	_, err := meter.Measure(t.Context(), meter.Plan{For: time.Millisecond, Procs: 1}, always(func(context.Context, *meter.Turn) (int, error) {
		seen = runtime.GOMAXPROCS(0)
		return 1, nil
	}))
	if err != nil || seen != 1 || runtime.GOMAXPROCS(0) != before {
		t.Errorf("%v: GOMAXPROCS was %d in the run and %d behind it, want 1 and %d", err, seen, runtime.GOMAXPROCS(0), before)
	}
}

// TestTurnIsEven: each of ten numbers comes up a tenth of the time.
func TestTurnIsEven(t *testing.T) {
	var turn meter.Turn
	var seen [10]int
	for range 100_000 {
		seen[turn.Next(10)]++
	}
	for i, n := range seen {
		if n < 9500 || n > 10_500 {
			t.Errorf("%d came %d times of 100,000", i, n)
		}
	}
}
