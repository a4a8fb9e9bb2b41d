// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// ErrOverloaded is returned by [Limiter.Acquire] when the queue is full or the
// wait in it took too long.
var ErrOverloaded = errors.New("shelf: overloaded")

// LimiterConfig are a limiter's settings. The zero value is a limiter with the
// defaults; negative values are errors.
type LimiterConfig struct {
	// Max is how many loads may run at once. 0 means 64.
	Max int
	// Queue is how many more may wait for a place. 0 means 1,024.
	Queue int
	// QueueTimeout is how long one may wait. 0 means 1 s.
	QueueTimeout time.Duration
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
	}
	return nil
}

// Limiter caps how many loads run at once. Those above the cap wait in a
// bounded queue, first come first served, and are refused when it is full: a
// database that is behind is not helped by a longer queue. It is safe for
// concurrent use and starts no goroutine.
type Limiter struct {
	config LimiterConfig
	free   *semaphore.Weighted // keeps the queue's order

	mu    sync.Mutex // also guards every seat's shares
	stats LimiterStats
}

// LimiterStats is a snapshot of a [Limiter].
type LimiterStats struct {
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
	return &Limiter{config: config, free: semaphore.NewWeighted(int64(config.Max))}, nil
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
	if p, ok := l.TryAcquire(ctx); ok {
		return p, nil
	}
	if err := l.queue(ctx); err != nil {
		return nil, err
	}
	return l.take(), nil
}

// TryAcquire is Acquire for those who do not want to wait: false when there is
// no place now, or somebody waits for one already.
func (l *Limiter) TryAcquire(ctx context.Context) (*Place, bool) {
	if p := l.shareOf(ctx); p != nil {
		return p, true
	}
	if !l.free.TryAcquire(1) {
		return nil, false
	}
	return l.take(), true
}

// Stats returns the limiter's figures.
func (l *Limiter) Stats() LimiterStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// queue waits for one unit of the semaphore.
func (l *Limiter) queue(ctx context.Context) error {
	l.mu.Lock()
	if l.stats.Queued >= l.config.Queue {
		l.stats.Rejected++
		l.mu.Unlock()
		return fmt.Errorf("%w: %d loads are running (Max) and %d waiting (Queue)", ErrOverloaded, l.config.Max, l.config.Queue)
	}
	l.stats.Queued++
	l.mu.Unlock()

	limited, cancel := context.WithTimeout(ctx, l.config.QueueTimeout)
	defer cancel()
	err := l.free.Acquire(limited, 1)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Queued--
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		l.stats.Rejected++
		return fmt.Errorf("%w: no place within %v (QueueTimeout)", ErrOverloaded, l.config.QueueTimeout)
	}
}

// take turns one unit of the semaphore into a place.
func (l *Limiter) take() *Place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seated()
}

// seated is take with l.mu held.
func (l *Limiter) seated() *Place {
	l.stats.Running++
	l.stats.Highest = max(l.stats.Highest, l.stats.Running)
	return &Place{seat: &seat{limiter: l, shares: 1}}
}

// seat is one unit of the semaphore; it is given back with the last share.
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
		p.seat.shares--
		last := p.seat.shares == 0
		if last {
			l.stats.Running--
		}
		l.mu.Unlock()
		if last {
			l.free.Release(1)
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
