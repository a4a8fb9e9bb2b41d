// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package meter

import (
	"math/bits"
	"sync"
	"time"
)

// Turn is a goroutine's own source of draws, and of work that is not optimised away.
type Turn struct{ state uint64 }

// Next draws a number from 0 to n-1, n at least 1. It costs some 2 ns, and is a Weyl sequence with a mixer (splitmix64).
func (t *Turn) Next(n int) int {
	t.state += 0x9E3779B97F4A7C15
	z := t.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	hi, _ := bits.Mul64(z^z>>31, uint64(n))
	return int(hi)
}

// spin keeps this core busy for so many nanoseconds.
func (t *Turn) spin(ns float64) {
	t.state = churn(t.state, int(ns/perStep()))
}

// churn is a chain of operations of which each needs the one before.
//
//go:noinline
func churn(x uint64, steps int) uint64 {
	for range steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// perStep is how many nanoseconds a step of churn takes on this machine: the quickest of some tries, since others may use the core meanwhile.
var perStep = sync.OnceValue(func() float64 {
	const steps = 200_000
	best := time.Hour
	x := uint64(1)
	for range 20 {
		began := time.Now()
		x = churn(x, steps)
		best = min(best, time.Since(began))
	}
	if x == 0 { // never: churn's result is used
		return 1
	}
	return float64(best) / steps
})
