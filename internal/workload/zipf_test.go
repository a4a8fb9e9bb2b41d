// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload_test

import (
	"math"
	"testing"

	"github.com/go-shelf/shelf/internal/workload"
)

func newZipf(tb testing.TB, seed uint64, s float64, n int) *workload.Zipf {
	tb.Helper()
	z, err := workload.NewZipf(seed, s, n)
	if err != nil {
		tb.Fatal(err)
	}
	return z
}

// law is the exact probability of each rank.
func law(s float64, n int) []float64 {
	p := make([]float64, n)
	var sum float64
	for k := range p {
		p[k] = math.Pow(float64(k+1), -s)
		sum += p[k]
	}
	for k := range p {
		p[k] /= sum
	}
	return p
}

// Pearson's chi-square against the exact law. Its mean is the number of degrees
// of freedom and its variance twice that, so five standard deviations above is
// beyond chance; the seeds are fixed, so the verdict never changes.
func TestZipfFollowsItsLaw(t *testing.T) {
	const draws = 200_000
	for _, n := range []int{2, 10, 1000} {
		for _, s := range []float64{0, 0.7, 0.99, 1, 1.2, 3} {
			z := newZipf(t, 42, s, n)
			seen := make([]int, n)
			for range draws {
				seen[z.Next()]++
			}
			// Ranks too rare for the test are counted together, in order.
			var chi, expected, observed float64
			cells := 0
			for k, p := range law(s, n) {
				expected += p * draws
				observed += float64(seen[k])
				if expected >= 20 {
					chi += (observed - expected) * (observed - expected) / expected
					expected, observed = 0, 0
					cells++
				}
			}
			free := float64(cells - 1)
			if limit := free + 5*math.Sqrt(2*free); chi > limit+1e-9 {
				t.Errorf("s=%v n=%d: chi-square %.1f with %v degrees of freedom, limit %.1f", s, n, chi, free, limit)
			}
		}
	}
}

// The sum of 1/k^s over a thousand million ranks is not worth adding up; Euler
// and Maclaurin give it to many digits from its integral.
func TestZipfOverManyRanks(t *testing.T) {
	const n, draws, s = 1_000_000_000, 400_000, 0.99
	const cut = 1000
	head := 0.0
	for k := 1; k < cut; k++ {
		head += math.Pow(float64(k), -s)
	}
	integral := (math.Pow(n, 1-s) - math.Pow(cut, 1-s)) / (1 - s)
	total := head + integral + (math.Pow(cut, -s)+math.Pow(n, -s))/2 + s*math.Pow(cut, -s-1)/12

	z := newZipf(t, 1, s, n)
	var first, inHead, inLowerHalf int
	for range draws {
		k := z.Next()
		if k == 0 {
			first++
		}
		if k < cut-1 {
			inHead++
		}
		if k < n/2 {
			inLowerHalf++
		}
	}
	lower := 1 - (math.Pow(n, 1-s)-math.Pow(n/2, 1-s))/(1-s)/total
	for _, c := range []struct {
		what  string
		seen  int
		share float64
	}{{"rank 0", first, 1 / total}, {"ranks below 999", inHead, head / total}, {"lower half", inLowerHalf, lower}} {
		off := math.Abs(float64(c.seen) - c.share*draws)
		if limit := 5 * math.Sqrt(c.share*(1-c.share)*draws); off > limit {
			t.Errorf("%s: drawn %d times, want %.0f within %.0f", c.what, c.seen, c.share*draws, limit)
		}
	}
}

func TestZipfIsRepeatable(t *testing.T) {
	a, b, c := newZipf(t, 7, 0.99, 1000), newZipf(t, 7, 0.99, 1000), newZipf(t, 8, 0.99, 1000)
	differs := false
	for i := range 1000 {
		x, y := a.Next(), b.Next()
		if x != y {
			t.Fatalf("draw %d: %d and %d from the same seed", i, x, y)
		}
		differs = differs || x != c.Next()
	}
	if !differs {
		t.Error("another seed gives the same sequence")
	}
}

func TestZipfStaysInRange(t *testing.T) {
	for _, s := range []float64{0, 0.5, 1, 2, 50, 100} {
		for _, n := range []int{1, 2, 3, 1 << 50} {
			z := newZipf(t, 3, s, n)
			for range 1000 {
				if k := z.Next(); k < 0 || k >= n {
					t.Fatalf("s=%v n=%d: rank %d", s, n, k)
				}
			}
		}
	}
}

func TestNewZipfRefuses(t *testing.T) {
	cases := []struct {
		s    float64
		n    int
		want string
	}{
		{1, 0, "workload: Zipf n is 0: must be from 1 to 2^50"},
		{1, -5, "workload: Zipf n is -5: must be from 1 to 2^50"},
		{1, 1<<50 + 1, "workload: Zipf n is 1125899906842625: must be from 1 to 2^50"},
		{-0.1, 10, "workload: Zipf s is -0.1: must be from 0 to 100"},
		{101, 10, "workload: Zipf s is 101: must be from 0 to 100"},
		{math.NaN(), 10, "workload: Zipf s is NaN: must be from 0 to 100"},
		{math.Inf(1), 10, "workload: Zipf s is +Inf: must be from 0 to 100"},
	}
	for _, c := range cases {
		if z, err := workload.NewZipf(1, c.s, c.n); err == nil || err.Error() != c.want {
			t.Errorf("NewZipf(s=%v, n=%d) = %v, %v; want %s", c.s, c.n, z, err, c.want)
		}
	}
}
