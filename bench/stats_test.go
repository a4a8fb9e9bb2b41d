// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := median(tc.of); got != tc.want {
			t.Errorf("median of %v is %v, want %v", tc.of, got, tc.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

// TestCritical compares with the printed tables of the signed-rank test.
func TestCritical(t *testing.T) {
	for _, tc := range []struct {
		n     int
		alpha float64
		want  int
	}{
		{5, 0.05, 0}, {6, 0.05, 0}, {7, 0.05, 2}, {8, 0.05, 3}, {9, 0.05, 5}, {10, 0.05, 8}, {15, 0.05, 25}, {20, 0.05, 52}, {25, 0.05, 89},
		{10, 0.001, 0}, {11, 0.001, 0}, {12, 0.001, 1}, {7, 0.01, 0}, {8, 0.01, 0}, {9, 0.01, 1}, {10, 0.01, 3}, {20, 0.01, 37},
	} {
		if got := critical(tc.n, tc.alpha); got != tc.want {
			t.Errorf("critical(%d, %v) is %d, want %d", tc.n, tc.alpha, got, tc.want)
		}
	}
}

// drawn are rounds of two contenders on a machine that is slower in some rounds for both: a takes times as long as b.
func drawn(r *rand.Rand, n int, times, noise float64) (a, b []float64) {
	for range n {
		machine := math.Exp(0.3 * r.NormFloat64())
		a = append(a, machine*times*math.Exp(noise*r.NormFloat64()))
		b = append(b, machine*math.Exp(noise*r.NormFloat64()))
	}
	return a, b
}

// TestRatioCovers: a 95 % interval holds the true ratio in 95 of 100 cases, whatever the ratio is.
func TestRatioCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const trials = 2000
	for _, times := range []float64{0.5, 1, 3} {
		covered := 0
		var mids []float64
		for range trials {
			a, b := drawn(r, 9, times, 0.05)
			e := ratio(a, b, 0.95)
			if e.Low <= times && times <= e.High {
				covered++
			}
			if !(e.Low <= e.Mid && e.Mid <= e.High) {
				t.Fatalf("%v is not in its interval", e)
			}
			mids = append(mids, e.Mid)
		}
		if share := float64(covered) / trials; share < 0.94 || share > 0.98 {
			t.Errorf("times %v: %.1f %% of the intervals hold it, want 95 %%", times, 100*share)
		}
		if m := median(mids); math.Abs(m/times-1) > 0.005 {
			t.Errorf("times %v: the estimate's median is %v", times, m)
		}
	}
}

// TestRatioBearsADisturbance: a round in which something else had the machine hardly moves the estimate.
func TestRatioBearsADisturbance(t *testing.T) {
	a, b := drawn(rand.New(rand.NewPCG(3, 4)), 9, 2, 0.01)
	before := ratio(a, b, 0.95)
	a[4] *= 20
	after := ratio(a, b, 0.95)
	if math.Abs(after.Mid/before.Mid-1) > 0.02 {
		t.Errorf("the estimate went from %v to %v", before, after)
	}
}

func TestRatioOfFewRounds(t *testing.T) {
	if e := ratio([]float64{2, 6}, []float64{1, 2}, 0.95); fmt.Sprintf("%.3f", e.Mid) != "2.449" || math.Abs(e.Low-2) > 1e-9 || math.Abs(e.High-3) > 1e-9 {
		t.Errorf("of two rounds: %v, want 2.449 from 2 to 3", e)
	}
	if e := ratio(nil, nil, 0.95); !math.IsNaN(e.Mid) {
		t.Errorf("of none: %v", e)
	}
}

// TestVerdicts: what is slower by a tenth is found, what is not is passed, what cannot be told is said.
func TestVerdicts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	pairs := func(n int, times, noise float64) []float64 {
		a, b := drawn(r, n, times, noise)
		for i := range a {
			a[i] /= b[i]
		}
		return a
	}
	for _, tc := range []struct {
		name            string
		n               int
		wall, cpu       float64
		wallNoise       float64
		word            string
		atLeast, atMost int // of 200
	}{
		{"the same", 11, 1, 1, 0.01, pathPass, 195, 200},
		{"more processor time", 11, 1, 1.1, 0.01, pathFail, 195, 200},
		{"more time", 11, 1.1, 1, 0.01, pathFail, 195, 200},
		{"quicker", 11, 0.8, 0.8, 0.01, pathPass, 195, 200},
		{"a little slower", 11, 1.03, 1.03, 0.005, pathPass, 190, 200},
		{"the same, on a machine that is too busy", 11, 1, 1, 0.3, pathUnsure, 150, 200},
		{"the same, on a machine that is too busy", 11, 1, 1, 0.3, pathFail, 0, 2},
	} {
		words := 0
		for range 200 {
			v := &verdict{wall: pairs(tc.n, tc.wall, tc.wallNoise), cpu: pairs(tc.n, tc.cpu, 0.01)}
			if v.word() == tc.word {
				words++
			}
		}
		if words < tc.atLeast || words > tc.atMost {
			t.Errorf("%s: %d of 200 are %s, want %d to %d", tc.name, words, tc.word, tc.atLeast, tc.atMost)
		}
	}
}

func TestCodeOfVerdicts(t *testing.T) {
	same, slower := slices.Repeat([]float64{1}, 11), slices.Repeat([]float64{1.1}, 11)
	vague := []float64{0.8, 1.3, 0.7, 1.2, 0.9, 1.4, 0.8, 1.1}
	pass, fail, unsure := &verdict{wall: same, cpu: same}, &verdict{wall: same, cpu: slower}, &verdict{wall: vague, cpu: same}
	for _, tc := range []struct {
		of   verdicts
		want int
	}{{nil, 1}, {verdicts{pass}, 0}, {verdicts{pass, unsure}, 2}, {verdicts{unsure, pass, fail}, 1}, {verdicts{{}}, 2}, {verdicts{{wall: slower[:10], cpu: slower[:10]}}, 2}} {
		if got := tc.of.code(); got != tc.want {
			t.Errorf("%s: code %d, want %d", tc.of.table("b", "a"), got, tc.want)
		}
	}
}
