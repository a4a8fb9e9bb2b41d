// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

import (
	"math"
	"time"
)

const (
	// stepsPerHalfLife is how finely time is cut: within a step nothing decays, and the exponential is computed once
	// a step instead of once a read. A read's age is off by less than a step either way, its weight by 1.1 %; over
	// the reads of a steady rate half of that is left.
	stepsPerHalfLife = 64

	// After so many half-lives a read weighs 4 billion, and counts are put back to scale. A float32 counter could
	// take 60 more before it overflows, with room for 2^36 reads.
	halfLivesPerScale = 32
)

// clock gives the weight of a read.
//
// A decaying count gives a read of age a the weight 2^(-a/halfLife). All counts decay at the same pace, so instead of
// shrinking them as time goes by, reads are weighed heavier as time goes by:
//
//	weight(t) = 2^((t-base)/halfLife)
//	count     = sum of the weights of the reads
//	decayed   = count / weight(now)
//
// No counter needs a time of its own then, and counts can be compared with each other whatever the time. A steady
// rate of r reads a second makes a decayed count of r * halfLife/ln2 (the sum of the geometric series, its steps made
// small), which is how counts become rates and rates become counts.
type clock struct {
	halfLife time.Duration
	step     time.Duration
	base     time.Time     // when a read weighs 1; zero until the first read
	until    time.Duration // since base: the end of the present step
	weight   float64       // of a read in the present step
}

func newClock(halfLife time.Duration) clock {
	return clock{halfLife: halfLife, step: halfLife / stepsPerHalfLife, weight: 1}
}

// count is what a steady rate, in reads a second, adds up to while a read weighs 1.
func (c *clock) count(rate float64) float64 { return rate * c.halfLife.Seconds() / math.Ln2 }

// rate is the rate, in reads a second, that has added up to count by now.
func (c *clock) rate(count float64) float64 {
	return count / c.weight * math.Ln2 / c.halfLife.Seconds()
}

// advance moves the clock to now, or leaves it if now is not after the present step. It returns the factor by which
// all counts must be multiplied, which is 1 nearly always.
func (c *clock) advance(now time.Time) (shrink float64) {
	if c.base.IsZero() {
		c.base, c.until = now, c.step
	}
	passed := now.Sub(c.base)
	if passed < c.until {
		return 1
	}
	steps := passed / c.step
	halfLives := float64(steps) * float64(c.step) / float64(c.halfLife)
	if halfLives < halfLivesPerScale {
		c.until = (steps + 1) * c.step
		c.weight = math.Exp2(halfLives)
		return 1
	}
	c.base = c.base.Add(steps * c.step)
	c.until, c.weight = c.step, 1
	return math.Exp2(-halfLives)
}
