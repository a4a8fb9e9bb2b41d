// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrAbandoned is what waiters get for a key whose batch ended without giving
// it a result.
var ErrAbandoned = errors.New("shelf: the batch that led this key ended without a result")

// Batch is the lead of several keys, taken by [Flight.Lead]: whoever asks for
// one of them meanwhile waits for the batch. Its owner loads them, calls Finish
// for each, and Close in any case:
//
//	batch, others, err := flight.Lead(ctx, keys)
//	if err != nil { ... }
//	batch.Go(ctx, func(ctx context.Context) { // loads batch.Keys(), calls Finish })
//	for each of batch.Keys(): batch.Wait(key).Get(ctx)
//	for each of others:       wait.Get(ctx)
//
// A batch loads all that it leads before it waits for anything: two batches that
// each lead what the other waits for would otherwise never end. So: load in Go,
// wait outside it. Methods are safe for concurrent use.
type Batch[V any] struct {
	flight *Flight[V]
	keys   []string
	calls  map[string]*call[V]
	began  atomic.Bool
	close  sync.Once
}

// Lead takes the lead of those keys that nobody leads, some hundreds in one
// step: others get their turns in between. For the
// others it returns what to wait on; a key that ctx itself is loading is among
// them and answers ErrRecursiveLoad at once. Keys that occur twice count
// once. Every key is then either in led.Keys() or in others. The error is
// ErrClosed or ctx's; led is never nil without an error.
func (f *Flight[V]) Lead(ctx context.Context, keys []string) (led *Batch[V], others map[string]*Wait[V], err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	// Held until Close. Taken even if it turns out that there is nothing to
	// lead, because a closed flight must be noticed before anything is led.
	if !f.crew.enter() {
		return nil, nil, ErrClosed
	}
	led = &Batch[V]{flight: f, calls: make(map[string]*call[V], len(keys))}
	others = make(map[string]*Wait[V])
	joined := f.clock.next()
	for part := range slices.Chunk(keys, leadAtOnce) {
		led.claim(ctx, part, joined, others)
	}
	if len(led.keys) == 0 {
		led.Close()
	}
	return led, others, nil
}

// leadAtOnce bounds how many keys Lead claims before others have their turn at the flight.
const leadAtOnce = 512

// claim is Lead for some of the keys, in one step.
func (b *Batch[V]) claim(ctx context.Context, keys []string, joined uint64, others map[string]*Wait[V]) {
	f := b.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range keys {
		if b.calls[key] != nil || others[key] != nil {
			continue
		}
		if isLoading(ctx, f, key) {
			others[key] = &Wait[V]{err: fmt.Errorf("%w of key %q", ErrRecursiveLoad, key)}
		} else if c := f.leads[key]; c != nil {
			c.joins++
			others[key] = &Wait[V]{call: c, joined: joined, shared: true}
		} else {
			b.keys = append(b.keys, key)
			b.calls[key] = f.lead(key)
		}
	}
}

// Keys returns the keys that the batch leads, in the order in which they were
// given. The caller must not change the slice.
func (b *Batch[V]) Keys() []string { return b.keys }

// Context returns ctx marked as belonging to the load of the batch's keys, so
// that a loader that asks for one of them gets ErrRecursiveLoad. Go does it by itself.
func (b *Batch[V]) Context(ctx context.Context) context.Context {
	return withLoading(ctx, b.flight, func(key string) bool {
		c := b.calls[key]
		return c != nil && !c.over()
	})
}

// Go runs load in a goroutine that has ctx's values but not its cancellation,
// so that the caller may leave while the load goes on for others. When load
// ends the batch is closed; a panic or Goexit becomes the error of the keys that
// have no result yet. Go is called at most once and not after Close.
func (b *Batch[V]) Go(ctx context.Context, load func(ctx context.Context)) {
	ctx = b.Context(context.WithoutCancel(ctx))
	counted := b.flight.crew.enter() // refused while closing; then the batch's own place counts
	go func() {
		if counted {
			defer b.flight.crew.leave()
		}
		protect(
			func() (struct{}, error) { load(ctx); return struct{}{}, nil },
			func(_ struct{}, err error) { b.end(err) },
		)
	}()
}

// Began is called right before the source is read; see [Run.Began]. It counts
// for all keys that have no result yet. The first call counts, further ones cost
// nothing: a batch of very many keys may load them in parts.
func (b *Batch[V]) Began() {
	if b.began.Swap(true) {
		return // the first call counts, and it has counted for all
	}
	now := b.flight.clock.next()
	for _, c := range b.calls {
		c.setBegan(now)
	}
}

// Looked is [Run.Looked] for some keys of the batch.
func (b *Batch[V]) Looked(keys []string) {
	now := b.flight.clock.next()
	for _, key := range keys {
		if c := b.calls[key]; c != nil {
			c.setLooked(now)
		}
	}
}

// Finish gives key its result. The first result of a key stands; a key that the
// batch does not lead is ignored. It reports whether the value was given to
// others too: then the batch's owner must copy it before changing it.
func (b *Batch[V]) Finish(key string, value V, err error) (shared bool) {
	c := b.calls[key]
	if c == nil {
		return false
	}
	return b.flight.finish(key, c, value, err)
}

// Drop gives up those of keys that have no result yet and that nobody else has ever joined, with ErrAbandoned, and
// returns the others: for an owner that has parts left to load when its caller is gone. Who asks for a dropped key from now on
// leads it.
func (b *Batch[V]) Drop(keys []string) (kept []string) {
	var none V
	for _, key := range keys {
		c := b.calls[key]
		if c == nil {
			continue
		}
		b.flight.mu.Lock()
		joined := c.joins > 0 && !c.settled
		dropped := !joined && b.flight.settle(key, c, none, ErrAbandoned)
		b.flight.mu.Unlock()
		if dropped {
			close(c.done)
		}
		if joined {
			kept = append(kept, key)
		}
	}
	return kept
}

// Wait returns what to wait on for a key of Keys, for an owner that loads in
// another goroutine. It is nil for any other key.
func (b *Batch[V]) Wait(key string) *Wait[V] {
	c := b.calls[key]
	if c == nil {
		return nil
	}
	return &Wait[V]{call: c}
}

// Close ends the batch: keys without a result get ErrAbandoned. It may be
// called again, and is meant to be deferred, so that a panic or Goexit leaves
// nobody waiting.
func (b *Batch[V]) Close() { b.end(nil) }

func (b *Batch[V]) end(err error) {
	if err == nil {
		err = ErrAbandoned
	}
	b.close.Do(func() {
		defer b.flight.crew.leave()
		var none V
		for key, c := range b.calls {
			b.flight.finish(key, c, none, err)
		}
	})
}
