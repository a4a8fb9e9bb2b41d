// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/localcache"
	"github.com/go-shelf/shelf/stampede"
)

// source is what a cache knows of how its loader is doing: whether all of it fails (the breaker), whether a key does (the back-off), and how long its
// calls take (for the adaptive cap).
type source struct {
	cache   string
	log     *slog.Logger
	failure func(error) bool             // whether a loader's error is one of the source; nil: all are
	breaker *stampede.Breaker            // nil: none
	keys    *localcache.Cache[failedKey] // keys whose last load failed; nil: no back-off
	first   time.Duration                // of the back-off's steps
	gauges  [maxGauges]*stampede.Gauge   // by the binary logarithm of how many keys a call is for
	telling sync.Mutex                   // held while the breaker is told and trouble follows it
	trouble atomic.Bool                  // the breaker is not closed
	down    atomic.Pointer[sourceDown]   // the refusal when it is open, with the latest error; nil before the first failure
	noted   atomic.Bool                  // a key has failed: before that nobody need look
	held    atomic.Uint64                // reads that met a key which is being left alone
	refused atomic.Uint64                // reads that met an open breaker
}

const (
	// maxBackoff is the longest step of the back-off, maxFailedKeys how many keys a cache remembers.
	maxBackoff    = 30 * time.Second
	maxFailedKeys = 4096
	maxGauges     = 11
)

// failedKey is what is remembered of a key whose last load failed.
type failedKey struct {
	times int       // in a row
	until time.Time // it is left alone
	err   error     // what its readers get till then
	last  error     // the load's
}

// sourceDown is the refusal of an open breaker.
type sourceDown struct {
	cache string
	last  error
}

func (e *sourceDown) Error() string {
	return fmt.Sprintf("shelf: cache %s: the source is failing and left alone for a moment; its latest error: %v", e.cache, e.last)
}

// Unwrap makes it ErrSourceDown, and what the loader said.
func (e *sourceDown) Unwrap() []error { return []error{ErrSourceDown, e.last} }

// heldBack is the error of a key that is left alone since its load failed. Its text is made when somebody asks.
type heldBack struct {
	cache, key string
	times      int
	pause      time.Duration
	err        error
}

func (e *heldBack) Error() string {
	times := "once"
	if e.times > 1 {
		times = fmt.Sprintf("%d times in a row", e.times)
	}
	return fmt.Sprintf("shelf: cache %s, key %s: not tried again within %v, since its load has failed %s: %v",
		e.cache, shortKey(e.key), e.pause.Round(time.Millisecond), times, e.err)
}

// Unwrap returns the load's own error.
func (e *heldBack) Unwrap() error { return e.err }

func newSource[V any](cl *Client, cfg CacheConfig[V]) (*source, error) {
	s := &source{cache: cfg.Name, log: cl.cfg.Logger, failure: cfg.SourceFailure, first: cfg.ErrorBackoff}
	for i := range s.gauges {
		s.gauges[i] = cl.limiter.NewGauge()
	}
	var err error
	if !cfg.NoSourceBreaker {
		if s.breaker, err = stampede.NewBreaker(stampede.BreakerConfig{Full: cl.cfg.MaxLoads}); err != nil {
			return nil, err
		}
	}
	if !cfg.NoErrorBackoff {
		s.keys, err = localcache.New[failedKey](localcache.Config{MaxEntries: maxFailedKeys})
	}
	return s, err
}

// check says what a reader who would have to load a key must know: err, not nil, is why it is not to be tried now; last, not nil, is the error of
// those who tried last, also where it may be tried again.
func (s *source) check(key string, now time.Time) (err, last error) {
	f, failed := s.failed(key, now)
	if failed && now.Before(f.until) {
		s.held.Add(1)
		return f.err, f.last
	}
	if down := s.down.Load(); s.trouble.Load() && down != nil {
		if s.breaker.Refuses(now) {
			s.refused.Add(1)
			return down, down.last
		}
		return nil, down.last
	}
	return nil, f.last
}

func (s *source) failed(key string, now time.Time) (failedKey, bool) {
	if s.keys == nil || !s.noted.Load() {
		return failedKey{}, false
	}
	return s.keys.Peek(key, now)
}

// forget lets a key be tried at once.
func (s *source) forget(key string) {
	if s.keys != nil {
		s.keys.Invalidate(key) // a load that began before this is not remembered when it fails
	}
}

// forgetAll is forget for all keys.
func (s *source) forgetAll() {
	if s.keys != nil {
		s.keys.Clear()
	}
}

// figures are the source's part of the stats.
func (s *source) figures(to *CacheStats) {
	if s == nil {
		return
	}
	to.HeldBack, to.SourceRefused = s.held.Load(), s.refused.Load()
	if s.breaker != nil {
		to.SourceState = s.breaker.State().String()
	}
}

// sourceCall is one call of a loader.
type sourceCall struct {
	source  *source
	keys    []string
	tickets []localcache.Ticket // for what is remembered of the keys; none without back-off
	pass    *stampede.Pass      // nil without a breaker
	began   time.Time
	over    atomic.Bool
}

// begin is called right before a loader is. It refuses where check would, in case that that has changed since; a forced load is not held back for its
// key's sake. Whoever is let through must see to it that end is called.
func (s *source) begin(keys []string, forced bool, now time.Time) (*sourceCall, error) {
	if len(keys) == 1 && !forced {
		if f, ok := s.failed(keys[0], now); ok && now.Before(f.until) {
			s.held.Add(1)
			return nil, f.err
		}
	}
	call := &sourceCall{source: s, keys: keys, began: now}
	if s.breaker != nil {
		pass, ok := s.breaker.Allow(now)
		if !ok {
			s.refused.Add(1)
			if down := s.down.Load(); down != nil {
				return nil, down
			}
			return nil, ErrSourceDown // it has just opened, or closed
		}
		call.pass = pass
	}
	if s.keys != nil {
		call.tickets = make([]localcache.Ticket, len(keys))
		for i, key := range keys {
			call.tickets[i] = s.keys.Begin(key)
		}
	}
	return call, nil
}

// end takes in how a call ended: err is nil, what the loader returned, or why nobody waits for it any more. The first end counts. A nil call was never
// made.
func (call *sourceCall) end(err error, now time.Time) {
	if call == nil || call.over.Swap(true) {
		return
	}
	s := call.source
	how := s.ending(err)
	if how == stampede.Succeeded || errors.Is(err, ErrLoadTimeout) {
		s.gauges[min(bits.Len(uint(len(call.keys))), maxGauges)-1].Ended(now.Sub(call.began), now)
	}
	for i, ticket := range call.tickets {
		switch {
		case how == stampede.Failed:
			s.fails(call.keys[i], ticket, err, now)
		case how == stampede.Succeeded && s.noted.Load():
			s.keys.Drop(call.keys[i])
			s.keys.Cancel(ticket)
		default:
			s.keys.Cancel(ticket)
		}
	}
	call.tell(how, err, now)
}

// tell tells the breaker.
func (call *sourceCall) tell(how stampede.Ending, err error, now time.Time) {
	s := call.source
	if call.pass == nil {
		return
	}
	if how == stampede.Failed { // before it can open: who is refused finds a reason
		s.down.Store(&sourceDown{s.cache, err})
	}
	s.telling.Lock()
	to, changed := call.pass.End(how, now)
	before := s.trouble.Swap(to != stampede.BreakerClosed)
	s.telling.Unlock()
	switch {
	case changed && to == stampede.BreakerClosed:
		s.forgetAll() // the keys have failed because the source did
		s.log.Info("shelf: source is well again", "cache", s.cache)
	case changed && to == stampede.BreakerOpen && !before:
		s.log.Warn("shelf: source fails and is left alone", "cache", s.cache, "error", err)
	}
}

// fails remembers that a key's load has failed.
func (s *source) fails(key string, ticket localcache.Ticket, err error, now time.Time) {
	f, _ := s.failed(key, now)
	f.times++
	pause := stampede.Backoff(f.times, s.first, maxBackoff, rand.Float64())
	f.until, f.last = now.Add(pause), err
	f.err = &heldBack{s.cache, key, f.times, pause, err}
	s.noted.Store(true)
	s.keys.Commit(ticket, f, 0, f.until.Add(2*maxBackoff), now) // refused if the key was invalidated since the load began
}

// ending says what a call's end says of the source. What failed for reasons of this process does not count: a place that was not free for a load which
// the loader made through another cache, a cache that closes, a loader that asks for its own key, a context of the loader's own that was cancelled.
func (s *source) ending(err error) stampede.Ending {
	var panicked *PanicError
	switch {
	case err == nil, errors.Is(err, ErrNotFound):
		return stampede.Succeeded
	case errors.Is(err, ErrLoadTimeout), errors.As(err, &panicked), errors.Is(err, ErrGoexit):
		return stampede.Failed
	case errors.Is(err, ErrOverloaded), errors.Is(err, ErrClosed), errors.Is(err, ErrSourceDown), errors.Is(err, ErrRecursiveLoad), errors.Is(err, context.Canceled):
		return stampede.Neither
	case s.failure != nil && !s.failure(err):
		return stampede.Succeeded
	default:
		return stampede.Failed
	}
}
