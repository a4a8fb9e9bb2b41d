// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"math"
	"testing"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

func TestEarly(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name            string
		age, soft, cost time.Duration
		beta, draw      float64
		want            bool
	}{
		{"due", 10 * s, 10 * s, 0, 0, 0, true},
		{"overdue", 11 * s, 10 * s, s, 1, 0, true},
		{"draw 0 adds nothing", 10*s - 1, 10 * s, s, 1, 0, false},
		// 1 s of cost reaches 1 s ahead when -ln(1-draw) >= 1, that is from draw 0.6321 on.
		{"just too far", 9 * s, 10 * s, s, 1, 0.6320, false},
		{"just near enough", 9 * s, 10 * s, s, 1, 0.6322, true},
		{"beta 2 reaches twice as far", 8 * s, 10 * s, s, 2, 0.6322, true},
		{"highest draw", 0, time.Hour, s, 1, math.Nextafter(1, 0), false},
		{"draw 1 is no draw", 0, time.Hour, s, 1, 1, false},
		{"draw NaN", 0, time.Hour, s, 1, math.NaN(), false},
		{"draw below 0", 0, time.Hour, s, 1, -5, false},
		{"no cost", 9 * s, 10 * s, 0, 1, 0.99, false},
		{"negative cost", 9 * s, 10 * s, -s, 1, 0.99, false},
		{"beta 0", 9 * s, 10 * s, s, 0, 0.99, false},
		{"beta NaN", 9 * s, 10 * s, s, math.NaN(), 0.99, false},
		{"beta infinite", 0, 10 * s, s, math.Inf(1), 0.5, true},
		{"negative age is 0", -time.Hour, 10 * s, 4 * s, 1, 0.95, true},
		{"huge", math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64, 1, 0.5, true},
	} {
		if got := stampede.Early(c.age, c.soft, c.cost, c.beta, c.draw); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestEarly_Probability compares with the formula: at distance g from the due
// time a reader is elected with probability exp(-g/(cost*beta)).
func TestEarly_Probability(t *testing.T) {
	const soft, cost, draws = time.Minute, 200 * time.Millisecond, 10_000
	for _, beta := range []float64{0.5, 1, 3} {
		for _, gap := range []time.Duration{time.Millisecond, 50 * time.Millisecond, cost, time.Second} {
			elected := 0
			for i := range draws {
				if stampede.Early(soft-gap, soft, cost, beta, (float64(i)+0.5)/draws) {
					elected++
				}
			}
			got, want := float64(elected)/draws, math.Exp(-gap.Seconds()/(cost.Seconds()*beta))
			if math.Abs(got-want) > 1.0/draws {
				t.Errorf("beta %v, %v ahead: share %v, want %v", beta, gap, got, want)
			}
		}
	}
}
