// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Zipf draws ranks 0 to n-1, rank 0 most often: rank k with a probability
// proportional to 1/(k+1)^s. It stands for the popularity of keys; web and
// key-value traffic is usually modelled with s from 0.6 to 1.2, and YCSB's
// standard is 0.99 (Cooper et al., SoCC 2010).
//
// math/rand's Zipf covers s > 1 only. This one takes any s >= 0 (0 is uniform) by
// rejection-inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to
// generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996.
// It needs no table: a draw costs some 150 ns whatever n is, nearly all of it for
// logarithms and exponentials. The arithmetic near s = 1 follows Apache Commons RNG, which
// describes it in RejectionInversionZipfSampler.
//
// A Zipf is not safe for concurrent use: give each goroutine its own seed.
type Zipf struct {
	rand *rand.Rand
	s    float64
	n    int

	// The area under the hat, from its left end to its right end, in which a draw
	// falls; and the width at the left of each rank at which it is always accepted.
	areaLow, areaHigh float64
	sure              float64
}

// maxRanks keeps every rank exact as a float64, and far from overflow.
const maxRanks = 1 << 50

// NewZipf returns a source of ranks from 0 to n-1 with exponent s. Equal
// arguments give equal sequences. n must be from 1 to 2^50 and s from 0 to 100.
func NewZipf(seed uint64, s float64, n int) (*Zipf, error) {
	if n < 1 || n > maxRanks {
		return nil, fmt.Errorf("workload: Zipf n is %d: must be from 1 to 2^50", n)
	}
	if !(s >= 0 && s <= 100) { // also refuses NaN
		return nil, fmt.Errorf("workload: Zipf s is %v: must be from 0 to 100", s)
	}
	z := &Zipf{rand: rand.New(rand.NewPCG(seed, 0)), s: s, n: n}
	z.areaLow = z.area(1.5) - 1
	z.areaHigh = z.area(float64(n) + 0.5)
	z.sure = 2 - z.areaInverse(z.area(2.5)-z.density(2))
	return z, nil
}

// Next draws a rank.
//
// The density 1/x^s is integrated over [k-1/2, k+1/2] for rank k: more than the
// bar of height 1/k^s, since the density is convex. So a point is drawn evenly
// from the area, mapped to its rank by the inverse of the integral, and rejected
// where it falls into the part that the rank's bar does not have.
func (z *Zipf) Next() int {
	for {
		u := z.areaHigh + z.rand.Float64()*(z.areaLow-z.areaHigh)
		x := z.areaInverse(u)
		k := min(max(math.Floor(x+0.5), 1), float64(z.n))
		if k-x <= z.sure || u >= z.area(k+0.5)-z.density(k) {
			return int(k) - 1
		}
	}
}

// density is 1/x^s.
func (z *Zipf) density(x float64) float64 { return math.Exp(-z.s * math.Log(x)) }

// area is the integral of the density from 1 to x: (x^(1-s) - 1) / (1-s), or
// log x where s is 1.
func (z *Zipf) area(x float64) float64 {
	log := math.Log(x)
	return expm1Over((1-z.s)*log) * log
}

// areaInverse returns the x whose area is u.
func (z *Zipf) areaInverse(u float64) float64 {
	t := max(u*(1-z.s), -1) // below -1 by rounding only, where s > 1
	return math.Exp(log1pOver(t) * u)
}

// log1pOver is log(1+x)/x, by its series around 0, where s is near 1.
func log1pOver(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Log1p(x) / x
	}
	return 1 - x*(0.5-x*(1.0/3-0.25*x))
}

// expm1Over is (exp(x)-1)/x, by its series around 0.
func expm1Over(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Expm1(x) / x
	}
	return 1 + x*0.5*(1+x*(1.0/3)*(1+0.25*x))
}
