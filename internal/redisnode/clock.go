// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// The best of this many readings wins; at one a second a bad network must be bad for 8 s.
	readings = 8
	// Two clocks that are both right still part by this much: 200 ppm is worse than any quartz.
	driftPPM = 200
)

// reading is one TIME: at the local time at, give or take err, the server's clock said server.
type reading struct {
	at     time.Time
	server time.Time
	err    time.Duration
}

// newReading takes the middle of the round trip; at keeps the monotonic reading of sent.
func newReading(sent, received, server time.Time) reading {
	half := received.Sub(sent) / 2
	return reading{at: sent.Add(half), server: server, err: half}
}

// now carries the reading on to another local time. If both have a monotonic reading, as those of
// time.Now have, a step of the local wall clock in between does not matter.
func (r reading) now(local time.Time) time.Time { return r.server.Add(local.Sub(r.at)) }

// contradicts reports whether both cannot be readings of one clock that runs steadily.
func (r reading) contradicts(later reading) bool {
	off := later.server.Sub(r.now(later.at)).Abs()
	drift := later.at.Sub(r.at).Abs() * driftPPM / 1_000_000
	return off > r.err+later.err+drift+time.Millisecond
}

// clock estimates the server's clock from the last few readings. Safe for concurrent use; an
// estimate takes no lock.
//
// When somebody sets the server's clock, the next reading (of Run: within a second) shows it. Until
// then the estimate is off by the step; what is stamped with it meanwhile seems older by a step
// forward, and of the future after a step back.
type clock struct {
	best atomic.Pointer[reading] // nil: none yet
	mu   sync.Mutex
	last []reading // at most readings, oldest first
}

// add takes a reading. One that contradicts the best so far means that the server's clock was
// set (or that another machine answers now): what was known before is worthless.
func (c *clock) add(r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if best := c.best.Load(); best != nil && best.contradicts(r) {
		c.last = nil
	}
	c.put(r)
}

// restart forgets everything but r: another run may be another machine.
func (c *clock) restart(r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = nil
	c.put(r)
}

func (c *clock) put(r reading) {
	if len(c.last) == readings {
		c.last = c.last[1:]
	}
	c.last = append(c.last, r)
	best := r
	for _, x := range c.last {
		if x.err < best.err {
			best = x
		}
	}
	c.best.Store(&best)
}

// now estimates the server's time at a local time; without a reading it is the local time.
func (c *clock) now(local time.Time) time.Time {
	if best := c.best.Load(); best != nil {
		return best.now(local)
	}
	return local
}
