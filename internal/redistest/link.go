// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"sync"
	"time"
)

const (
	// linkBytes bounds what a link holds. A delay of d lets linkBytes/d pass a
	// second at most.
	linkBytes = 4 << 20
	// chunkCost is what a chunk counts beside its bytes, so that many tiny ones
	// are bounded too.
	chunkCost = 128
	// pacesPerSecond is into how many pieces a second is cut under a bandwidth.
	pacesPerSecond = 100
	// forever is the wait for what only another event can bring.
	forever = time.Duration(1<<63 - 1)
)

// ending says how a direction of a connection ends.
type ending int

const (
	open   ending = iota
	finish        // no more bytes, but the other direction may go on
	cut           // both directions end now
	reset         // the same, with a reset
)

// chunk is what one read gave, or an ending.
type chunk struct {
	data    []byte
	arrived time.Time
	luck    float64 // in [0, 1): its part of the jitter
	draw    float64 // in [0, 1): below the share it is among those that are delayed
	end     ending
}

// faults is what holds for a link. The zero value is a good network.
type faults struct {
	delay, jitter time.Duration
	share         float64       // of the pieces come
	late          time.Duration // so much later
	rate          int64         // bytes a second; 0 is unlimited
	hole          bool
	cutRule       int // the id of the rule that limits, 0 for none
	cutAfter      int64
}

// with returns the faults after a rule.
func (f faults) with(r rule) faults {
	switch r.kind {
	case delayRule:
		f.delay, f.jitter = r.delay, r.jitter
	case someRule:
		f.share, f.late = r.share, r.delay
	case rateRule:
		f.rate = r.n
	case cutRule:
		f.cutRule, f.cutAfter = r.id, r.n
	case holeRule:
		f.hole = true
	case healRule:
		f = faults{}
	}
	return f
}

// link is one direction of a connection: a queue between the goroutine that
// reads and the one that writes. It knows no sockets and takes the time as an
// argument.
type link struct {
	wake chan struct{} // something for next has changed
	room chan struct{} // the queue has become shorter

	mu      sync.Mutex
	faults  faults
	changed time.Time // since when these faults hold
	cutAt   int64     // the value of passed at which to cut
	queue   []chunk
	held    int       // what the queue counts against linkBytes
	passed  int64     // bytes
	free    time.Time // when the last piece was through, under a bandwidth
}

func newLink() *link {
	return &link{wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// set puts faults into force.
func (l *link) set(f faults, now time.Time) {
	l.mu.Lock()
	if f != l.faults {
		if f.cutRule != l.faults.cutRule {
			l.cutAt = l.passed + f.cutAfter
		}
		l.faults, l.changed = f, now
	}
	l.mu.Unlock()
	signal(l.wake)
}

// push queues a chunk; false means that there is no room now. An ending always
// has room, and a chunk larger than all of it does when the queue is empty.
func (l *link) push(c chunk) bool {
	l.mu.Lock()
	cost := len(c.data) + chunkCost
	if l.held > 0 && l.held+cost > linkBytes && c.end == open {
		l.mu.Unlock()
		return false
	}
	l.held += cost
	l.queue = append(l.queue, c)
	l.mu.Unlock()
	signal(l.wake)
	return true
}

// next takes what may pass now: bytes, which count as passed from here on, or the
// end. Where there is neither it says how long to wait, unless woken before.
//
// passing is called with the bytes under the lock. The caller writes them after
// that, so whoever sees their effect also sees what passing did.
func (l *link) next(now time.Time, passing func(c chunk)) (piece []byte, end ending, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.faults
	switch {
	case l.spent():
		return nil, cut, 0
	case f.hole || len(l.queue) == 0:
		return nil, open, forever
	}
	head := &l.queue[0]
	n, due := len(head.data), head.arrived.Add(f.delay+time.Duration(head.luck*float64(f.jitter)))
	if head.draw < f.share {
		due = due.Add(f.late)
	}
	if f.cutRule != 0 {
		n = int(min(int64(n), l.cutAt-l.passed))
	}
	if f.rate > 0 && n > 0 {
		n = int(min(int64(n), max(1, f.rate/pacesPerSecond)))
		// Time that passed under other faults buys nothing.
		due = latest(due, l.free, l.changed).Add(time.Duration(n) * time.Second / time.Duration(f.rate))
	}
	if wait := due.Sub(now); wait > 0 {
		return nil, open, wait
	}
	l.free = due
	if head.end != open {
		return nil, head.end, 0
	}
	taken := *head
	taken.data = head.data[:n]
	passing(taken)
	l.take(n)
	return taken.data, open, 0
}

// take removes n bytes of the first chunk. The caller holds mu.
func (l *link) take(n int) {
	l.passed += int64(n)
	l.held -= n
	if l.queue[0].data = l.queue[0].data[n:]; len(l.queue[0].data) == 0 {
		l.held -= chunkCost
		l.queue[0] = chunk{}
		if l.queue = l.queue[1:]; len(l.queue) == 0 {
			l.queue = nil // not a view of an ever longer array
		}
	}
	signal(l.room)
}

// spent reports whether all has passed that may. The caller holds mu.
func (l *link) spent() bool { return l.faults.cutRule != 0 && l.passed >= l.cutAt }

// holed reports whether the link is a black hole.
func (l *link) holed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults.hole && !l.spent()
}

// count is how many bytes have passed.
func (l *link) count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passed
}

// signal leaves word in a channel of one place.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func latest(times ...time.Time) time.Time {
	last := times[0]
	for _, t := range times[1:] {
		if t.After(last) {
			last = t
		}
	}
	return last
}
