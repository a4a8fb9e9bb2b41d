// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// The defaults of WarmOptions, and its fixed bounds.
const (
	DefaultWarmRate  = 1000.0 // keys a second
	DefaultWarmShare = 0.25   // of Config.MaxLoads

	warmLooks   = 20     // keys that are looked at, as a multiple of the rate
	warmBursts  = 10     // LoadMany gets a second's worth of keys in this many calls
	maxWarm     = 10_000 // keys of a batch
	maxFailures = 1000   // that are told by name
)

// WarmOptions are the options of Cache.Warm. Every zero means the default that its field names; a wrong value is a *ConfigError.
type WarmOptions struct {
	// Rate is how many keys a second are loaded at most; 0 means 1,000. In any second there are at most as many, and one load more: a LoadMany
	// call gets a tenth of a second's keys (at least one, at most MaxLoadKeys), a Load one. Keys whose entries are there are not loaded and do not count; but no
	// more than twenty times as many keys a second are looked at, since a look moves the entry. Within a second the loads may come in bursts.
	Rate float64

	// Share is how much of Config.MaxLoads this call's loads may take at once, from 0 to 1; 0 means 0.25, and it is at least one place. A
	// place is taken only where nobody waits for one, and the last quarter of them is left to others (of less than four, none).
	Share float64

	// Batch is how many keys are looked at together, one MGET a node where they are small; 0 means a second's worth of Rate, from 16 to 512. At most
	// 10,000. Progress comes once a batch.
	Batch int

	// Refresh loads also the keys whose entries are there: after a change of the source that nobody announced. The entries are served until
	// the new ones are stored.
	Refresh bool

	// Skip is how many keys at the beginning of the sequence are passed over without a look: the Done of a call that ended before its time. A
	// sequence that is shorter is an error: it is not the one that the number is from.
	Skip int64

	// Total is how many keys the sequence has, those to be skipped included; 0 is not known. It serves WarmProgress alone.
	Total int64

	// Progress, when not nil, is called after each batch, in the goroutine of the call: what it takes, the warm-up waits.
	Progress func(WarmProgress)
}

// WarmResult says how far a warm-up came. Each key that was dealt with is in one of Loaded, Present, Busy, Unstored, Failed.
type WarmResult struct {
	// Done is how many keys of the sequence are dealt with, counted from its beginning, in whole batches and without a gap: a later call over
	// the same sequence goes on from there with Skip. It includes this call's Skip, and the keys that failed: Skip passes over those too.
	Done int64
	// Last is the last of them, for those who make the sequence anew: WHERE id > Last ORDER BY id. "" where this call has done no batch.
	Last string

	Loaded   int64 // loaded and stored
	Absent   int64 // those of Loaded of which the source has no row: that was stored
	Present  int64 // not loaded: an entry was there, or had come meanwhile, or the key was in the batch before
	Busy     int64 // not loaded: another call or process had the lease, and is loading it
	Unstored int64 // loaded in vain: invalidated meanwhile, too old, too large, not encodable (Cache.Stats tells which); or known not to be storable
	Failed   int64 // not loaded, or not stored because the node failed

	// Failures are the first 1,000 of Failed, each with its reason. A *NodeError there says that the key's node was not reached.
	Failures []*KeyError
}

// WarmProgress is how far a warm-up has come.
type WarmProgress struct {
	WarmResult
	Total int64         // as given; 0 is not known
	Speed float64       // keys a second, skipped ones not counted: a mean in which what was half a minute ago counts little
	Left  time.Duration // until Total at that speed; 0 where it is not known
}

// Warm fills the cache with the rows of many keys, at a rate that the database and the service's users do not notice. Each batch is looked at
// first, and what is there stays; the rest is loaded by LoadMany (or Load, where there is none), under the same leases as a miss: an
// invalidation that comes meanwhile voids the fill, and two processes that warm the same keys load them once. Neither this process's own copies
// nor its counts of hot keys are touched.
//
// keys is any sequence: slices.Values(list), or a function that reads a cursor; duplicates are fine. It is read a batch at a time, so it may be
// longer than memory. While it blocks nothing else happens, ctx included.
//
// A load takes a place among MaxLoads as any other, but never waits in the queue: see WarmOptions.Share. While users need the places, Warm stands still.
//
// Keys that fail (the loader's error, a node that does not answer, an invalid key) are counted, and the call goes on, after a pause: a
// tenth of a second, doubled up to ten seconds for as long as all fails. Nothing is loaded for a node that is down. At the end the error then says
// how many failed and why the first did (errors.Is and As reach that one).
//
// When ctx ends, the call returns with ctx's error, as soon as the nodes that are being asked have answered (OperationTimeout at most), and the result
// says what was done. Loads that are under way then go on and are stored; they are in none of the counts. Call again with Skip, or from Last, or
// simply once more: what is there is passed over. After Close the error is ErrClosed; Close waits for the loads, not for Progress.
//
// A cache that is itself the truth has no loader: a *ConfigError.
func (c *Cache[V]) Warm(ctx context.Context, keys iter.Seq[string], o WarmOptions) (WarmResult, error) {
	if c.closed.Load() {
		return WarmResult{}, ErrClosed
	}
	o, err := o.withDefaults()
	switch {
	case c.cfg.Truth:
		return WarmResult{}, &ConfigError{"CacheConfig.Truth", true, "a cache that is itself the truth has no loader to be warmed by"}
	case err != nil:
		return WarmResult{}, err
	case keys == nil:
		return WarmResult{}, &ConfigError{"keys", "nil", "must be given"}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ending, cancel)() //nolint:contextcheck // two contexts end the call: the caller's and the cache's
	w := newWarming(c, o)
	for k := range keys {
		if w.over(ctx) {
			break
		}
		if w.result.Done < o.Skip {
			w.result.Done++
			continue
		}
		if w.add(k); w.size == o.Batch {
			w.batch(ctx)
		}
	}
	w.batch(ctx)
	if w.result.Done < o.Skip && !w.over(ctx) {
		return w.result, &ConfigError{"WarmOptions.Skip", o.Skip, fmt.Sprintf("must not be more than the keys of the sequence (%d)", w.result.Done)}
	}
	return w.result, w.err(ctx)
}

// err is what the call returns beside its result.
func (w *warming[V]) err(ctx context.Context) error {
	r := &w.result
	switch {
	case w.c.closed.Load():
		return fmt.Errorf("shelf: Warm ended after %d keys: %w", r.Done, ErrClosed)
	case ctx.Err() != nil:
		return fmt.Errorf("shelf: Warm ended after %d keys: %w", r.Done, ctx.Err())
	case r.Failed > 0:
		return fmt.Errorf("shelf: Warm: %d of %d keys failed, the first: %w", r.Failed, r.Done-w.Skip, r.Failures[0])
	}
	return nil
}

func (o WarmOptions) withDefaults() (WarmOptions, error) {
	if !(o.Share >= 0 && o.Share <= 1) { // also catches NaN
		return o, &ConfigError{"WarmOptions.Share", o.Share, fmt.Sprintf("must be from 0 (meaning %v) to 1", DefaultWarmShare)}
	}
	if o.Share == 0 {
		o.Share = DefaultWarmShare
	}
	if err := orDefaultFloat("WarmOptions.Rate", &o.Rate, DefaultWarmRate); err != nil {
		return o, err
	}
	if o.Skip < 0 {
		return o, &ConfigError{"WarmOptions.Skip", o.Skip, "must not be negative"}
	}
	if o.Total < 0 {
		return o, &ConfigError{"WarmOptions.Total", o.Total, "must not be negative (0 is not known)"}
	}
	if o.Batch > maxWarm {
		return o, &ConfigError{"WarmOptions.Batch", o.Batch, fmt.Sprintf("must be at most %d", maxWarm)}
	}
	return o, orDefaultInt("WarmOptions.Batch", &o.Batch, int(min(max(o.Rate, 16), 512)))
}
