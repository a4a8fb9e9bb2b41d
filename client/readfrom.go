// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// ReadFrom says which servers of a node the caches' reads may go to, see Config.ReadFrom. Writes, leases, fills and invalidations go to the primary alone, and so
// does every read whose value is to be kept in this process.
type ReadFrom int

const (
	// ReadPrimary reads from primaries only.
	ReadPrimary ReadFrom = iota
	// ReadPrimaryPreferred reads from a replica where the primary does not answer.
	ReadPrimaryPreferred
	// ReadReplica spreads reads over the replicas. What they do not have is asked of the primary.
	ReadReplica
)

// String is the choice in words, in lower case.
func (r ReadFrom) String() string {
	switch r {
	case ReadPrimary:
		return "primary"
	case ReadPrimaryPreferred:
		return "primary preferred"
	case ReadReplica:
		return "replica"
	default:
		return fmt.Sprintf("ReadFrom(%d)", int(r))
	}
}

// What an entry that was read from a replica is good for: to be returned to its reader, and nothing else. It does not go into L1, since the replica pushes nothing to
// this process; nothing is stored because of it. A replica that does not have an entry says nothing about the primary, which is asked next.
//
// Why a reader gets nothing older than ReplicaMaxLag, in a process that did not see the invalidation:
//
//  1. the invalidation is confirmed by the primary, and returns nil
//  2. the primary is asked how far its stream of writes has come: as far as that invalidation, or further
//  3. the replica is asked how far it is, in the same stream: as far as 2 or further, so it has carried out the invalidation
//  4. the replica is read, in the same run of its server as in 3
//
// So what a read brings lacks nothing that was invalidated before the latest 2 for which there is a 3, and that must be at most ReplicaMaxLag ago. A primary that does not answer
// gives no more readings: its replicas can be read for that long yet. A process that did see the invalidation (it is its own) reads the key from no replica
// before it has left the log of those that a failover could undo, or while it is owed.

// fromReplica reads a key from a replica of its owner; absent or unusable: there is none that may be asked, or it has no entry to be returned.
func (c *Cache[V]) fromReplica(ctx context.Context, s *slot[V]) (Result[V], freshness, error) {
	p := c.replicaFor(s, time.Now())
	if p == nil || s.replicaAsked {
		return Result[V]{}, absent, nil
	}
	s.replicaAsked = true
	was, asked := p.standing.Load(), time.Now()
	data, gen, err := p.node.GetBeside(ctx, s.names.Data, s.names.Of.Generation)
	if err != nil {
		if leftBy(ctx, err) == nil {
			c.counters.nodeErrors.Add(1)
		}
		return Result[V]{}, absent, nil
	}
	if !p.stillAs(was, asked) {
		return Result[V]{}, unusable, nil
	}
	e, f := c.replied(ctx, s, p, data, invalidation.ParseGeneration(gen), nil)
	if f != fresh && f != softened {
		return Result[V]{}, f, nil
	}
	r, err := c.replicaResult(s, p, &e, f)
	return r, f, err
}

// replicaFor chooses a replica that may be asked for a key now; nil: none.
func (c *Cache[V]) replicaFor(s *slot[V], now time.Time) *replica {
	sh := c.client.shards[s.owner]
	if sh == nil || c.client.cfg.ReadFrom == ReadPrimary || c.cfg.Truth {
		return nil
	}
	log := c.client.debts.logs[s.owner]
	if log.sent.Has(s.names.Data) || log.sent.Has(c.clearDebts[s.owner]) {
		return nil
	}
	return sh.readable(now)
}

// home is the place of a key whose replicas may be read: its owner, also where the reader was sent to the gutter, since that is down. False: what the owner is owed
// forbids it.
func (c *Cache[V]) home(s *slot[V]) (*slot[V], bool) {
	if !s.gutter {
		return s, true
	}
	at := c.slotOf(s.key)
	return &at, !c.owes(&at)
}

// replied judges what a replica has sent, with what this process knows of the node, and brings the body of a large value. lost is what the call knows of the
// replica; nil: it has no other keys.
func (c *Cache[V]) replied(ctx context.Context, s *slot[V], p *replica, data []byte, gen invalidation.Generation, lost *trouble) (entry[V], freshness) {
	clock := s.node // created-at is of the primary's clock
	if !clock.Met() {
		clock = p.node
	}
	e, f := c.judge(data, clock, gen)
	if f != fresh && f != softened && f != lapsing {
		return e, f
	}
	log := c.client.debts.logs[s.owner]
	switch dropped := log.sent.Lost(); {
	case log.losses.Load() != s.losses || !log.trusts(e.created, clock):
		c.counters.distrusted.Add(1)
		return entry[V]{}, unusable
	case !dropped.IsZero() && !e.created.After(clock.Now(dropped).Add(clockMargin)): // the log has forgotten which keys it had
		return entry[V]{}, unusable
	case len(e.tags) > 0 && (e.stamp < gen.Seq || c.owesTag(s.owner, e.tags) || c.sentTag(s.owner, e.tags)): // the tag log would have to be asked
		return entry[V]{}, unusable
	}
	if f == lapsing { // see staleiferror.go
		s.lapsed = lapsed{data, e.born}
		return entry[V]{}, unusable
	}
	if e.apart != (apart{}) && !c.replicaBody(ctx, s, p, &e, lost) {
		return entry[V]{}, unusable
	}
	s.seen = e.created
	return e, f
}

// replicaBody brings the payload of a large value; false: the replica has none, or did not send it.
func (c *Cache[V]) replicaBody(ctx context.Context, s *slot[V], p *replica, e *entry[V], lost *trouble) bool {
	if lost.met() != nil {
		return false
	}
	body, err := p.node.GetBody(ctx, s.names.Body, e.apart.id, int(e.apart.size))
	if err != nil || body.Bytes == nil {
		lost.note(p.node, err)
		return false
	}
	payload := body.Bytes
	if body.Shared {
		payload = bytes.Clone(payload) // a codec of the user's may decode in place
	}
	return c.open(e, payload)
}

// sentTag says whether the invalidation of one of an entry's tags is one that a replica may not have heard of yet.
func (c *Cache[V]) sentTag(owner int, tags []string) bool {
	for _, tag := range tags {
		if c.client.debts.logs[owner].sent.Has(tagDebt(c.names.of, owner, tag)) {
			return true
		}
	}
	return false
}

// replicaResult is the answer that an entry from a replica gives.
func (c *Cache[V]) replicaResult(s *slot[V], p *replica, e *entry[V], f freshness) (Result[V], error) {
	c.counters.l2Hits.Add(1)
	c.counters.replicaHits.Add(1)
	r, err := c.result(e, LayerL2, s, f == softened && e.ageAt(time.Now()) >= e.soft)
	r.Replica = p.addr
	return r, err
}

// replicaFirst is the read of a replica before that of the owner: ReadReplica's, and that of a key whose owner is down and has a gutter, which has less. What is to be kept in
// L1 (it has a ticket) is read from the owner. An entry that is to be refreshed is, by the owner's lease.
func (c *Cache[V]) replicaFirst(ctx context.Context, s *slot[V], t ticket[V], load loader[V], o GetOptions) (Result[V], bool, error) {
	if !c.asksReplicaFirst(s, t) {
		return Result[V]{}, false, nil
	}
	home, may := c.home(s)
	if !may {
		return Result[V]{}, false, nil
	}
	r, f, err := c.fromReplica(ctx, home)
	if f == softened && !o.NoFill && load != nil && !home.node.Ailing() {
		c.refreshBehind(ctx, home, load)
	}
	return r, f == fresh || f == softened, err
}

func (c *Cache[V]) asksReplicaFirst(s *slot[V], t ticket[V]) bool {
	from := c.client.cfg.ReadFrom
	return t.c == nil && (from == ReadReplica || from == ReadPrimaryPreferred && s.gutter)
}

// replicaInstead is the read of a key whose owner did not answer.
func (c *Cache[V]) replicaInstead(ctx context.Context, s *slot[V]) (Result[V], bool, error) {
	if c.client.cfg.ReadFrom == ReadPrimary || !s.down || s.gutter {
		return Result[V]{}, false, nil
	}
	r, f, err := c.fromReplica(ctx, s)
	return r, f == fresh || f == softened, err
}

// atReplica is a key of a batch that is asked of a replica of its owner.
type atReplica[V any] struct {
	wanted[V]
	home *slot[V]
}

// fromReplicas reads keys from replicas, one of each owner, and returns those for which there was no usable entry. first says that the owner has not been asked yet.
func (b *batch[V]) fromReplicas(ctx context.Context, group []wanted[V], first bool) (rest []wanted[V]) {
	if b.c.client.cfg.ReadFrom == ReadPrimary {
		return group
	}
	now := time.Now()
	chosen := make(map[int]*replica)
	ask := make(map[*replica][]atReplica[V])
	for _, w := range group {
		home, may := b.c.home(w.slot)
		if first {
			may = may && b.c.asksReplicaFirst(w.slot, w.ticket)
		} else {
			may = may && w.down && !w.gutter
		}
		var p *replica
		if may && !home.replicaAsked {
			if p = b.c.replicaFor(home, now); p != nil && chosen[home.owner] == nil {
				chosen[home.owner] = p
			}
		}
		if p == nil {
			rest = append(rest, w)
			continue
		}
		home.replicaAsked = true
		p = chosen[home.owner]
		ask[p] = append(ask[p], atReplica[V]{w, home})
	}
	for p, keys := range ask {
		rest = append(rest, b.askReplicaAll(ctx, p, keys)...)
	}
	return rest
}

// askReplicaAll asks a replica for keys, a bounded number of them a command, as long as it is of use.
func (b *batch[V]) askReplicaAll(ctx context.Context, p *replica, keys []atReplica[V]) (rest []wanted[V]) {
	for useless := false; len(keys) > 0; {
		part := keys[:min(len(keys), p.node.BatchKeys(maxKeys))]
		keys = keys[len(part):]
		left := part
		if !useless {
			left = b.askReplica(ctx, p, part)
			useless = len(left) == len(part)
		}
		for _, k := range left {
			rest = append(rest, k.wanted)
		}
	}
	return rest
}

// askReplica is one MGET, and returns the keys for which the replica had no usable entry.
func (b *batch[V]) askReplica(ctx context.Context, p *replica, part []atReplica[V]) (rest []atReplica[V]) {
	names := make([]string, len(part)+1)
	for i, w := range part {
		names[i] = w.home.names.Data
	}
	names[len(part)] = b.c.names.of.Generation
	was, asked := p.standing.Load(), time.Now()
	vals, err := p.node.MGet(ctx, names)
	if err != nil {
		if leftBy(ctx, err) == nil {
			b.c.counters.nodeErrors.Add(1)
		}
		return part
	}
	if !p.stillAs(was, asked) {
		return part
	}
	gen, lost := invalidation.ParseGeneration(vals[len(part)]), new(trouble)
	var mu sync.Mutex // guards rest
	several(len(part), func(i int) bool { return isStub(vals[i]) }, func(i int) {
		if !b.replicaAnswer(ctx, part[i], p, vals[i], gen, lost) {
			mu.Lock()
			defer mu.Unlock()
			rest = append(rest, part[i])
		}
	})
	return rest
}

// replicaAnswer takes one value that a replica sent; false: it is of no use.
func (b *batch[V]) replicaAnswer(ctx context.Context, w atReplica[V], p *replica, data []byte, gen invalidation.Generation, lost *trouble) bool {
	e, f := b.c.replied(ctx, w.home, p, data, gen, lost)
	if f != fresh && f != softened {
		return false
	}
	_, _ = b.c.replicaResult(w.home, p, &e, f) // counts; a negative entry is no error here
	w.ticket.cancel()
	if f == softened && !w.home.node.Ailing() {
		b.c.refreshBehind(ctx, w.home, b.c.ownLoader())
	}
	b.settle(w.key, &e, nil)
	return true
}
