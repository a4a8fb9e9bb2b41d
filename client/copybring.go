// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

const (
	// copiesAtOnce is how many copies of every key (CacheConfig.Copies) a process makes at once, and copiesWaiting how many may wait for their turn. Beyond that a copy is
	// not made now: the next fill, or a reader that looks (copyCheck), makes it.
	copiesAtOnce  = 16
	copiesWaiting = 4096
	// copyCheck is the share of the owner's answers behind which it is looked whether the key has its copies: they may have gone with their node.
	copyCheck = 1.0 / 64
)

// whatever is a time after which nobody has made a copy (slot.seen): the one that is there is replaced, however new.
var whatever = time.Unix(1<<40, 0)

// renew brings a copy behind the back of a reader that found it missing, of no use, softened, or near its end.
func (c *Cache[V]) renew(ctx context.Context, cp *copySlot[V], e *entry[V], f freshness, load loader[V]) {
	now := time.Now()
	k := c.copies.fixed
	if cp.index >= c.copies.fixed {
		k = len(c.copies.splits.of(cp.key, now))
	}
	if k <= cp.index || f == fresh && (cp.index < c.copies.fixed || e.hard-e.ageAt(now) > copyAhead) {
		return
	}
	key, index, node, seen := cp.key, cp.index, cp.owner, cp.seen
	w := ifNobody
	if f == absent {
		w = ifGone
	}
	c.copyBehind(unscoped(ctx), copyName(key, index), w, func(ctx context.Context, r *copyRun, again bool) { //nolint:contextcheck // nobody waits for it
		if again {
			seen = whatever
		}
		began := time.Now()
		switch left, softened := c.bring(ctx, key, index, node, k, seen, load); {
		case softened: // its next reader would want it renewed as well, and so on until the owner is refreshed: with all its bytes, and a slow loader can take long
			c.copies.runs.rest(ctx, r, c.jittered(refreshBackoff), true)
		case left <= copyAhead: // another process has the lease, or the owner's entry is near its end, or something does not answer, or the value's way takes longer than a lease lives
			c.copies.runs.rest(ctx, r, c.jittered(max(refreshYield, 2*time.Since(began))), false)
		}
	})
}

// copyFilled brings the copies of a key behind a fill at its owner, where every key has some.
func (c *Cache[V]) copyFilled(s *slot[V], negative bool) {
	if c.copies == nil || c.copies.fixed < 2 || s.gutter || negative {
		return
	}
	c.copyAll(s, whatever, inAnyCase)
}

// checkCopies looks, now and then, whether a key that was read at its owner has the copies that every key has.
func (c *Cache[V]) checkCopies(s *slot[V]) {
	if c.copies == nil || c.copies.fixed < 2 || s.gutter || c.draw() >= copyCheck {
		return
	}
	c.copyAll(s, time.Time{}, ifNobody)
}

// copyAll brings the copies that every key has, unless one is there that is newer than seen. w is for those that are being made.
func (c *Cache[V]) copyAll(s *slot[V], seen time.Time, w wish) {
	waiting := &c.copies.waiting
	for i, node := range c.nodesOf(s.names.Data, c.copies.fixed) {
		if i == 0 || c.client.nodes[node].Ailing() {
			continue
		}
		if waiting.Add(1) > copiesWaiting {
			waiting.Add(-1)
			c.counters.copiesSkipped.Add(1)
			continue
		}
		key, seen, first := s.key, seen, sync.OnceFunc(func() { waiting.Add(-1) })
		started := c.copyBehind(context.Background(), copyName(key, i), w, func(ctx context.Context, _ *copyRun, again bool) {
			defer first()
			if again {
				seen = whatever
			}
			select {
			case c.copies.turns <- struct{}{}:
				defer func() { <-c.copies.turns }()
				c.bring(ctx, key, i, node, c.copies.fixed, seen, nil)
			case <-ctx.Done():
			}
		})
		if !started {
			first()
		}
	}
}

// bring makes one copy: the lease on its node first, then a read of the owner that notes how far copies can be, then the fill, under that lease. It returns for how
// long the copy lives (0: it was not made), and whether the entry is to be refreshed at its owner. Where the copy's node has one by now that is newer than seen, that will do.
// A value that takes longer than copyLeaseTTL from its owner to the copy's node (20 MiB a second is what it may take) has no copies: its lease is over before the fill.
func (c *Cache[V]) bring(ctx context.Context, key string, index, node, k int, seen time.Time, load loader[V]) (left time.Duration, softened bool) {
	cp := c.copyAt(c.slot(key), index, node)
	cp.seen = seen
	began := time.Now()
	token, ok := c.leaseCopy(ctx, &cp)
	if !ok {
		return 0, false
	}
	filled := false
	defer func() {
		if !filled {
			cp.release(ctx, token)
		}
	}()
	e, ok := c.readForCopy(ctx, &cp, k, load)
	if !ok || c.owesCopy(&cp) || time.Since(began) > copyLeaseTTL { // then the body would be sent for nothing
		return 0, false
	}
	if cp.stage(ctx, &e) != nil {
		c.counters.nodeErrors.Add(1)
		return 0, false
	}
	left = max(time.Millisecond, e.hard-e.ageAt(time.Now()))
	reply, err := cp.session.Eval(ctx, wireCall(invalidation.Fill(cp.names, invalidation.Filling{
		Token: token, Value: e.wire, TTL: left, Version: e.version, Negative: e.negative, Replace: cp.replace, Generation: e.stamp, Tags: e.tags, Epoch: noEpoch,
	})))
	if err != nil {
		c.counters.nodeErrors.Add(1)
		return 0, false
	}
	filled = true // or refused: the lease is gone
	if r, err := invalidation.ParseFill(reply); err != nil || r != invalidation.Stored {
		return 0, false
	}
	c.counters.copiesFilled.Add(1)
	return left, e.ageAt(time.Now()) >= e.soft
}

// leaseCopy takes the lease on a copy. A copy that is there and not believed is replaced like one that is old.
func (c *Cache[V]) leaseCopy(ctx context.Context, cp *copySlot[V]) (token string, ok bool) {
	for range 2 {
		if c.owesCopy(cp) || cp.node.Ailing() {
			return "", false
		}
		token = rand.Text()
		cp.session = cp.node.Session()
		reply, err := cp.session.Eval(ctx, wireCall(invalidation.Lease(cp.names, token, invalidation.LeaseRefresh, copyLeaseTTL)))
		if err != nil {
			c.counters.nodeErrors.Add(1)
			return "", false
		}
		st, err := cp.taken(ctx, token, stampede.Refresh, reply)
		switch {
		case err != nil:
			cp.release(ctx, token)
			return "", false
		case !st.Found:
			return token, st.Status == stampede.Granted
		case st.Entry.source == c.client.debts.logs[cp.home.owner].source.Load():
			return "", false // another process has made it
		}
		cp.seen = st.Entry.created
	}
	return "", false
}

// readForCopy reads the owner's primary, and makes the entry that the copy's node is to hold: with its age there, under its generation, and, of a hot key, for
// copyTTL at most. An entry that is to be refreshed is refreshed as by any reader of the owner.
func (c *Cache[V]) readForCopy(ctx context.Context, cp *copySlot[V], k int, load loader[V]) (entry[V], bool) {
	home := cp.home
	if c.owes(home) {
		return entry[V]{}, false
	}
	session := home.node.Session()
	source := sourceOf(session.Stream())
	names := home.names
	names.Split = splitPrefix + names.Data
	reply, err := session.Eval(ctx, wireCall(invalidation.Split(names, k, splitLife)))
	if err != nil {
		c.counters.nodeErrors.Add(1)
		return entry[V]{}, false
	}
	r, err := invalidation.ParseSplit(reply)
	if err != nil || !r.Noted || source != sourceOf(session.Stream()) {
		return entry[V]{}, false
	}
	home.gen = r.Generation
	var e entry[V]
	f, err := home.weigh(ctx, bytes.Clone(r.Data), &e) // a codec may decode in place
	if err != nil || f != fresh && f != softened || e.negative && !c.copiesAbsence(cp) {
		return entry[V]{}, false
	}
	if home.seen = e.created; f == softened && load != nil {
		own := *home
		c.refreshBehind(ctx, &own, load)
	}
	return c.madeCopy(ctx, cp, r.Data, e.born, source)
}

// copiesAbsence says whether an absence is copied: of a key that is split, whose readers are to be spread whatever they ask for. Else it is not, with CacheConfig.Copies
// either: it costs the source one query to find out anew, and a flood of absent keys would be on several nodes (CacheConfig.NegativeRate bounds one).
func (c *Cache[V]) copiesAbsence(cp *copySlot[V]) bool {
	return len(c.copies.splits.of(cp.key, time.Now())) > cp.index
}

// madeCopy is the entry for the copy's node, of the bytes that the owner has. born is when its age was zero.
func (c *Cache[V]) madeCopy(ctx context.Context, cp *copySlot[V], data []byte, born time.Time, source uint64) (entry[V], bool) {
	h, payload, ok := parseEnvelope(data)
	if !ok {
		return entry[V]{}, false
	}
	e := entry[V]{header: h, born: born}
	if h.apart != (apart{}) {
		body, err := cp.home.node.GetBody(ctx, cp.home.names.Body, h.apart.id, int(h.apart.size))
		if err != nil || body.Bytes == nil {
			return entry[V]{}, false
		}
		payload = body.Bytes
	}
	now := time.Now()
	age := e.ageAt(now)
	e.copied, e.stamp, e.source = cp.node.Now(now), cp.gen.Seq, source
	e.created = e.copied.Add(-age)
	if cp.index >= c.copies.fixed || e.negative {
		e.hard = min(e.hard, age+copyTTL)
	}
	if h.apart != (apart{}) {
		e.setApart(payload)
	} else {
		e.wire = appendEnvelope(nil, e.header, payload)
	}
	return e, true
}
