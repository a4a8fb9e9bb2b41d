// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pingEvery is how often each connection of a Tracking must show that it is alive.
	pingEvery = 250 * time.Millisecond
	// freshFor is how long an answer counts, from when its command was sent.
	freshFor = time.Second
	// giveUpAfter is the silence after which a Tracking is given up: shorter ones are waited out, since a server that
	// only paused has lost nothing.
	giveUpAfter = 3 * time.Second
	// fills is how many connections carry tracked reads. One would hold everybody up behind one large value.
	fills = 2
	// listener is the index of the listener among the connections; the fill connections follow.
	listener = 0
)

// ErrTrackingLate says that a tracked read took longer than most reads of the node, and is not waited for. The node may well answer a read that is not watched.
var ErrTrackingLate = errors.New("the tracked read is late")

// ErrTrackingOver says that a [Tracking] ended: what was read through it is no longer watched. It is no trouble of the
// node, which may have a new one already.
var ErrTrackingOver = errors.New("the tracking is over: keys read through it are no longer watched")

// Tracking watches keys of a node: whatever was read through it ([Tracking.Get], [Tracking.MGet]) and changes later is
// reported to [Config.Push], by whomever it was changed and also when it expires, is evicted, or appears after it was
// read while missing. It uses client tracking of Redis in its default mode
// (https://redis.io/docs/latest/develop/reference/client-side-caching/): one listener connection takes the pushes, and
// two fill connections, whose reads the server remembers, redirect theirs to it.
//
// The three connections live and die as one. A listener that comes back has another id, and the pushes of the fill
// connections go nowhere; the server forgets what a fill connection has read as soon as it is closed, and says so to
// nobody. So the loss of any of them ends the Tracking, as do a flush of the database and a new run of the server. Over
// is final: Fresh is false from that moment, reads fail with [ErrTrackingOver], then Push(nil) is called, and after that
// the Node builds a new one. A copy belongs to the Tracking that it was read through; since Push(nil) comes before the
// next one, voiding all copies and tickets there is enough.
//
// To keep a copy: take a ticket that Push voids, read through the Tracking, keep the result only if the ticket is still
// good. A read is sent after it was asked for, so the server remembers the key after the ticket was taken.
//
// Safe for concurrent use.
type Tracking struct {
	node  *Node
	began time.Time
	run   string // the server's; set by the listener's handshake
	id    int64  // of the listener's connection; likewise
	reads trackedReads

	// busy is since when, counted from began, each fill connection has had a command under way; 0: it has none.
	busy [fills]atomic.Int64

	// until is how long, counted from began, copies may be served.
	until atomic.Int64

	// ctx ends when the Tracking is over; that closes the connections.
	ctx     context.Context
	cancel  context.CancelFunc
	ready   chan struct{}  // closed when every connection has answered
	workers sync.WaitGroup // all that runs for it

	mu    sync.Mutex
	heard [1 + fills]time.Duration // when, counted from began, the last answered command was sent; negative: none yet
	why   ending
	err   error
}

// ended, as the value of until, is before every moment.
const ended = math.MinInt64

func newTracking(n *Node) *Tracking {
	t := &Tracking{node: n, began: time.Now(), ready: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.reads.init()
	for i := range t.heard {
		t.heard[i] = -1
	}
	return t
}

// Fresh reports whether copies that were read through t may be served at now, which comes from time.Now: t is not over,
// and each of its connections has answered a command that was sent less than a second before now. So all changes that
// are older than a second have been reported to Push, also if the node has become silent; as long as it is not silent,
// changes are reported within a round trip. After a silence on living connections Fresh becomes true again: then
// nothing was lost. It costs one atomic load and no allocation.
//
// Why an answer proves that: the listener's answer stands behind all pushes that the server wrote before it, in one
// stream that is read by one goroutine. A fill connection that answers was not closed by the server before that command
// came, so until then the server remembered what was read through it.
func (t *Tracking) Fresh(now time.Time) bool { return t.FreshAfter(now.Sub(t.began)) }

// FreshAfter is Fresh for the moment that comes so long after [Tracking.Began], for those who keep times as numbers.
func (t *Tracking) FreshAfter(passed time.Duration) bool { return int64(passed) < t.until.Load() }

// Began is when t was made, before any read through it.
func (t *Tracking) Began() time.Time { return t.began }

// Over reports whether t has ended. It costs one atomic load.
func (t *Tracking) Over() bool { return t.until.Load() == ended }

// since is the present time as heard counts it.
func (t *Tracking) since() time.Duration { return time.Since(t.began) }

// answered notes that a connection has answered a command that was sent at that time.
func (t *Tracking) answered(conn int, sent time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard[conn] = max(t.heard[conn], sent)
	oldest := slices.Min(t.heard[:])
	if t.why != notEnded || oldest < 0 {
		return
	}
	t.until.Store(int64(oldest + freshFor))
	if !t.isReady() {
		close(t.ready)
	}
}

// isReady reports whether every connection has answered once.
func (t *Tracking) isReady() bool {
	select {
	case <-t.ready:
		return true
	default:
		return false
	}
}

// silent reports whether a connection has not answered for too long.
func (t *Tracking) silent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since()-max(0, slices.Min(t.heard[:])) > giveUpAfter
}

// end makes t over; only the first cause counts. It does not block, whoever calls it.
func (t *Tracking) end(why ending, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != notEnded {
		return
	}
	t.why, t.err = why, err
	t.until.Store(ended)
	t.cancel()
}

// cause is why t ended.
func (t *Tracking) cause() (ending, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why, t.err
}

// gone is the error of a read through a Tracking that is over.
func (t *Tracking) gone() error {
	err := ErrTrackingOver
	if t.node.closed() {
		err = ErrClosed
	}
	return &Error{Node: t.node.cfg.ID, Op: "MGET", Err: err}
}
