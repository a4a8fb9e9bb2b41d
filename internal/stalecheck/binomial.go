// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck

import "math"

// UpperBound is the largest share of stale reads that still has a chance of 5 % to show no more than stale of n: the upper end of a one-sided 95 %
// confidence interval (C. Clopper, E. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26,
// 1934). Where none is stale it is 1 - 0.05^(1/n), a little below the rule of three, 3/n (J. Hanley, A. Lippman-Hand, "If nothing goes wrong, is
// everything all right?", JAMA 249, 1983). Without reads it is 1.
func UpperBound(stale, n uint64) float64 {
	const chance = 0.05
	switch {
	case stale >= n:
		return 1
	case stale == 0:
		return -math.Expm1(math.Log(chance) / float64(n))
	}
	// P(X <= stale) falls as the share grows: bisection, on a logarithmic scale since shares are small.
	low, high := math.Log(float64(stale)/float64(n)), 0.0
	for range 60 {
		middle := (low + high) / 2
		if atMost(stale, n, math.Exp(middle)) > chance {
			low = middle
		} else {
			high = middle
		}
	}
	return math.Exp(high)
}

// Nines writes a share of failures as nines: 0.001 is 3. None is +Inf.
func Nines(share float64) float64 { return -math.Log10(share) }

// atMost is P(X <= k) for X binomial (n, p), as the regularized incomplete beta function I_{1-p}(n-k, k+1) (DLMF 8.17.5).
func atMost(k, n uint64, p float64) float64 {
	return regularizedBeta(1-p, p, float64(n-k), float64(k)+1)
}

// regularizedBeta is I_x(a, b), by the continued fraction DLMF 8.17.22, which is quick for x < (a+1)/(a+b+2); elsewhere by 8.17.4. y is 1-x, given
// apart since x may be so near to 1 that the difference would be gone.
func regularizedBeta(x, y, a, b float64) float64 {
	if x <= 0 || y <= 0 {
		return max(0, min(1, x))
	}
	if x > (a+1)/(a+b+2) {
		return 1 - regularizedBeta(y, x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab - la - lb + a*math.Log(x) + b*math.Log(y))
	return front / a / betaFraction(x, a, b)
}

// betaFraction is the denominator 1 + d1/(1 + d2/(1 + ...)), by Lentz's method (W. Lentz, Applied Optics 15, 1976; Thompson and Barnett's form).
func betaFraction(x, a, b float64) float64 {
	const tiny, precision, most = 1e-300, 1e-14, 100_000
	f, c, d := 1.0, 1.0, 0.0
	for i := 1; i <= most; i++ {
		m := float64(i / 2)
		var coefficient float64
		if i%2 == 0 {
			coefficient = m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		} else {
			coefficient = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		d = 1 / notZero(1+coefficient*d, tiny)
		c = notZero(1+coefficient/c, tiny)
		f *= c * d
		if math.Abs(c*d-1) < precision {
			break
		}
	}
	return f
}

func notZero(v, tiny float64) float64 {
	if math.Abs(v) < tiny {
		return tiny
	}
	return v
}
