// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// oneMoment is how close failures count as one: whatever stopped the server for a moment, or this process, fails all that is under way.
	oneMoment = 10 * time.Millisecond
	// After suspectMisses failures without a success in between the node is Suspect, after downMisses it is Down, but not before downSilence has passed
	// since the first; partSilence where only a share is sent, of which a part fails in any case.
	suspectMisses = 3
	downMisses    = 4
	downSilence   = 200 * time.Millisecond
	partSilence   = 800 * time.Millisecond
	// suspectFor is how long a node stays Suspect at least.
	suspectFor = time.Second

	// Where a part of the operations fails, the share that is sent is lenience times the part that succeeds: nothing is held back up to a fifth of
	// failures. It is taken over the window, once enough of them have ended and there are failures in several of its slots: a pause fails many at once, but
	// does not go on. Below least the node is Down.
	lenience = 1.25
	enough   = 20
	several  = 3
	least    = 0.05

	// recoverGood heartbeats must be answered, one after the other, before a node that was Down is Up.
	recoverGood = 3
	// A node that goes down again less than flapWithin after it came up is flapping: it stays Down for flapHold, the next time twice as long, and so on up to
	// flapHoldMost, though it answers.
	flapWithin   = 10 * time.Second
	flapHold     = 500 * time.Millisecond
	flapHoldMost = 16 * time.Second
)

// verdict is what the end of an operation says about the node.
type verdict int

const (
	neutral    verdict = iota // nothing: the caller left, the pool was full
	good                      // it answered
	bad                       // it did not, or its answer is that it cannot work
	writesHang                // it answers reads and takes no writes: no answer
	unwritable                // it answers reads and takes no writes, and says so
)

// breaker judges a node by what comes of operations and heartbeats, and says which operations are sent. It has no goroutine and no clock: [Node.Run] sends
// the heartbeats and calls tick. Safe for concurrent use.
//
// While all is well an operation costs it four atomic loads; nothing is counted before something has failed.
//
// Two rules open it. Silence: nothing but failures for a while. It sees a server that is dead, stopped, cut off or slow, also without traffic, since a heartbeat that
// fails is followed by others soon. Share: a part of the operations fails; then as many are sent as the node can be hoped to answer. That is the client-side
// throttling of B. Beyer et al., Site Reliability Engineering, 2016, chapter 21 (https://sre.google/sre-book/handling-overload/), but with the operations
// that were sent in the place of all requests: there it sheds nothing, or nearly all, of a node that fails at random, here a part.
type breaker struct {
	node string            // its id, for errors
	draw func() float64    // from 0 to 1: whom a share lets pass
	tell func(StateChange) // hears of each change, in their order, one at a time; not with mu held
	kick chan struct{}     // has room for one: something failed, or is late, so look soon

	state    atomic.Int32
	gate     atomic.Pointer[gate] // nil: everything is sent
	watching atomic.Bool          // something has failed lately: what succeeds is counted too
	heard    atomic.Bool          // something was answered since the last heartbeat

	telling sync.Mutex

	mu      sync.Mutex
	live    bool // Run runs
	changes []StateChange
	since   time.Time // of the present state
	upSince time.Time // when it came up after it was Down; zero: it never was
	why     error     // the latest failure
	flaps   int
	hold    time.Time // not to recover before
	goods   int       // heartbeats answered while Recovering

	window  window
	misses  int       // moments of failure since the last success
	first   time.Time // the first of them
	latest  time.Time
	hanging int // heartbeats in a row whose write was not answered
}

// gate is what operations meet while not all of them are sent.
type gate struct {
	share     float64 // that is sent; 0: none
	why       *downError
	get, mget *Error // what the reads of a node that is down get: they are many
}

func newBreaker(node string, tell func(StateChange)) *breaker {
	return &breaker{node: node, draw: rand.Float64, tell: tell, kick: make(chan struct{}, 1)}
}

// admit says whether an operation is sent; if not, why.
func (b *breaker) admit(op string) error {
	g := b.gate.Load()
	if g == nil || g.share > 0 && b.draw() < g.share {
		return nil
	}
	return b.refusal(g, op)
}

// shut is admit that asks only whether nothing is sent: for those who will ask for each command once more, and for what is not to be shed by shares.
func (b *breaker) shut(op string) error {
	if g := b.barred(); g != nil {
		return b.refusal(g, op)
	}
	return nil
}

// barred is the gate where nothing is sent; nil: something is.
func (b *breaker) barred() *gate {
	if g := b.gate.Load(); g != nil && g.share == 0 {
		return g
	}
	return nil
}

// refusal is what an operation gets that is not sent. It costs an allocation, but for the reads that are many.
func (b *breaker) refusal(g *gate, op string) error {
	switch op {
	case "GET":
		return g.get
	case "MGET":
		return g.mget
	}
	return &Error{Node: b.node, Op: op, Err: g.why}
}

// answered takes in that an operation succeeded. It is on every path.
func (b *breaker) answered() {
	if !b.heard.Load() {
		b.heard.Store(true)
	}
	if b.watching.Load() {
		b.succeeded(time.Now())
	}
}

func (b *breaker) succeeded(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.window.add(now, true)
	b.misses = 0
}

// failed takes in that an operation has ended, and how, where that speaks against the node.
func (b *breaker) failed(now time.Time, v verdict, err error) {
	b.mu.Lock()
	b.take(now, v, err)
	b.mu.Unlock()
	b.deliver()
	b.hurry()
}

// hurry has a heartbeat sent soon, which tells more.
func (b *breaker) hurry() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// take counts a failure, of an operation or a heartbeat, unless the node is Down: then they are late. The caller holds mu.
func (b *breaker) take(now time.Time, v verdict, err error) {
	if s := State(b.state.Load()); !b.live || v < bad || s == Down || s == Recovering {
		return
	}
	b.watching.Store(true)
	b.why = err
	if v == writesHang {
		b.hanging++
	} else {
		b.window.add(now, false)
		if b.misses == 0 {
			b.first = now
		}
		if b.misses == 0 || now.Sub(b.latest) >= oneMoment {
			b.misses, b.latest = b.misses+1, now
		}
	}
	silence := downSilence
	if b.gate.Load() != nil {
		silence = partSilence
	}
	switch {
	case v == unwritable, b.hanging >= downMisses, b.misses >= downMisses && now.Sub(b.first) >= silence:
		b.open(now)
	case max(b.misses, b.hanging) >= suspectMisses:
		b.suspect(now, 1)
	}
}

// beat takes in what a heartbeat came to. It is also how a node that is Down comes up.
func (b *breaker) beat(now time.Time, v verdict, err error) {
	b.mu.Lock()
	switch s := State(b.state.Load()); {
	case v == good && s == Down && !now.Before(b.hold):
		b.goods = 1
		b.set(now, Recovering, nil)
	case v == good && s == Recovering:
		if b.goods++; b.goods >= recoverGood {
			b.close(now)
		}
	case v >= bad && s == Recovering:
		b.why = err
		b.open(now)
	case v >= bad && s == Down:
		b.why = err
	case v == good:
		b.hanging = 0
	default:
		b.take(now, v, err)
	}
	b.mu.Unlock()
	b.deliver()
}

// tick judges what was counted. It is called at every heartbeat, and so more often while there is trouble.
func (b *breaker) tick(now time.Time) {
	b.mu.Lock()
	if s := State(b.state.Load()); b.watching.Load() && (s == Up || s == Suspect) {
		b.weigh(now, s)
	}
	b.mu.Unlock()
	b.deliver()
}

// weigh is tick for a node that was not Down and of which something has failed. The caller holds mu.
func (b *breaker) weigh(now time.Time, s State) {
	ok, failures, slots := b.window.sum(now)
	share := 1.0
	if ok+failures >= enough && slots >= several {
		share = min(1, lenience*float64(ok)/float64(ok+failures))
	}
	switch {
	case share < least:
		b.open(now)
	case share < 1:
		b.suspect(now, share)
	case s == Suspect && (max(b.misses, b.hanging) >= suspectMisses || now.Sub(b.since) < suspectFor):
		b.gate.Store(nil)
	case s == Suspect:
		b.gate.Store(nil)
		b.set(now, Up, nil)
	case failures == 0:
		b.watching.Store(false)
	}
}

// suspect makes the node Suspect, and lets a share of the operations pass. The caller holds mu.
func (b *breaker) suspect(now time.Time, share float64) {
	if State(b.state.Load()) == Up {
		b.set(now, Suspect, b.why)
	}
	if share < 1 {
		b.gate.Store(b.newGate(b.since, share))
	}
}

// open makes the node Down. The caller holds mu.
func (b *breaker) open(now time.Time) {
	switch {
	case State(b.state.Load()) == Recovering, !b.upSince.IsZero() && now.Sub(b.upSince) < flapWithin:
		b.flaps++
		b.hold = now.Add(min(flapHold<<min(b.flaps-1, 10), flapHoldMost))
	default:
		b.flaps, b.hold = 0, now
	}
	b.gate.Store(b.newGate(now, 0))
	b.set(now, Down, b.why)
}

// close makes the node Up after it was Down. The caller holds mu.
func (b *breaker) close(now time.Time) {
	b.upSince = now
	b.window, b.misses, b.hanging = window{}, 0, 0
	b.watching.Store(false)
	b.gate.Store(nil)
	b.set(now, Up, nil)
}

// reset forgets everything about the server: another one is judged from now on.
func (b *breaker) reset(now time.Time) {
	b.mu.Lock()
	up := State(b.state.Load()) == Up
	b.close(now)
	b.flaps, b.upSince, b.hold = 0, time.Time{}, time.Time{}
	if up { // nothing has changed
		b.changes = b.changes[:len(b.changes)-1]
	}
	b.mu.Unlock()
	b.deliver()
}

// run begins to judge; stop ends that: everything is sent again, and nobody is told.
func (b *breaker) run() (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.live = false
		b.state.Store(int32(Up))
		b.gate.Store(nil)
		b.watching.Store(false)
	}
}

func (b *breaker) newGate(since time.Time, share float64) *gate {
	why := &downError{since: since, share: share, cause: b.why}
	return &gate{share: share, why: why, get: &Error{Node: b.node, Op: "GET", Err: why}, mget: &Error{Node: b.node, Op: "MGET", Err: why}}
}

// set notes a change, which deliver tells of. The caller holds mu.
func (b *breaker) set(now time.Time, s State, err error) {
	old := State(b.state.Swap(int32(s)))
	b.since = now
	b.changes = append(b.changes, StateChange{From: old, To: s, At: now, Err: err})
}

// deliver tells of the changes. Who finds another one telling leaves his to it: it looks again after it has let go.
func (b *breaker) deliver() {
	for b.pending() && b.telling.TryLock() {
		for c, ok := b.next(); ok; c, ok = b.next() {
			if b.tell != nil {
				b.tell(c)
			}
		}
		b.telling.Unlock()
	}
}

func (b *breaker) pending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.changes) > 0
}

func (b *breaker) next() (StateChange, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.changes) == 0 {
		return StateChange{}, false
	}
	c := b.changes[0]
	b.changes = b.changes[1:]
	return c, true
}

// pause is how long to wait for the next heartbeat. A node that is down is asked at random times, so that a fleet does not come all at once.
func (b *breaker) pause() time.Duration {
	switch s := State(b.state.Load()); {
	case s == Down:
		return beatEvery - beatSoon + time.Duration(b.draw()*float64(2*beatSoon))
	case s == Recovering, b.watching.Load():
		return beatSoon
	default:
		return beatEvery
	}
}

// stateSince is when the present state began; zero before the first change.
func (b *breaker) stateSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since
}
