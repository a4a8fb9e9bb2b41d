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
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
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
//
// Small values that come from one node, of caches of []byte and string, share pieces of memory of 4 KiB: who keeps one of them keeps its piece. Their bytes are shared with nobody.
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
	b := &batch[V]{c: c, asked: time.Now(), found: make(map[string]V, len(keys)), quick: c.newQuick(keys)}
	b.read(ctx, b.local(ctx, keys))
	missing := append(b.missing, b.owed...)
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
	owed  []wanted[V] // keys to be loaded, whatever the nodes hold
	quick *quick      // nil: there is none
	at    slot[V]     // its caller's room for one key at a time

	mu      sync.Mutex // guards what follows: nodes answer in parallel
	found   map[string]V
	failed  map[string]error // nil: none
	missing []wanted[V]      // keys to be loaded, since the nodes do not hold them
	left    int              // keys that had no answer when ctx ended
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

// local answers from L1 and returns the rest, once each, by owner; but those that are quick it leaves in b.quick. nil: there is no rest.
func (b *batch[V]) local(ctx context.Context, keys []string) (rest [][]wanted[V]) {
	var seen map[string]struct{}
	if b.quick != nil {
		seen = b.quick.seen
	} else {
		seen = make(map[string]struct{}, len(keys))
	}
	var room []slot[V]
	distinct, asked := 0, 0
	for i, k := range keys {
		if i%lookEvery == 0 && ctx.Err() != nil {
			b.left += len(keys) - i
			break
		}
		if seen[k] = struct{}{}; len(seen) == distinct {
			continue
		}
		distinct++
		b.c.count(k, b.asked)
		if b.c.l1 != nil {
			if e := b.c.fromL1(k, b.c.since(b.asked)); e != nil {
				if !e.negative {
					b.found[k] = b.c.copied(e.value)
				}
				continue
			}
		}
		if b.c.filtered(k, b.asked) {
			continue
		}
		asked++
		b.c.countAsked(k, 0, b.asked)
		if b.takesQuick(keys[i:]) {
			continue
		}
		if rest == nil {
			rest = make([][]wanted[V], len(b.c.client.nodes))
		}
		if len(room) == cap(room) {
			room = make([]slot[V], 0, min(slotsAtOnce, len(keys)-i))
		}
		room = append(room, b.c.place(k))
		s := &room[len(room)-1]
		w := wanted[V]{s, b.c.wantL1(s, b.asked)}
		if b.c.owes(s) { // after the ticket: see debts
			w.ticket.cancel()
			b.c.bypass(s)
			b.owed = append(b.owed, wanted[V]{slot: s})
			continue
		}
		rest[w.owner] = append(rest[w.owner], w)
	}
	b.c.counters.l1Misses.Add(uint64(asked))
	return rest
}

// read asks the owners, all at once, and collects what must be loaded.
func (b *batch[V]) read(ctx context.Context, rest [][]wanted[V]) {
	var nodes crew
	if rest != nil {
		nodes.Go(func() { b.readAll(ctx, b.fromCopies(ctx, rest)) })
	}
	b.readQuick(ctx, &nodes)
	nodes.Wait()
	if b.quick != nil {
		b.quick.free()
		b.quick = nil
	}
}

// readAll reads the keys that have slots.
func (b *batch[V]) readAll(ctx context.Context, byOwner [][]wanted[V]) {
	var nodes crew
	for _, group := range byOwner {
		if len(group) > 0 {
			nodes.Go(func() { b.miss(b.readNode(ctx, group)...) })
		}
	}
	nodes.Wait()
}

// miss notes keys that must be loaded.
func (b *batch[V]) miss(ws ...wanted[V]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missing = append(b.missing, ws...)
}

// readNode reads one node's keys, a bounded number of keys and bytes a command, and returns what must be loaded. After a command that failed the node is not asked again
// in this call.
func (b *batch[V]) readNode(ctx context.Context, group []wanted[V]) (missing []wanted[V]) {
	lost := new(trouble)
	for _, w := range group {
		w.trouble = lost
	}
	var mu sync.Mutex // guards missing
	group = b.fromReplicas(ctx, group, true)
	slices.SortStableFunc(group, func(x, y wanted[V]) int { return cmp.Compare(watchedFirst(x), watchedFirst(y)) })
	for len(group) > 0 {
		part := group[:min(len(group), group[0].node.BatchKeys(maxKeys))]
		if cut := slices.IndexFunc(part, func(w wanted[V]) bool { return w.ticket.watch != part[0].ticket.watch }); cut > 0 {
			part = part[:cut]
		}
		vals, gen, err := b.readPart(ctx, part)
		if err != nil {
			b.unread(ctx, group, err)
			return missing
		}
		group = group[len(part):]
		several(len(part), func(i int) bool { return isStub(vals[i]) }, func(i int) {
			if !b.answer(ctx, part[i], vals[i], gen) {
				mu.Lock()
				defer mu.Unlock()
				missing = append(missing, part[i])
			}
		})
	}
	return missing
}

// unread deals with keys of a node that did not answer: they are read elsewhere, where there is a copy or a replica, or loaded.
func (b *batch[V]) unread(ctx context.Context, group []wanted[V], err error) {
	if ctx.Err() == nil {
		b.c.counters.nodeErrors.Add(1)
	}
	for _, w := range group {
		w.fails(err)
	}
	b.miss(b.fromReplicas(ctx, b.copiesInstead(ctx, group), false)...)
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
	b.c.outdate(w.slot)
	var e entry[V]
	f, err := w.look(ctx, data, gen, &e)
	if err == nil && f == unusable && w.gone != (bodyID{}) {
		f, err = w.read(ctx, w.ticket.watch, &e) // the body is gone: perhaps there is a newer one
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
	b.c.countSize(w.key, e.size, b.asked)
	w.ticket.commit(&e, w.slot, b.asked, time.Now())
	w.ticket.cancel()
	b.c.checkCopies(w.slot)
	if f == softened && !b.c.cfg.Truth {
		b.c.refreshBehind(ctx, w.slot, b.c.ownLoader())
	}
	b.settle(w.key, &e, nil)
	return true
}
