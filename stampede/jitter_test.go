// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// TestRB10_JitterIsPositiveAndBounded: whatever lifetime and share are
// configured, the drawn lifetime is at least 1 ms and inside its bounds; and
// where there is room it really spreads, around the documented mean.
func TestRB10_JitterIsPositiveAndBounded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, ttl := range []time.Duration{1, time.Millisecond, 9 * time.Millisecond, time.Second, 24 * time.Hour, math.MaxInt64} {
		for _, share := range []float64{0, 0.01, 0.1, 1} {
			low := max(time.Millisecond, time.Duration(math.Floor(float64(ttl)*(1-share))))
			high := max(time.Millisecond, ttl)
			var sum, squares float64
			const draws = 10_000
			for range draws {
				got := stampede.Jitter(ttl, share, rnd.Float64())
				if got < low || got > high {
					t.Fatalf("ttl %v, share %v: %v is outside [%v, %v]", ttl, share, got, low, high)
				}
				sum += got.Seconds()
				squares += got.Seconds() * got.Seconds()
			}
			if ttl < time.Second {
				continue // the floor bends the distribution
			}
			mean, want := sum/draws, ttl.Seconds()*(1-share/2)
			if math.Abs(mean-want) > want*0.01 && share < 1 {
				t.Errorf("ttl %v, share %v: mean %v, want %v", ttl, share, mean, want)
			}
			spread := math.Sqrt(max(0, squares/draws-mean*mean))
			if ttl == time.Second && share == 0.1 && spread < 0.02 {
				t.Errorf("ttl 1s, share 10%%: standard deviation %v s, want over 0.02", spread)
			}
		}
	}
}

func TestJitter_Edges(t *testing.T) {
	for _, c := range []struct {
		ttl         time.Duration
		share, draw float64
		want        time.Duration
	}{
		{time.Second, 0, 0.999, time.Second},
		{time.Second, 0.1, 0, time.Second},
		{time.Second, 0.1, 0.5, 950 * time.Millisecond},
		{time.Second, 1, 1, time.Millisecond},
		{time.Second, 7, 0.5, 500 * time.Millisecond},
		{time.Second, -1, 0.5, time.Second},
		{time.Second, math.NaN(), 0.5, time.Second},
		{time.Second, 0.5, math.NaN(), time.Second},
		{time.Second, math.Inf(1), 0.5, 500 * time.Millisecond},
		{math.MaxInt64, 0, 0.5, math.MaxInt64},
		{math.MaxInt64, 1, 1, time.Millisecond},
		{0, 0.1, 0.5, time.Millisecond},
		{-time.Hour, 0.1, 0.5, time.Millisecond},
		{-time.Hour, 0, 0, time.Millisecond},
		{math.MinInt64, 1, 1, time.Millisecond},
		{1, 0, 0, time.Millisecond},
	} {
		if got := stampede.Jitter(c.ttl, c.share, c.draw); got != c.want {
			t.Errorf("Jitter(%v, %v, %v) = %v, want %v", c.ttl, c.share, c.draw, got, c.want)
		}
	}
}
