// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"sync"

	"github.com/go-shelf/shelf/invalidation"
)

// The part of an invalidation that concerns copies comes after the owner's. Which copies there can be the owner's reply says (copyBounds); where the owner was not
// reached, all that there may be are voided. One that was not reached is an error, and owed to its node under a name of its own (slot.owedAs): meanwhile this
// process reads it no more. An invalidation that is repeated, for whatever reason, repeats the walk from the owner to the copies.

// copyBounds are how far the copies of some keys can exist, as their owners have answered an invalidation.
type copyBounds struct {
	mu  sync.Mutex // nodes answer in parallel
	far map[string]int
}

// splitName is the name of a slot's split record; "": invalidations do not ask for one.
func (c *Cache[V]) splitName(s *slot[V]) string {
	if c.copies == nil || !c.copies.record || s.gutter || s.copied {
		return ""
	}
	return splitPrefix + s.names.Data
}

// boundsOf sees that a walk over the owners notes how far copies can exist. nil: the cache has none.
func (c *Cache[V]) boundsOf(do *script[V]) *copyBounds {
	if c.copies == nil {
		return nil
	}
	b := &copyBounds{far: make(map[string]int)}
	check := do.check
	do.check = func(s *slot[V], reply any, sent invalidation.Sent) error {
		r, err := invalidation.ParseInvalidate(reply)
		if err == nil {
			b.note(s.key, max(c.copies.void, r.Copies))
		}
		return check(s, reply, sent)
	}
	return b
}

func (b *copyBounds) note(key string, bound int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.far[key] = bound
}

// bound is on how many nodes of its walk a key may be.
func (c *Cache[V]) bound(b *copyBounds, key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if far, ok := b.far[key]; ok {
		return far
	}
	return c.copies.most // the owner has not answered
}

// voidCopies invalidates the copies of some keys, one pipeline a node, the nodes in parallel. What fails is owed.
func (c *Cache[V]) voidCopies(ctx context.Context, keys []string, b *copyBounds, versionOf func(key string) uint64) []error {
	if b == nil {
		return nil
	}
	groups := make(map[int][]*slot[V])
	for _, key := range keys {
		n := c.bound(b, key)
		if n < 2 {
			continue
		}
		home := c.slot(key)
		for i, node := range c.nodesOf(home.names.Data, n) {
			if i > 0 {
				cp := c.copyAt(home, i, node)
				groups[node] = append(groups[node], &cp.slot)
			}
		}
	}
	failed := make([][]error, len(c.client.nodes))
	var wg sync.WaitGroup
	for node, slots := range groups {
		wg.Go(func() {
			if e := c.onNode(ctx, opCopies, slots, c.invalidation(versionOf, false)); e != nil {
				failed[node] = c.owe([]*NodeError{e}, c.atCopy(node), versionOf)
			}
		})
	}
	wg.Wait()
	var errs []error
	for _, of := range failed {
		errs = append(errs, of...)
	}
	return errs
}

// atCopy is where the copies are that one node has.
func (c *Cache[V]) atCopy(node int) func(key string) *slot[V] {
	return func(key string) *slot[V] {
		cp := c.copyAt(c.slot(key), 0, node)
		return &cp.slot
	}
}

// voidAfterFill voids the copies of a key whose entry at the owner was replaced by a write that stores: they are of the row before. The record is
// read after the fill: whoever has read the owner before that has noted by then how far copies can exist. Of an entry that was replaced in the gutter, whose owner cannot say
// that, all that there may be go: readers who find the owner down look for a copy before they look there.
func (c *Cache[V]) voidAfterFill(ctx context.Context, s *slot[V], version uint64, negative bool) []error {
	if c.copies == nil {
		return nil
	}
	b := &copyBounds{far: make(map[string]int)}
	if s.gutter {
		return c.voidCopies(ctx, []string{s.key}, b, func(string) uint64 { return version })
	}
	if !c.copies.record {
		b.note(s.key, c.copies.void)
	} else if record, _, err := s.node.Get(ctx, splitPrefix+s.names.Data); err == nil {
		b.note(s.key, max(c.copies.void, invalidation.ParseCopies(record)))
	}
	errs := c.voidCopies(ctx, []string{s.key}, b, func(string) uint64 { return version })
	c.copyFilled(s, negative)
	return errs
}

// goOnToCopies is the rest of the walk for keys whose owner an invalidation has reached late. What fails is owed by itself; for which there is no room, nobody remembers.
func (c *Cache[V]) goOnToCopies(ctx context.Context, keys []string, b *copyBounds, versions map[string]uint64, failed map[string]error) {
	if b == nil {
		return
	}
	through := make([]string, 0, len(keys))
	for _, key := range keys {
		if failed[c.names.data(key)] == nil {
			through = append(through, key)
		}
	}
	for _, err := range c.voidCopies(ctx, through, b, func(key string) uint64 { return versions[c.names.data(key)] }) {
		if errors.Is(err, ErrOutboxFull) {
			c.client.cfg.Logger.Error("shelf: no room for copies whose invalidation is owed", "cache", c.cfg.Name, "error", err)
		}
	}
}

// splitOwed parts what is to be repeated into what concerns copies, by node, and the rest.
func (c *Cache[V]) splitOwed(what []owed) (copies map[int][]owed, rest []owed) {
	for _, o := range what {
		node, _, is := copyOwed(o.name)
		if !is {
			rest = append(rest, o)
			continue
		}
		if copies == nil {
			copies = make(map[int][]owed)
		}
		copies[node] = append(copies[node], o)
	}
	return copies, rest
}

// copiesAgain repeats the invalidation of copies that is owed to their nodes. Nothing is behind them but L1, which is filled from owners alone.
func (c *Cache[V]) copiesAgain(ctx context.Context, op string, copies map[int][]owed, versions map[string]uint64, failed map[string]error) {
	for node, what := range copies {
		keys := make([]string, 0, len(what))
		for _, o := range what {
			key, _, _ := c.names.entry(o.name)
			keys = append(keys, key)
		}
		c.walkPlaces(ctx, op, keys, c.atCopy(node), versions, nil, failed)
	}
}

// walks is how often a Clear or an InvalidateTag goes over the nodes. A clearing of node 2 voids the copies there and their leases; but
//
//  1. node 2 has been cleared, the owner has not
//  2. B takes the lease of a copy on node 2, reads the owner, and fills: under node 2's new generation, from an entry that is about to be cleared
//
// With two walks, the second after the whole of the first, a lease on node 2 from after its second clearing reads an owner that was cleared.
func (c *Cache[V]) walks() int {
	if c.copies == nil {
		return 1
	}
	return 2
}

// moveOthersOn is the second walk of a Clear, or a tag's invalidation, that got through to a node late: copies of what it had may have come to the others.
func (c *Cache[V]) moveOthersOn(ctx context.Context, node int, tag string, call invalidation.Call) {
	if c.copies == nil {
		return
	}
	var wg sync.WaitGroup
	for i := range c.client.nodes {
		if i == node {
			continue
		}
		wg.Go(func() {
			name := c.clearDebts[i]
			if tag != "" {
				name = tagDebt(c.names.of, i, tag)
			}
			if err := c.moveOn(ctx, i, tag, name, 0, call); err != nil && c.oweGroup(i, name) != nil {
				c.client.cfg.Logger.Error("shelf: no room for a clearing that is owed", "cache", c.cfg.Name, "node", c.client.nodeID(i), "error", c.client.debts.full(err))
			}
		})
	}
	wg.Wait()
}
