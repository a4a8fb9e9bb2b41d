// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"math"
	"slices"
)

// estimate is a ratio, and the interval in which it lies.
type estimate struct {
	Mid, Low, High float64
}

// median of values that need not be sorted; NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

// ratio estimates a/b from rounds: a[i] and b[i] were measured one shortly after the other, so that what the machine did to both cancels.
//
// It is the Hodges-Lehmann estimate on the logarithms, the median of the means of all pairs of rounds, with the interval that belongs to Wilcoxon's signed-rank test
// (Hollander, Wolfe, Chicken, Nonparametric Statistical Methods, 3rd ed. 2014, sections 3.1 to 3.3). It assumes that the rounds are independent and the logarithms spread
// evenly to both sides, not that they are normal; a round that was disturbed moves it little.
//
// confidence is that of the interval, as in 0.95. With too few rounds for it (below six for 0.95, eight for 0.99, eleven for 0.999) the interval is from the
// smallest to the largest ratio.
func ratio(a, b []float64, confidence float64) estimate {
	n := min(len(a), len(b))
	if n == 0 {
		return estimate{math.NaN(), math.NaN(), math.NaN()}
	}
	logs := make([]float64, n)
	for i := range logs {
		logs[i] = math.Log(a[i] / b[i])
	}
	means := make([]float64, 0, n*(n+1)/2)
	for i := range logs {
		for j := i; j < n; j++ {
			means = append(means, (logs[i]+logs[j])/2)
		}
	}
	slices.Sort(means)
	k := critical(n, 1-confidence)
	return estimate{math.Exp(median(means)), math.Exp(means[k]), math.Exp(means[len(means)-1-k])}
}

// critical is the largest k for which the signed-rank sum of n is at most k with a probability of at most alpha/2; 0 where there is none. Of the
// n(n+1)/2 means so many are left out at each end of the interval.
func critical(n int, alpha float64) int {
	// ways[s] is how many of the 2^n subsets of the ranks 1 to n have the sum s.
	ways := make([]float64, n*(n+1)/2+1)
	ways[0] = 1
	for rank := 1; rank <= n; rank++ {
		for s := len(ways) - 1; s >= rank; s-- {
			ways[s] += ways[s-rank]
		}
	}
	var below float64
	for k := range ways {
		below += ways[k]
		if below/math.Pow(2, float64(n)) > alpha/2 {
			return max(k-1, 0)
		}
	}
	return 0
}
