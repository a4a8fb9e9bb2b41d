// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrOverloaded is returned by [Limiter.Acquire] when the queue is full or the
// wait in it took too long.
var ErrOverloaded = errors.New("shelf: overloaded")

// ErrNoPlace is the ErrOverloaded of a reader that did not queue because it has
// an entry to fall back on: see [Expired].
var ErrNoPlace = fmt.Errorf("%w: no place is free, and who has an old entry does not queue for one", ErrOverloaded)

// LimiterConfig are a limiter's settings. The zero value is a limiter with the
// defaults; negative values are errors.
type LimiterConfig struct {
	// Max is how many loads may run at once. 0 means 64.
	Max int
	// Queue is how many more may wait for a place. 0 means 1,024.
	Queue int
	// QueueTimeout is how long one may wait. 0 means 1 s.
	QueueTimeout time.Duration
	// Adaptive moves the cap between Floor and Max by how long the loads take:
	// see [Gauge]. Without it the cap is Max, or what SetMost says.
	Adaptive bool
	// Floor is the lowest cap of an adaptive limiter. 0 means a tenth of Max, at
	// least 1. At most Max; only with Adaptive.
	Floor int
}

func (c LimiterConfig) withDefaults() LimiterConfig {
	if c.Max == 0 {
		c.Max = 64
	}
	if c.Queue == 0 {
		c.Queue = 1024
	}
	if c.QueueTimeout == 0 {
		c.QueueTimeout = time.Second
	}
	if c.Floor == 0 {
		c.Floor = max(1, c.Max/10)
	}
	return c
}

func (c LimiterConfig) validate() error {
	switch {
	case c.Max < 0:
		return fmt.Errorf("stampede: LimiterConfig.Max is %d: must not be negative", c.Max)
	case c.Queue < 0:
		return fmt.Errorf("stampede: LimiterConfig.Queue is %d: must not be negative", c.Queue)
	case c.QueueTimeout < 0:
		return fmt.Errorf("stampede: LimiterConfig.QueueTimeout is %v: must not be negative", c.QueueTimeout)
	case c.Floor < 0 || c.Floor > c.withDefaults().Max:
		return fmt.Errorf("stampede: LimiterConfig.Floor is %d: must be from 0 to Max (%d)", c.Floor, c.withDefaults().Max)
	case c.Floor > 0 && !c.Adaptive:
		return fmt.Errorf("stampede: LimiterConfig.Floor is %d: must be 0 where Adaptive is not set", c.Floor)
	}
	return nil
}

// Limiter caps how many loads run at once. Those above the cap wait in a
// bounded queue, first come first served, and are refused when it is full: a
// database that is behind is not helped by a longer queue. A refusal takes no
// timer and allocates nothing. It is safe for concurrent use and starts no
// goroutine.
//
// The cap may move while it is in use ([Limiter.SetMost], [Gauge]). When it
// falls below what is running, those that run are left alone and nobody is let
// in until enough of them have ended.
type Limiter struct {
	config LimiterConfig

	mu    sync.Mutex // guards what follows, and every seat's shares and gauge's sums
	most  int        // what the cap may be at most now: Max, or less
	cap   int        // places now, at least 1
	queue list.List  // of *waiter. While somebody is in it no place is free
	pace  pace
	full  error // what a full queue answers; nil until it is asked for under this cap
	stats LimiterStats
}

// waiter is one who waits for a place. It comes with the place, in a channel
// that holds one: whoever gives it does not wait.
type waiter struct{ ready chan *Place }

// LimiterStats is a snapshot of a [Limiter].
type LimiterStats struct {
	Cap      int    // places there are now; at most Max
	Running  int    // places taken now; at most Max
	Queued   int    // callers in the queue now; at most Queue
	Highest  int    // the most places that were ever taken at once
	Rejected uint64 // acquisitions refused with ErrOverloaded
}

// NewLimiter returns a limiter, or an error that names the wrong field.
func NewLimiter(config LimiterConfig) (*Limiter, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	return &Limiter{config: config, most: config.Max, cap: config.Max}, nil
}

// Acquire takes a place, waiting in the queue if there is none. It fails with
// ctx's error when ctx is over, and with ErrOverloaded when the queue is full or
// the wait took longer than QueueTimeout.
//
// With a context that holds a place of this limiter already (see
// [Place.With]) it returns a share of that one at once. A loader that waited for a
// second place while it holds the first could wait for itself.
func (l *Limiter) Acquire(ctx context.Context) (*Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p := l.shareOf(ctx); p != nil {
		return p, nil
	}
	l.mu.Lock()
	if p := l.seat(); p != nil {
		l.mu.Unlock()
		return p, nil
	}
	if l.queue.Len() >= l.config.Queue {
		defer l.mu.Unlock()
		l.stats.Rejected++
		return nil, l.refusal()
	}
	w := &waiter{ready: make(chan *Place, 1)}
	in := l.queue.PushBack(w)
	l.mu.Unlock()
	return l.wait(ctx, w, in)
}

// TryAcquire is Acquire for those who do not want to wait: false when there is
// no place now, or somebody waits for one already.
func (l *Limiter) TryAcquire(ctx context.Context) (*Place, bool) {
	if p := l.shareOf(ctx); p != nil {
		return p, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.seat()
	return p, p != nil
}

// SetMost makes n the most that the cap may be from now on: 1 to Max, what is
// outside counts as the nearer end. It is for a cap that many processes share.
// A cap that stands at its most goes along; that of an adaptive limiter which its
// loads have lowered grows only by what they show.
func (l *Limiter) SetMost(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lowered := l.cap < l.most
	l.most = min(max(n, 1), l.config.Max)
	if lowered {
		l.setCap(l.cap)
	} else {
		l.setCap(l.most)
	}
}

// Stats returns the limiter's figures.
func (l *Limiter) Stats() LimiterStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Cap, s.Queued = l.cap, l.queue.Len()
	return s
}

// wait waits in the queue, of which in is w's place.
func (l *Limiter) wait(ctx context.Context, w *waiter, in *list.Element) (*Place, error) {
	timer := time.NewTimer(l.config.QueueTimeout)
	defer timer.Stop()
	select {
	case p := <-w.ready:
		return p, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case p := <-w.ready: // it came in the same moment
		return p, nil
	default:
	}
	l.queue.Remove(in)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.stats.Rejected++
	return nil, fmt.Errorf("%w: no place within %v (QueueTimeout)", ErrOverloaded, l.config.QueueTimeout)
}

// refusal is the error of a full queue, made once for all who get it. l.mu is held.
func (l *Limiter) refusal() error {
	if l.full == nil {
		l.full = fmt.Errorf("%w: %d loads are running (Max) and %d waiting (Queue)", ErrOverloaded, l.config.Max, l.config.Queue)
		if l.cap < l.config.Max {
			l.full = fmt.Errorf("%w: %d loads are running, as many as may at present, of %d (Max), and %d waiting (Queue)",
				ErrOverloaded, l.cap, l.config.Max, l.config.Queue)
		}
	}
	return l.full
}

// setCap makes the cap n, within its bounds, and lets in whom it has room for now. l.mu is held.
func (l *Limiter) setCap(n int) {
	if n = min(max(n, 1), l.most); n == l.cap {
		return
	}
	l.cap, l.full = n, nil
	l.letIn()
}

// letIn gives free places to those who have waited longest. l.mu is held.
func (l *Limiter) letIn() {
	for l.stats.Running < l.cap && l.queue.Len() > 0 {
		w := l.queue.Remove(l.queue.Front()).(*waiter)
		w.ready <- l.seated()
	}
}

// seat takes a place if one is free; nil: none is. l.mu is held.
func (l *Limiter) seat() *Place {
	if l.stats.Running >= l.cap {
		l.pace.short = true
		return nil
	}
	return l.seated()
}

// seated takes a place. l.mu is held.
func (l *Limiter) seated() *Place {
	l.stats.Running++
	l.stats.Highest = max(l.stats.Highest, l.stats.Running)
	return &Place{seat: &seat{limiter: l, shares: 1}}
}

// seat is one place; it is given back with the last share.
type seat struct {
	limiter *Limiter
	shares  int // guarded by limiter.mu
}

// share adds a share, unless the seat has been given back already.
func (s *seat) share() *Place {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if s.shares == 0 {
		return nil
	}
	s.shares++
	return &Place{seat: s}
}

// Place is a share in one of a limiter's places. The place is free again when
// all shares in it have been released: work that outlives the load it came from
// keeps it taken.
type Place struct {
	seat *seat
	once sync.Once
}

// Release gives the share back. Calls after the first do nothing.
func (p *Place) Release() {
	p.once.Do(func() {
		l := p.seat.limiter
		l.mu.Lock()
		defer l.mu.Unlock()
		p.seat.shares--
		if p.seat.shares == 0 {
			l.stats.Running--
			l.letIn()
		}
	})
}

// With marks ctx as holding this place: while it is held, Acquire with this
// context (or one made from it) returns a share of it and never waits.
func (p *Place) With(ctx context.Context) context.Context {
	up, _ := ctx.Value(placeKey{}).(*heldPlace)
	return context.WithValue(ctx, placeKey{}, &heldPlace{seat: p.seat, up: up})
}

// heldPlace is one link of the chain of places that a context holds, at most
// one useful one for each limiter.
type heldPlace struct {
	seat *seat
	up   *heldPlace
}

type placeKey struct{}

// shareOf returns a share of the place that ctx holds, or nil.
func (l *Limiter) shareOf(ctx context.Context) *Place {
	h, _ := ctx.Value(placeKey{}).(*heldPlace)
	for ; h != nil; h = h.up {
		if h.seat.limiter == l {
			if p := h.seat.share(); p != nil {
				return p
			}
		}
	}
	return nil
}

// Holds says whether ctx holds a place of this limiter now: Acquire would not wait.
func (l *Limiter) Holds(ctx context.Context) bool {
	p := l.shareOf(ctx)
	if p != nil {
		p.Release()
	}
	return p != nil
}
