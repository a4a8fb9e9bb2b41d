// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package clienttest

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

const (
	// clockShare bounds what expiry costs: a walk over the keys is followed by a rest of this many times its length.
	clockShare = 4
	// clockRest is the longest rest, however many keys there are.
	clockRest = 50 * time.Millisecond
)

// clock makes the keys of a node expire as the time passes. miniredis would do so by itself (ClockTTL), but it walks over all keys, sorted, at
// every command and at every call that a script makes, which is milliseconds each with 10,000 keys. This clock walks before a request is served,
// and then rests for a while that grows with the number of keys: a key may live for a rest longer, or shorter where it was set during one. In a
// synctest bubble a walk takes no time, so there is no rest: expiry is exact.
type clock struct {
	server *miniredis.Miniredis

	mu    sync.Mutex // held during a walk, so that whoever comes at the same moment meets no key that has expired
	stood time.Time  // what SetTime has set; zero: the true time passes
	at    time.Time  // how far expiry has come
	rests time.Time  // no walk until then
}

func newClock(server *miniredis.Miniredis) clock { return clock{server: server, at: time.Now()} }

// follow lets what has expired go, unless the clock rests.
func (c *clock) follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := time.Now()
	if !c.stood.IsZero() || start.Before(c.rests) {
		return
	}
	c.walk(start)
	took := time.Since(start)
	c.rests = start.Add(took + min(clockShare*took, clockRest))
}

// walk moves expiry on to a moment. An earlier one leaves every key what it has left.
func (c *clock) walk(to time.Time) {
	if passed := to.Sub(c.at); passed > 0 {
		c.server.FastForward(passed)
	}
	c.at = to
}

// set stops the clock at t, or lets it go by the true time again (the zero time).
func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stood = t
	c.server.SetTime(t)
	if t.IsZero() {
		t = time.Now()
	}
	c.walk(t)
}
