// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// atCopy is a key of a batch that is asked of a copy.
type atCopy[V any] struct {
	wanted[V]
	copy copySlot[V]
}

// fromCopies reads the keys that are split from the copies that chance gives them, all nodes at once, and leaves to the owners the others, and those for which there was
// no copy of use. Keys whose owner is down, and that would be looked for in the gutter, are read from a copy where they have one.
func (b *batch[V]) fromCopies(ctx context.Context, byOwner [][]wanted[V]) [][]wanted[V] {
	if cs := b.c.copies; cs == nil || cs.splits.live.Load() == 0 && cs.fixed < 2 {
		return byOwner
	}
	ask := make(map[int][]atCopy[V])
	for i, group := range byOwner {
		byOwner[i] = slices.DeleteFunc(group, func(w wanted[V]) bool {
			cp, ok := b.chosenCopy(w)
			if ok {
				ask[cp.owner] = append(ask[cp.owner], atCopy[V]{w, cp})
			}
			return ok
		})
	}
	for _, w := range b.askCopies(ctx, ask, true) {
		byOwner[w.owner] = append(byOwner[w.owner], w)
	}
	return byOwner
}

func (b *batch[V]) chosenCopy(w wanted[V]) (copySlot[V], bool) {
	switch {
	case w.gutter:
		return b.c.firstCopy(w.slot, b.asked)
	case w.ticket.c != nil:
		return copySlot[V]{}, false
	default:
		return b.c.chosenCopy(w.slot, b.asked)
	}
}

// copiesInstead reads keys whose owner did not answer from a copy, and returns those for which there was none of use.
func (b *batch[V]) copiesInstead(ctx context.Context, part []wanted[V]) []wanted[V] {
	if b.c.copies == nil {
		return part
	}
	ask := make(map[int][]atCopy[V])
	var rest []wanted[V]
	for _, w := range part {
		if cp, ok := b.c.firstCopy(w.slot, time.Now()); ok && !w.gutter {
			ask[cp.owner] = append(ask[cp.owner], atCopy[V]{w, cp})
		} else {
			rest = append(rest, w)
		}
	}
	return append(rest, b.askCopies(ctx, ask, false)...)
}

// firstCopy is the copy that is asked first instead of the owner.
func (c *Cache[V]) firstCopy(s *slot[V], now time.Time) (copySlot[V], bool) {
	all := c.copiesOf(s, now)
	if len(all) == 0 {
		return copySlot[V]{}, false
	}
	return all[0], true
}

// askCopies asks several nodes for copies, all at once, and returns the keys for which there was none of use. renew says that the owner can be read for new ones.
func (b *batch[V]) askCopies(ctx context.Context, ask map[int][]atCopy[V], renew bool) (rest []wanted[V]) {
	var mu sync.Mutex // guards rest
	var nodes crew
	for _, group := range ask {
		nodes.Go(func() {
			for len(group) > 0 {
				part := group[:min(len(group), group[0].copy.node.BatchKeys(maxKeys))]
				group = group[len(part):]
				left, failed := b.askCopyNode(ctx, part, renew)
				if failed {
					left, group = append(left, group...), nil
				}
				mu.Lock()
				for _, w := range left {
					rest = append(rest, w.wanted)
				}
				mu.Unlock()
			}
		})
	}
	nodes.Wait()
	return rest
}

// askCopyNode is one MGET, and returns the keys for which the node had no copy of use.
func (b *batch[V]) askCopyNode(ctx context.Context, part []atCopy[V], renew bool) (rest []atCopy[V], failed bool) {
	names := make([]string, len(part)+1)
	for i := range part {
		names[i] = part[i].copy.names.Data
	}
	names[len(part)] = b.c.names.of.Generation
	vals, err := part[0].copy.node.MGet(ctx, names)
	if err != nil {
		if leftBy(ctx, err) == nil {
			b.c.counters.nodeErrors.Add(1)
		}
		return part, true
	}
	gen, lost := invalidation.ParseGeneration(vals[len(part)]), new(trouble)
	var mu sync.Mutex // guards rest
	several(len(part), func(i int) bool { return isStub(vals[i]) }, func(i int) {
		part[i].copy.trouble = lost
		if !b.copyAnswer(ctx, &part[i], vals[i], gen, renew) {
			mu.Lock()
			defer mu.Unlock()
			rest = append(rest, part[i])
		}
	})
	return rest, false
}

// copyAnswer takes one copy that a node sent; false: it is of no use.
func (b *batch[V]) copyAnswer(ctx context.Context, w *atCopy[V], data []byte, gen invalidation.Generation, renew bool) bool {
	var e entry[V]
	f, err := w.copy.look(ctx, data, gen, &e)
	if err != nil {
		if leftBy(ctx, err) == nil {
			b.c.counters.nodeErrors.Add(1)
		}
		return false
	}
	if _, ok := b.c.takeCopy(ctx, &w.copy, &e, f, b.c.ownLoader(), renew && !w.gutter, b.asked); !ok {
		return false
	}
	w.ticket.cancel()
	b.settle(w.key, &e, nil)
	return true
}
