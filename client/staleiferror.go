// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// Stale if error (CacheConfig.StaleIfError): past its hard TTL an entry is a miss like any other, but it lies on the node for so much longer, and where the
// load fails it is served all the same, marked. What may be served so, and why it is no older than it may be:
//
//   - What the owner has answered to this very call, judged as a fresh entry is: its generation, its tags, whether the node is trusted. An invalidation removes
//     it, so it is not older than the last one that had returned nil when the call began. Where the owner answered and has nothing, nothing is
//     served: it may have been invalidated. Where the owner's primary did not answer and a replica may be read (Config.ReadFrom), the same of that one, as far behind as it may be.
//   - Where the owner did not answer, this process's own copy, also one that is past its L1TTL or suspect because the node's pushes have stopped. This process's own
//     invalidations have removed it, and so have the pushes that came. Another process's invalidation that was never heard of is what the stated age
//     bounds. A copy that an answer of the owner has not confirmed is dropped (outdate).
//
// Never what this process knows to be invalidated: what is owed to the node, what a Clear or a tag has ended. Never an absence.

// lapsed is an entry on the owner that is past its time, as it was read. The zero is none.
type lapsed struct {
	data []byte
	born time.Time
}

// lapses says whether an entry that is too old by its header may still be an answer when nothing else is.
func (c *Cache[V]) lapses(h *header, age time.Duration) bool {
	return c.cfg.StaleIfError > 0 && !h.negative && age < h.hard+c.cfg.StaleIfError
}

// afterlife is how long the nodes keep an entry beyond its hard TTL.
func (c *Cache[V]) afterlife(e *entry[V]) time.Duration {
	if e.negative {
		return 0
	}
	return c.cfg.StaleIfError
}

// hasSpare says whether there is an entry that may answer if the load fails.
func (c *Cache[V]) hasSpare(s *slot[V], o GetOptions, now time.Time) bool {
	if !c.mayServeStale(s, o) {
		return false
	}
	if s.lapsed.data != nil {
		return true
	}
	_, ok := c.spareL1(s, o, now)
	return ok
}

func (c *Cache[V]) mayServeStale(s *slot[V], o GetOptions) bool {
	if c.cfg.StaleIfError == 0 || o.Refresh {
		return false
	}
	losses := s.losses
	owes := c.owes(s)
	lost := s.losses != losses // since the entry was read
	s.losses = losses
	return !owes && !lost
}

// instead answers a read whose load has failed, or is not to be tried, for cause: with what there is from before, or with the error.
func (c *Cache[V]) instead(ctx context.Context, s *slot[V], o GetOptions, cause error) (Result[V], error) {
	none := Result[V]{Node: s.nodeID()}
	if c.source.ending(cause) == stampede.Succeeded { // an answer of the source (CacheConfig.SourceFailure): "you may not see this row" must not become the row
		return none, cause
	}
	if ctx.Err() != nil || errors.Is(cause, ErrClosed) || errors.Is(cause, ErrRecursiveLoad) || !c.mayServeStale(s, o) {
		return none, cause
	}
	r, ok := c.fromLapsed(ctx, s)
	if !ok {
		r, ok = c.fromSpareL1(s, o)
	}
	if !ok {
		return none, cause
	}
	c.counters.staleServed.Add(1)
	r.Node, r.Stale, r.LoadErr = s.nodeID(), true, cause
	return r, nil
}

// fromLapsed makes an answer of what the owner had. It is decoded only here; a large value's body takes a round trip.
func (c *Cache[V]) fromLapsed(ctx context.Context, s *slot[V]) (Result[V], bool) {
	if s.lapsed.data == nil {
		return Result[V]{}, false
	}
	h, payload, ok := parseEnvelope(s.lapsed.data)
	e := entry[V]{header: h, born: s.lapsed.born}
	age := e.ageAt(time.Now())
	if !ok || !c.lapses(&h, age) {
		return Result[V]{}, false
	}
	if h.apart != (apart{}) {
		f, err := s.whole(ctx, &e, fresh)
		ok = err == nil && f == fresh
	} else {
		ok = c.open(&e, payload)
	}
	return Result[V]{Value: e.value, Layer: LayerL2, Age: age, Version: h.version}, ok
}

func (c *Cache[V]) fromSpareL1(s *slot[V], o GetOptions) (Result[V], bool) {
	now := time.Now()
	e, ok := c.spareL1(s, o, now)
	if !ok {
		return Result[V]{}, false
	}
	return Result[V]{Value: c.copied(e.value), Layer: LayerL1, Age: c.since(now) - e.born, Version: e.version}, true
}

// spareL1 is this process's copy of a key whose owner did not answer. L1 itself drops it when it is too old for this, too.
func (c *Cache[V]) spareL1(s *slot[V], o GetOptions, now time.Time) (*l1Entry[V], bool) {
	if c.l1 == nil || o.BypassL1 || s.cause == nil {
		return nil, false
	}
	e, ok := c.l1.Peek(s.key, now)
	ok = ok && !e.negative && c.views[e.owner].unrevoked(e.stamp, e.tags) && !c.owesTag(int(e.owner), e.tags)
	return &e, ok
}

// outdate drops this process's copy of a key that is only kept for the case that nobody answers, now that the owner has: what it answered is what counts, also
// when it falls silent again. (A copy that may be served stays: of many readers at the same time the first puts one there.)
func (c *Cache[V]) outdate(s *slot[V]) {
	if c.cfg.StaleIfError == 0 || c.l1 == nil {
		return
	}
	now := time.Now()
	if e, ok := c.l1.Peek(s.key, now); ok && !c.serves(&e, c.since(now)) {
		c.l1.Drop(s.key)
	}
}

// withoutLoad answers a read that would have to load, where its loads fail: the key's last one did, or the source's do. done is false where a load is to
// be waited for.
//
// Where there is an entry to fall back on nobody waits for the next try: it goes on behind the readers' backs. The others get the error until it is time
// for that, and then they wait for it.
func (c *Cache[V]) withoutLoad(ctx context.Context, s *slot[V], load loader[V], o GetOptions) (r Result[V], err error, done bool) { //nolint:revive,staticcheck // done says whether r and err mean anything
	now := time.Now()
	held, last := c.source.check(s.key, now)
	if held == nil && (last == nil || o.NoFill || !c.hasSpare(s, o, now)) {
		return r, nil, false // as a rule: the rest has a function of its own, for the sake of the stack
	}
	return c.afterFailures(ctx, s, load, o, held, last)
}

func (c *Cache[V]) afterFailures( //nolint:revive,staticcheck // as above
	ctx context.Context, s *slot[V], load loader[V], o GetOptions, held, last error,
) (r Result[V], err error, done bool) {
	of := s.kept()
	if held != nil {
		r, err = c.instead(ctx, of, o, held)
		return r, err, true
	}
	if r, err = c.instead(ctx, of, o, last); err != nil { // it could not be decoded: load
		*s = *of
		return r, nil, false //nolint:nilerr // as said
	}
	c.loadBehind(ctx, of, load, stampede.Expired)
	return r, nil, true
}
