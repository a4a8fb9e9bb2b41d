// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// outcome is what a flight brings back for all its callers.
type outcome[V any] struct {
	entry   entry[V]
	layer   Layer
	stale   bool // below the floor that an invalidation announced
	refused bool // the lease was gone when the fill came: an invalidation passed by
	filled  bool // the entry was stored
	// storable: the entry may be kept, here too; not what is too large, or an absence that the cache does not remember.
	storable bool
	down     bool  // the node was not there for the lease
	gutter   bool  // the lease was in the gutter
	cause    error // why, where a batch knows it
}

// tooLate says whether what a flight brought may be older than an invalidation that had returned nil before this caller joined it. Only a fill
// that was stored, and sent after the caller came, proves that there was none: its lease was there. A value found on the node is as
// good as the last look.
// Where the node was not there, nothing can have been invalidated on it either, as far as a caller can know whose own read it did not answer; to
// load again for every such caller would be a second load a process.
//
// A lease in the gutter says nothing to a caller who finds the owner well: another process that does so too has invalidated there alone, perhaps.
func tooLate[V any](res *stampede.Result[outcome[V]], s *slot[V]) bool {
	o, answered := &res.Value, s.cause == nil
	if o.gutter && !s.gutter {
		return res.Late || o.layer != LayerSource
	}
	if o.filled {
		return res.AfterLast
	}
	return res.Late && (answered || !o.down)
}

// mayKeep says whether an outcome may go into L1 (under a ticket).
func (o *outcome[V]) mayKeep() bool { return o.storable && !o.refused && !o.stale }

// own makes the value of an entry that others have too the caller's. There is none in a negative entry.
func (c *Cache[V]) own(e *entry[V]) {
	if !e.negative {
		e.value = c.copied(e.value)
	}
}

// miss gathers the callers of this process in one flight, which takes the lease, loads and fills. It keeps nothing of s, and what it has of the outcome is handed on by its address: ten
// thousand callers who wait have what they need on stacks that need not grow much.
func (c *Cache[V]) miss(ctx context.Context, s *slot[V], load loader[V], o GetOptions, t ticket[V], asked time.Time) (Result[V], error) {
	if err := c.recursion(ctx, s.key); err != nil {
		return Result[V]{}, err
	}
	if r, err, done := c.withoutLoad(ctx, s, load, o); done {
		return r, err
	}
	var res stampede.Result[outcome[V]]
	if err := c.gather(ctx, s, load, o, &res); err != nil {
		return c.failed(ctx, s, o, err)
	}
	e := &res.Value.entry // a copy of ours
	if res.Value.mayKeep() && !res.Shared && t.blind() {
		t.commit(e, s, asked, time.Now())
	}
	c.own(e)
	return c.result(e, res.Value.layer, s, res.Value.stale)
}

// failed is instead for a slot on the stack of a reader.
//
//go:noinline
func (c *Cache[V]) failed(ctx context.Context, s *slot[V], o GetOptions, err error) (Result[V], error) {
	return c.instead(ctx, s.kept(), o, err)
}

// gather is the flight of a miss. It brings res.
func (c *Cache[V]) gather(ctx context.Context, s *slot[V], load loader[V], o GetOptions, res *stampede.Result[outcome[V]]) error {
	mode := stampede.Miss
	if c.hasSpare(s, o, time.Now()) {
		mode = stampede.Expired
	}
	c.counters.waiting.Add(1)
	defer c.counters.waiting.Add(-1)
	err := c.fly(ctx, s, load, o, mode, res)
	for range maxImpatient {
		if mode == stampede.Expired || !errors.Is(err, stampede.ErrNoPlace) {
			break
		}
		err = c.fly(ctx, s, load, o, mode, res) // who led had an entry to fall back on and did not queue; this caller has none
	}
	if err == nil && tooLate(res, s) {
		// This caller came after the load had begun, and perhaps after an invalidation that came in between had returned: then the
		// value is older than what the caller must see. Load again, once: that load begins now.
		err = c.fly(ctx, s, load, o, mode, res)
	}
	return err
}

// fly joins the run that is under way for a key, or begins one.
func (c *Cache[V]) fly(ctx context.Context, s *slot[V], load loader[V], o GetOptions, mode stampede.Mode, res *stampede.Result[outcome[V]]) error {
	gathering := &c.misses
	if o.NoFill {
		gathering = &c.unfilled
	}
	flight := gathering.flight(ctx, c.client.limiter)
	w, found, err := flight.Join(ctx, s.key)
	switch {
	case err != nil:
	case found:
		err = w.GetInto(ctx, res)
	default:
		err = c.lead(ctx, flight, s, load, o, mode, res)
	}
	return err
}

// lead is fly for who has found nobody to join. (If somebody has come meanwhile, it joins all the same.)
func (c *Cache[V]) lead(
	ctx context.Context, flight *stampede.Flight[outcome[V]], s *slot[V], load loader[V], o GetOptions, mode stampede.Mode, res *stampede.Result[outcome[V]],
) (err error) {
	of := s.kept() // each run has its own session
	*res, err = flight.Do(ctx, s.key, func(ctx context.Context, r *stampede.Run) (outcome[V], error) {
		if o.NoFill {
			return c.loadOnly(ctx, of, load, mode, r)
		}
		return c.fetch(ctx, of, load, mode, r)
	})
	return err
}

// maxImpatient is how often a caller that would queue for a place joins, one after the other, runs that do not, before it takes their answer.
const maxImpatient = 8

// forced loads whatever the cache holds and takes the lease from whoever has it. It shares no flight: its load must begin after the call did.
func (c *Cache[V]) forced(ctx context.Context, s *slot[V], load loader[V], o GetOptions) (Result[V], error) {
	if load == nil {
		return c.noSource(s)
	}
	if err := c.recursion(ctx, s.key); err != nil {
		return Result[V]{}, err
	}
	res, err := c.forces.Do(ctx, c.ownKey(), func(ctx context.Context, r *stampede.Run) (outcome[V], error) {
		if o.NoFill {
			return c.loadOnly(ctx, s, load, stampede.Force, r)
		}
		out, err := c.fetch(ctx, s, load, stampede.Force, r)
		if err == nil {
			if out.filled { // what is not reached now is owed, and that nothing is stored anywhere is no error here
				if !s.gutter { // who still finds the owner down has the old row there
					_ = c.voidGutter(ctx, []string{s.key}, func(string) bool { return true }, func(string) uint64 { return 0 })
				}
				_ = c.voidAfterFill(ctx, s, 0, out.entry.negative)
			}
			c.dropLocal(s.key) // copies in this process are older than what was loaded
		}
		return out, err
	})
	if err != nil {
		return Result[V]{Node: s.nodeID()}, err
	}
	e := res.Value.entry
	c.own(&e)
	return c.result(&e, res.Value.layer, s, res.Value.stale)
}

// fetch is one pass of lease, load, fill (stampede.Fetch has the rules).
func (c *Cache[V]) fetch(ctx context.Context, s *slot[V], load loader[V], mode stampede.Mode, r *stampede.Run) (outcome[V], error) {
	defer func() { s.wake.drop() }()
	s.down = s.down || c.owes(s) // once it can be joined: see debts
	var call atomic.Pointer[sourceCall]
	out, err := stampede.Fetch(ctx, c.loop, s, mode, r, func(ctx context.Context) (stampede.Loaded[entry[V]], error) {
		return c.load(ctx, s, load, mode == stampede.Force, &call)
	})
	if err != nil {
		call.Load().end(err, time.Now()) // one that hangs, or has panicked
	}
	c.countFailure(err)
	if err != nil {
		return outcome[V]{}, c.explain(err, s.key)
	}
	if out.Stale {
		c.counters.loadsStale.Add(1)
	}
	o := outcome[V]{entry: out.Entry, layer: LayerSource, stale: out.Stale, refused: out.Refused, filled: out.Filled, storable: true, down: out.ShelfErr != nil, gutter: s.gutter}
	o.stale = o.stale || out.Older
	if out.Source == stampede.FromLoad {
		o.storable, o.entry.stamp = out.Entry.wire != nil, s.gen.Seq
	}
	o.entry.wire, o.entry.body = nil, nil // stored or not, nobody needs them any more
	if out.Source != stampede.FromLoad {
		o.layer = LayerL2
	}
	if out.Filled && mode != stampede.Force {
		c.copyFilled(s, o.entry.negative)
	}
	return o, nil
}

// loadOnly loads under the limiter and stores nothing.
func (c *Cache[V]) loadOnly(ctx context.Context, s *slot[V], load loader[V], mode stampede.Mode, r *stampede.Run) (outcome[V], error) {
	nowhere := *s
	nowhere.down = true
	return c.fetch(ctx, &nowhere, load, mode, r)
}

// refreshBehind starts a refresh unless one is running in this process. The lease decides which process does it; where another has it,
// or the loader fails, this process leaves the key alone for a moment before it tries again.
func (c *Cache[V]) refreshBehind(ctx context.Context, s *slot[V], load loader[V]) {
	if err, _ := c.source.check(s.key, time.Now()); err == nil {
		c.loadBehind(ctx, s, load, stampede.Refresh)
	}
}

// loadBehind is refreshBehind, without asking how the source is doing. In mode Expired the entry is past its time, and its readers get it since their loads fail.
func (c *Cache[V]) loadBehind(ctx context.Context, s *slot[V], load loader[V], mode stampede.Mode) {
	ctx = unscoped(ctx) // a loader that has started it does not wait for it
	c.refreshes.Start(ctx, s.key, func(ctx context.Context, r *stampede.Run) (outcome[V], error) {
		out, err := c.fetch(ctx, s, load, mode, r)
		switch {
		case err == nil && out.filled:
			c.counters.refreshes.Add(1)
		case err == nil && out.layer != LayerSource:
			c.pause(ctx, refreshYield) // another process has the lease, or was quicker
		case err != nil:
			c.counters.refreshErrors.Add(1)
			c.pause(ctx, refreshBackoff)
		default: // loaded, but refused: trying again at once would give the same
			c.pause(ctx, refreshBackoff)
		}
		return out, err
	})
}

const (
	refreshBackoff = time.Second            // after a load that failed or was refused; jittered to between half and all of it
	refreshYield   = 100 * time.Millisecond // after another process had the lease
)

// pause holds the key's place among the refreshes for a jittered while, or until the cache closes.
func (c *Cache[V]) pause(ctx context.Context, d time.Duration) { sleep(ctx, c.jittered(d)) }

// jittered takes up to a half off d, so that processes drift apart.
func (c *Cache[V]) jittered(d time.Duration) time.Duration {
	return d/2 + time.Duration(c.draw()*float64(d/2))
}

// sleep returns after d or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
