// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/workload"
)

// sortedQuantile is the simple twin: the ceil(q*n)-th smallest.
func sortedQuantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func TestQuantilesAgreeWithASort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shapes := map[string]func() time.Duration{
		"nanoseconds": func() time.Duration { return time.Duration(rng.IntN(256)) },
		"uniform":     func() time.Duration { return time.Duration(rng.Int64N(int64(time.Second))) },
		"exponential": func() time.Duration { return time.Duration(rng.ExpFloat64() * float64(time.Millisecond)) },
		"all scales":  func() time.Duration { return time.Duration(math.Exp(rng.Float64() * 29)) }, // 1 ns to 65 min
		"one value":   func() time.Duration { return 123_456 },
	}
	for name, draw := range shapes {
		for _, n := range []int{1, 2, 7, 10_000} {
			var l workload.Latencies
			all := make([]time.Duration, n)
			var sum time.Duration
			for i := range all {
				all[i] = draw()
				sum += all[i]
				l.Record(all[i])
			}
			slices.Sort(all)
			for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
				got, want := l.Quantile(q), sortedQuantile(all, q)
				if off := math.Abs(float64(got - want)); off > float64(want)/256 {
					t.Errorf("%s, %d values: quantile %v is %v, want %v within 1/256", name, n, q, got, want)
				}
			}
			if l.Count() != uint64(n) || l.Max() != all[n-1] || l.Mean() != sum/time.Duration(n) {
				t.Errorf("%s: count %d max %v mean %v, want %d %v %v", name, l.Count(), l.Max(), l.Mean(), n, all[n-1], sum/time.Duration(n))
			}
		}
	}
}

func TestLatenciesAtTheEnds(t *testing.T) {
	var l workload.Latencies
	if l.Count() != 0 || l.Max() != 0 || l.Mean() != 0 || l.Quantile(0.99) != 0 {
		t.Error("an empty histogram is not all zero")
	}
	l.Record(-time.Second)
	if l.Max() != 0 || l.Quantile(1) != 0 || l.Count() != 1 {
		t.Error("a negative duration is not 0")
	}
	l.Record(100 * time.Hour)
	l.Record(math.MaxInt64)
	if l.Max() != math.MaxInt64 || l.Quantile(1) != math.MaxInt64 {
		t.Errorf("max %v", l.Max())
	}
	if got := l.Quantile(0.5).Minutes(); got < 72 || got > 74 {
		t.Errorf("100 h count as %v min, want 73", got)
	}
	if l.Quantile(-1) != l.Quantile(0) || l.Quantile(2) != l.Quantile(1) {
		t.Error("quantiles outside of 0 to 1 are not brought into it")
	}
}

func TestMergeIsAsIfRecordedHere(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var whole, left, right workload.Latencies
	for i := range 10_000 {
		d := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
		whole.Record(d)
		if i%3 == 0 {
			left.Record(d)
		} else {
			right.Record(d)
		}
	}
	left.Merge(&right)
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		if left.Quantile(q) != whole.Quantile(q) {
			t.Errorf("quantile %v: %v, want %v", q, left.Quantile(q), whole.Quantile(q))
		}
	}
	if left.Count() != whole.Count() || left.Mean() != whole.Mean() || left.Max() != whole.Max() {
		t.Error("count, mean or max differ")
	}
}

func TestLatenciesAreSafeForConcurrentUse(t *testing.T) {
	var l, other workload.Latencies
	other.Record(time.Second)
	var wg sync.WaitGroup
	const workers, each = 8, 2000
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				l.Record(time.Duration(w*each + i))
				if i%500 == 0 {
					l.Quantile(0.5)
					l.Merge(&other)
				}
			}
		})
	}
	wg.Wait()
	if want := uint64(workers * (each + 4)); l.Count() != want || l.Max() != time.Second {
		t.Errorf("count %d max %v, want %d and 1s", l.Count(), l.Max(), want)
	}
}
