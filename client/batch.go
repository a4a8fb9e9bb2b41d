// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// maxKeys bounds the keys of one MGET, maxScripts the script calls of one pipeline: a node serves others between two commands, and an
// embedded node, whose scripts take some 200 us each, answers a pipeline well within a timeout.
const (
	maxKeys    = 512
	maxScripts = 64
	// maxPipeline bounds the bytes of one pipeline of fills: it must be through within the operation timeout.
	maxPipeline = 4 << 20
)

// singleLoads bounds how many Load calls one GetMany has under way at once where the cache has no LoadMany.
const singleLoads = 16

// GetMany returns the values of many keys: this process's own copies, one MGET a node (in parallel, at most 512 keys a command), and one LoadMany
// call for all that miss (at most MaxLoadKeys keys a call).
//
// The map holds the keys that have a value; a key that the source does not have is missing from it, and that is no error. Duplicate
// keys count once; no keys give an empty map. An invalid key fails the whole call before any I/O. When some keys fail, the map holds
// the others, and the error joins one *KeyError for each key that failed; its text names the first few.
//
// When ctx ends first, the map holds what had come by then, and the error joins ctx's own, once for all keys that had not. The call returns soon, in
// 300 ms for 200,000 keys (a bound that is tested). The LoadMany call that is under way is finished and its rows are stored all the same, and so is
// the first if none has begun; further ones (keys beyond MaxLoadKeys) are not begun, but for keys that others wait for.
//
// 200,000 keys that are there take some four hundred commands and about a second of a processor; others' reads go in between. Of keys that miss, each 64
// of a node take two round trips more, for their leases and for their values.
func (c *Cache[V]) GetMany(ctx context.Context, keys []string) (map[string]V, error) {
	if c.closed.Load() {
		return nil, ErrClosed // also without keys
	}
	for i, k := range keys {
		if err := checkKey(k); err != nil {
			return nil, fmt.Errorf("shelf: keys[%d]: %w", i, err)
		}
	}
	if err := ctx.Err(); err != nil && len(keys) > 0 {
		return nil, err
	}
	b := &batch[V]{c: c, asked: time.Now(), found: make(map[string]V, len(keys)), failed: make(map[string]error)}
	missing := b.read(ctx, b.local(ctx, keys))
	defer func() {
		for _, w := range missing {
			w.ticket.cancel()
		}
	}()
	if ctx.Err() != nil {
		b.left += len(missing)
	} else if len(missing) > 0 {
		c.counters.waiting.Add(int64(len(missing)))
		defer c.counters.waiting.Add(-int64(len(missing)))
		b.load(ctx, missing)
	}
	return b.found, b.err(ctx)
}

// batch is one GetMany.
type batch[V any] struct {
	c     *Cache[V]
	asked time.Time

	mu     sync.Mutex // guards what follows: nodes answer in parallel
	found  map[string]V
	failed map[string]error
	left   int // keys that had no answer when ctx ended
}

// wanted is one key on its way through a batch.
type wanted[V any] struct {
	*slot[V]
	ticket ticket[V]
}

// lookEvery is after how many keys a loop over very many looks whether ctx has ended, slotsAtOnce how many slots are made in one piece.
const (
	lookEvery   = 256
	slotsAtOnce = 64
)

// local answers from L1 and returns the rest, once each, by owner.
func (b *batch[V]) local(ctx context.Context, keys []string) [][]wanted[V] {
	seen := make(map[string]struct{}, len(keys))
	rest := make([][]wanted[V], len(b.c.client.nodes))
	var room []slot[V]
	distinct := 0
	for i, k := range keys {
		if i%lookEvery == 0 && ctx.Err() != nil {
			b.left += len(keys) - i
			break
		}
		if seen[k] = struct{}{}; len(seen) == distinct {
			continue
		}
		distinct++
		hot := b.c.hot != nil && b.c.hot.Observe(k, b.asked)
		if b.c.l1 != nil {
			if e, ok := b.c.fromL1(k, b.asked); ok {
				if !e.negative {
					b.found[k] = b.c.copied(e.value)
				}
				continue
			}
		}
		b.c.counters.l1Misses.Add(1)
		if len(room) == cap(room) {
			room = make([]slot[V], 0, min(slotsAtOnce, len(keys)-i))
		}
		room = append(room, b.c.slotOf(k))
		s := &room[len(room)-1]
		w := wanted[V]{s, b.c.wantL1(s, hot, b.asked)}
		rest[w.owner] = append(rest[w.owner], w)
	}
	return rest
}

// read asks the owners, all at once, and returns what must be loaded.
func (b *batch[V]) read(ctx context.Context, byOwner [][]wanted[V]) []wanted[V] {
	var missing []wanted[V]
	var nodes crew
	for _, group := range byOwner {
		if len(group) == 0 {
			continue
		}
		nodes.Go(func() {
			m := b.readNode(ctx, group)
			b.mu.Lock()
			defer b.mu.Unlock()
			missing = append(missing, m...)
		})
	}
	nodes.Wait()
	return missing
}

// readNode reads one node's keys, a bounded number of keys and bytes a command. After a command that failed the node is not asked again
// in this call.
func (b *batch[V]) readNode(ctx context.Context, group []wanted[V]) (missing []wanted[V]) {
	failed := error(nil)
	var mu sync.Mutex // guards missing
	miss := func(w wanted[V]) {
		mu.Lock()
		defer mu.Unlock()
		missing = append(missing, w)
	}
	slices.SortStableFunc(group, func(x, y wanted[V]) int { return cmp.Compare(watchedFirst(x), watchedFirst(y)) })
	for len(group) > 0 {
		part := group[:min(len(group), group[0].node.BatchKeys(maxKeys))]
		if cut := slices.IndexFunc(part, func(w wanted[V]) bool { return w.ticket.watch != part[0].ticket.watch }); cut > 0 {
			part = part[:cut]
		}
		group = group[len(part):]
		var vals [][]byte
		var gen invalidation.Generation
		if failed == nil {
			if vals, gen, failed = b.readPart(ctx, part); failed != nil && ctx.Err() == nil {
				b.c.counters.nodeErrors.Add(1)
			}
		}
		if failed != nil {
			for _, w := range part {
				w.fails(failed)
				miss(w)
			}
			continue
		}
		several(len(part), func(i int) bool { return isStub(vals[i]) }, func(i int) {
			if !b.answer(ctx, part[i], vals[i], gen) {
				miss(part[i])
			}
		})
	}
	return missing
}

// watchedFirst orders the keys that are to be read through a Tracking before the others.
func watchedFirst[V any](w wanted[V]) int {
	if w.ticket.watch != nil {
		return 0
	}
	return 1
}

func (b *batch[V]) readPart(ctx context.Context, part []wanted[V]) ([][]byte, invalidation.Generation, error) {
	if err := ctx.Err(); err != nil {
		return nil, invalidation.Generation{}, err
	}
	names := make([]string, len(part)+1)
	for i, w := range part {
		names[i] = w.names.Data
	}
	names[len(part)] = b.c.names.of.Generation
	var vals [][]byte
	err := redisnode.ErrTrackingOver
	if t := part[0].ticket.watch; t != nil {
		vals, err = t.MGet(ctx, names)
	}
	if errors.Is(err, redisnode.ErrTrackingOver) {
		vals, err = part[0].node.MGet(ctx, names)
	}
	if err != nil {
		return nil, invalidation.Generation{}, err
	}
	return vals, invalidation.ParseGeneration(vals[len(part)]), nil
}

// answer takes one value that a node sent; false: the key must be loaded.
func (b *batch[V]) answer(ctx context.Context, w wanted[V], data []byte, gen invalidation.Generation) bool {
	e, f, err := w.look(ctx, data, gen)
	if err == nil && f == unusable && w.gone != (bodyID{}) {
		e, f, err = w.read(ctx, w.ticket.watch) // the body is gone: perhaps there is a newer one
	}
	if err != nil {
		if leftBy(ctx, err) == nil {
			b.c.counters.nodeErrors.Add(1)
		}
		w.fails(err)
		return false
	}
	if f != fresh && f != softened {
		return false
	}
	b.c.counters.l2Hits.Add(1)
	w.ticket.commit(&e, w.slot, b.asked, time.Now())
	w.ticket.cancel()
	if f == softened && !b.c.cfg.Truth {
		b.c.refreshBehind(ctx, w.slot, b.c.ownLoader())
	}
	b.settle(w.key, &e, nil)
	return true
}

// settle records the answer for one key.
func (b *batch[V]) settle(key string, e *entry[V], err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil && !e.negative:
		b.found[key] = e.value
	case err != nil && !errors.Is(err, ErrNotFound):
		b.failed[key] = err
	}
}

// err joins what failed, in no order; nil where nothing did.
func (b *batch[V]) err(ctx context.Context) error {
	errs := make(keyErrors, 0, len(b.failed)+1)
	if b.left > 0 {
		errs = append(errs, fmt.Errorf("shelf: GetMany: %d keys had no answer yet: %w", b.left, ctx.Err()))
	}
	for k, err := range b.failed {
		errs = append(errs, &KeyError{k, err})
	}
	if len(errs) == 0 {
		return nil
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
				b.settle(w.key, nil, &NodeError{Node: w.nodeID(), Op: "get", Keys: []string{w.key}, Err: w.cause})
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
		byKey[w.key] = w
		keys = append(keys, w.key)
	}
	led, others, err := b.c.misses.flight(ctx, b.c.client.limiter).Lead(ctx, keys)
	if err != nil {
		for _, k := range keys {
			b.settle(k, nil, err)
		}
		return nil
	}
	if len(led.Keys()) > 0 {
		run := &batchRun[V]{c: b.c, led: led, left: func() bool { return ctx.Err() != nil }}
		own := make([]slot[V], len(led.Keys())) // the run works on them when this call has left, perhaps
		for i, k := range led.Keys() {
			own[i] = *byKey[k].slot
			run.todo = append(run.todo, &own[i])
		}
		led.Go(ctx, run.run) // in a goroutine that outlives this call if the caller leaves
	}
	over := false // ctx has ended: take what is there
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
		b.take(k, &res.Value, err)
	}
	for k, other := range others {
		res, err := other.Get(ctx)
		if b.leaves(ctx, err) {
			continue
		}
		if err == nil && !again && tooLate(res, byKey[k].cause == nil) {
			late = append(late, byKey[k])
			continue
		}
		b.take(k, &res.Value, err)
	}
	return late
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
func (b *batch[V]) take(key string, o *outcome[V], err error) {
	e := o.entry
	if err == nil {
		b.c.own(&e)
	}
	b.settle(key, &e, err)
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
