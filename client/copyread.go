// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"time"
)

// fromCopy reads a copy where the key is split, unless chance sends this reader to the owner. What is to be kept in L1 (it has a ticket) is read from the
// owner. False: the owner is to be asked, at once: a copy that is missing is brought behind the reader's back.
func (c *Cache[V]) fromCopy(ctx context.Context, s *slot[V], t ticket[V], load loader[V], o GetOptions, now time.Time) (Result[V], bool, error) {
	if c.copies == nil || t.c != nil {
		return Result[V]{}, false, nil
	}
	if s.gutter {
		return c.copyInstead(ctx, s, o)
	}
	cp, ok := c.chosenCopy(s, now)
	if !ok {
		return Result[V]{}, false, nil
	}
	return c.askCopy(ctx, &cp, load, o)
}

// chosenCopy chooses a copy of a key that is split; false: the owner. A node that is not well is passed over, and of a copy that an invalidation has
// missed the owner is read.
func (c *Cache[V]) chosenCopy(s *slot[V], now time.Time) (copySlot[V], bool) {
	nodes := c.copies.splits.of(s.key, now)
	if len(nodes) == 0 {
		return copySlot[V]{}, false
	}
	pick := func(n int) int { return min(int(c.draw()*float64(n)), n-1) }
	index := pick(len(nodes))
	if c.client.nodes[nodes[index]].Ailing() { // chance decides once more: a fixed other would have these readers besides its own
		var well []int
		for i, node := range nodes {
			if !c.client.nodes[node].Ailing() {
				well = append(well, i)
			}
		}
		if len(well) == 0 {
			return copySlot[V]{}, false
		}
		index = well[pick(len(well))]
	}
	if index == 0 {
		return copySlot[V]{}, false
	}
	cp := c.copyAt(s, index, nodes[index])
	return cp, !c.owesCopy(&cp)
}

// askCopy reads a copy and sees that it is renewed; false: it is of no use.
func (c *Cache[V]) askCopy(ctx context.Context, cp *copySlot[V], load loader[V], o GetOptions) (Result[V], bool, error) {
	var e entry[V]
	f, err := cp.read(ctx, nil, &e)
	if over := leftBy(ctx, err); err != nil && over != nil {
		return Result[V]{Node: cp.nodeID()}, true, over
	}
	if err != nil {
		c.counters.nodeErrors.Add(1)
		return Result[V]{}, false, nil //nolint:nilerr // the owner is asked
	}
	f, ok := c.takeCopy(ctx, cp, &e, f, load, !o.NoFill, time.Now())
	if !ok {
		return Result[V]{}, false, nil
	}
	r, err := c.result(&e, LayerL2, &cp.slot, f == softened && e.ageAt(time.Now()) >= e.soft)
	return r, true, err
}

// takeCopy takes in a copy that was read: it sees that it is renewed, where that is wanted, and counts it. false: it is of no use.
func (c *Cache[V]) takeCopy(ctx context.Context, cp *copySlot[V], e *entry[V], f freshness, load loader[V], renew bool, now time.Time) (freshness, bool) {
	f = cp.believes(e, f)
	if renew {
		c.renew(ctx, cp, e, f, load)
	}
	if f != fresh && f != softened {
		return f, false
	}
	c.counters.l2Hits.Add(1)
	c.counters.copyHits.Add(1)
	c.countSize(cp.key, e.size, now)
	return f, true
}

// copyInstead reads a copy of a key whose owner does not answer. An invalidation covers them whether it reaches the owner or not.
func (c *Cache[V]) copyInstead(ctx context.Context, s *slot[V], o GetOptions) (Result[V], bool, error) {
	for _, cp := range c.copiesOf(s, time.Now()) {
		o.NoFill = true // there is nothing to bring it from
		if r, found, err := c.askCopy(ctx, &cp, nil, o); found {
			return r, true, err
		}
	}
	return Result[V]{}, false, nil
}

// copiesOf are the copies that a key may have, and that may be asked for instead of its owner: at most maxInstead.
func (c *Cache[V]) copiesOf(s *slot[V], now time.Time) (all []copySlot[V]) {
	if c.copies == nil {
		return nil
	}
	n := max(c.copies.fixed, len(c.copies.splits.of(s.key, now)))
	if n < 2 {
		return nil
	}
	home, index := s, -1
	if s.gutter {
		home = c.slot(s.key)
	}
	for node := range c.client.ring.WalkIndex(home.names.Data) {
		if index++; index == n || len(all) == maxInstead {
			break
		}
		if cp := c.copyAt(home, index, node); index > 0 && !cp.node.Ailing() && !c.owesCopy(&cp) {
			all = append(all, cp)
		}
	}
	return all
}

// maxInstead is how many copies a reader asks, one after the other, whose owner does not answer.
const maxInstead = 2
