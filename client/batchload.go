// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// settle records the answer for one key.
func (b *batch[V]) settle(key string, e *entry[V], err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil && e.negative:
		b.c.notThere()
	case err == nil:
		b.found[key] = e.value
	case !errors.Is(err, ErrNotFound): // which has been counted by who has learnt it (result)
		if b.failed == nil {
			b.failed = make(map[string]error)
		}
		b.failed[key] = err
	}
}

// err joins what failed, in no order; nil where nothing did.
func (b *batch[V]) err(ctx context.Context) error {
	if b.left == 0 && len(b.failed) == 0 {
		return nil
	}
	errs := make(keyErrors, 0, len(b.failed)+1)
	if b.left > 0 {
		errs = append(errs, fmt.Errorf("shelf: GetMany: %d keys had no answer yet: %w", b.left, ctx.Err()))
	}
	for k, err := range b.failed {
		errs = append(errs, &KeyError{k, err})
	}
	return errs
}

// load gets what the nodes did not have.
func (b *batch[V]) load(ctx context.Context, missing []wanted[V]) {
	missing = slices.DeleteFunc(slices.Clone(missing), func(w wanted[V]) bool {
		err := b.c.recursion(ctx, w.key)
		if err != nil {
			b.settle(w.key, nil, err)
		}
		return err != nil
	})
	switch {
	case len(missing) == 0:
	case b.c.cfg.Truth:
		for _, w := range missing {
			if w.cause != nil {
				b.settle(w.key, nil, &NodeError{Node: w.nodeID(), Cache: b.c.cfg.Name, Op: "get", Keys: []string{w.key}, Err: closedError(w.cause)})
			}
		}
	case b.c.cfg.LoadMany == nil:
		b.loadSingly(ctx, missing)
	default:
		if late := b.loadTogether(ctx, missing, false); len(late) > 0 {
			b.loadTogether(ctx, late, true) // as in miss: load again, once
		}
	}
}

// loadSingly is for caches that can only load one key at a time: each key is a miss like any other.
func (b *batch[V]) loadSingly(ctx context.Context, missing []wanted[V]) {
	workers := min(singleLoads, len(missing))
	if b.c.client.limiter.Holds(ctx) {
		workers = 1 // they share their loader's one place
	}
	var loads crew
	turns := make(chan struct{}, workers)
	for i, w := range missing {
		turns <- struct{}{}
		if ctx.Err() != nil {
			b.leave(len(missing) - i)
			break
		}
		loads.Go(func() {
			defer func() { <-turns }()
			b.loadOne(ctx, w)
		})
	}
	loads.Wait()
}

func (b *batch[V]) loadOne(ctx context.Context, w wanted[V]) {
	r, err := b.c.miss(ctx, w.slot, b.c.ownLoader(), GetOptions{}, w.ticket, b.asked)
	if b.leaves(ctx, err) {
		return
	}
	e := entry[V]{value: r.Value}
	b.settle(w.key, &e, err)
}

// loadTogether leads the keys that nobody in this process leads, loads and fills them all, and only then waits for the others: two
// batches that overlap crosswise would otherwise wait for each other. It returns the keys whose values it must not use because this call joined
// their loads too late (see miss); the second time it is called for them it uses what it gets.
func (b *batch[V]) loadTogether(ctx context.Context, missing []wanted[V], again bool) (late []wanted[V]) {
	byKey := make(map[string]wanted[V], len(missing))
	keys := make([]string, 0, len(missing))
	for _, w := range missing {
		if err, _ := b.c.source.check(w.key, time.Now()); err != nil {
			b.instead(ctx, w, err)
			continue
		}
		byKey[w.key] = w
		keys = append(keys, w.key)
	}
	if len(keys) == 0 {
		return nil
	}
	led, others, err := b.c.misses.flight(ctx, b.c.client.limiter).Lead(ctx, keys)
	if err != nil {
		for _, k := range keys {
			b.settle(k, nil, err)
		}
		return nil
	}
	if len(led.Keys()) > 0 {
		b.lead(ctx, led, byKey)
	}
	for k, other := range others {
		res, err := other.Get(ctx)
		if b.leaves(ctx, err) {
			continue
		}
		if w := byKey[k]; !again && (err == nil && tooLate(&res, w.slot) || b.impatient(w, err)) {
			late = append(late, w)
			continue
		}
		b.take(ctx, byKey[k], &res.Value, err)
	}
	return late
}

// lead starts the run for the keys that this call leads, and takes what it brings.
func (b *batch[V]) lead(ctx context.Context, led *stampede.Batch[outcome[V]], byKey map[string]wanted[V]) {
	run := &batchRun[V]{c: b.c, led: led, left: func() bool { return ctx.Err() != nil }}
	own := make([]slot[V], len(led.Keys())) // the run works on them when this call has left, perhaps
	for i, k := range led.Keys() {
		own[i] = *byKey[k].slot
		run.todo = append(run.todo, &own[i])
	}
	led.Go(ctx, run.run) // in a goroutine that outlives this call if the caller leaves
	over := false        // ctx has ended: take what is there
	for _, k := range led.Keys() {
		wait := led.Wait(k)
		if over && !wait.Done() {
			b.leave(1)
			continue
		}
		res, err := wait.Get(ctx)
		if b.leaves(ctx, err) {
			over = true
			continue
		}
		if w := byKey[k]; err == nil && res.Value.mayKeep() && w.ticket.blind() {
			w.ticket.commit(&res.Value.entry, w.slot, b.asked, time.Now())
		}
		b.take(ctx, byKey[k], &res.Value, err)
	}
}

// leaves says whether a key has no answer because ctx has ended, and counts it then.
func (b *batch[V]) leaves(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() == nil {
		return false
	}
	over := errors.Is(err, ctx.Err()) && !errors.Is(err, ErrLoadTimeout) || errors.Is(err, stampede.ErrAbandoned) // dropped, since ctx has ended
	if over {
		b.leave(1)
	}
	return over
}

func (b *batch[V]) leave(keys int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += keys
}

// take settles a key with what a flight has brought.
func (b *batch[V]) take(ctx context.Context, w wanted[V], o *outcome[V], err error) {
	if err != nil {
		b.instead(ctx, w, err)
		return
	}
	e := o.entry
	b.c.own(&e)
	b.settle(w.key, &e, nil)
}

// instead settles a key whose load has failed, or is not to be tried: with an entry that is past its time, where there is one.
func (b *batch[V]) instead(ctx context.Context, w wanted[V], cause error) {
	r, err := b.c.instead(ctx, w.slot, GetOptions{}, cause)
	b.settle(w.key, &entry[V]{value: r.Value}, err)
}

// impatient says whether the load that a key joined gave up since its leader has an entry to fall back on, which this call has not.
func (b *batch[V]) impatient(w wanted[V], err error) bool {
	return errors.Is(err, stampede.ErrNoPlace) && !b.c.hasSpare(w.slot, GetOptions{}, time.Now())
}

// place takes a place for the load of some keys, and queues for it if one of them has no entry to fall back on.
func (r *batchRun[V]) place(ctx context.Context, slots []*slot[V]) (*stampede.Place, error) {
	now := time.Now()
	if slices.ContainsFunc(slots, func(s *slot[V]) bool { return !r.c.hasSpare(s, GetOptions{}, now) }) {
		return r.c.client.limiter.Acquire(ctx)
	}
	place, ok := r.c.client.limiter.TryAcquire(ctx)
	if !ok {
		return nil, stampede.ErrNoPlace
	}
	return place, nil
}

// crew is a sync.WaitGroup whose Wait passes a panic on: user code (a Clone) that panics in one of our goroutines panics in its caller's.
type crew struct {
	sync.WaitGroup
	panicked atomic.Pointer[any]
}

func (c *crew) Go(f func()) {
	c.WaitGroup.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.panicked.CompareAndSwap(nil, &p)
			}
		}()
		f()
	})
}

func (c *crew) Wait() {
	c.WaitGroup.Wait()
	if p := c.panicked.Load(); p != nil {
		panic(*p)
	}
}
