// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck_test

import (
	"math"
	"testing"

	"github.com/go-shelf/shelf/internal/stalecheck"
)

// TestUpperBound compares with values from elsewhere: 1 - 0.05^(1/n); the sum of the binomial itself; and, for many reads, half the 0.95 quantile of
// chi-squared with 2x+2 degrees of freedom (F. Garwood, Biometrika 28, 1936), as tables have it.
func TestUpperBound(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 1e-3 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("0 of 100", stalecheck.UpperBound(0, 100), 1-math.Pow(0.05, 0.01))
	near("0 of a million, by the rule of three", stalecheck.UpperBound(0, 1e6), 2.9957e-6)
	for x, want := range map[uint64]float64{1: 4.7439, 2: 6.2958, 10: 16.962, 100: 118.08} {
		near("many reads", stalecheck.UpperBound(x, 1e9), want/1e9)
	}
	for _, c := range [][2]uint64{{1, 10}, {5, 100}, {9, 10}, {50, 60}, {30, 1000}} {
		p := stalecheck.UpperBound(c[0], c[1])
		near("the chance at the bound", sum(c[0], c[1], p), 0.05)
	}
	for _, c := range [][2]uint64{{0, 0}, {3, 3}} {
		if p := stalecheck.UpperBound(c[0], c[1]); p != 1 {
			t.Errorf("%d of %d: %v, want 1", c[0], c[1], p)
		}
	}
	near("nines", stalecheck.Nines(0.001), 3)
}

// sum is P(X <= k), term by term.
func sum(k, n uint64, p float64) float64 {
	total := 0.0
	for i := range k + 1 {
		c, _ := math.Lgamma(float64(n + 1))
		a, _ := math.Lgamma(float64(i + 1))
		b, _ := math.Lgamma(float64(n - i + 1))
		total += math.Exp(c - a - b + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return total
}
