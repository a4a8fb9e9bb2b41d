// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"math"
	"testing"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

func TestBackoff(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		n           int
		first, most time.Duration
		draw        float64
		want        time.Duration
	}{
		{1, s, 30 * s, 0, s}, {2, s, 30 * s, 0, 2 * s}, {5, s, 30 * s, 0, 16 * s}, {6, s, 30 * s, 0, 30 * s}, {1000, s, 30 * s, 0, 30 * s},
		{1, s, 30 * s, 0.5, 750 * time.Millisecond}, {3, s, 30 * s, 1, 2 * s}, {6, s, 30 * s, 1, 15 * s},
		{0, s, 30 * s, 0, s}, {-1, s, 30 * s, 0, s}, {1, 9 * s, 5 * s, 0, 5 * s}, {2, s, 30 * s, math.NaN(), 2 * s}, {2, s, 30 * s, 7, s},
		{1000, s, math.MaxInt64, 0, math.MaxInt64},
	} {
		if got := stampede.Backoff(c.n, c.first, c.most, c.draw); got != c.want {
			t.Errorf("Backoff(%d, %v, %v, %v) is %v, want %v", c.n, c.first, c.most, c.draw, got, c.want)
		}
	}
}
