// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
)

// The quick part of a GetMany: keys of which nothing is expected but an entry at their owner, and nothing is to be done with it but to return it. No ticket for L1, nothing owed, no copy that
// is read instead, no gutter, no replica. They have no slot each, and their nodes no goroutine each: the caller's own sends all commands, and then takes the replies in turn.
//
// What turns out to need more gets it, beside the turn, in goroutines: a node that does not answer soon, or fails; entries with tags, or with a payload that is compressed or lies apart. So
// nobody waits for the one node's timeout before he reads the other's reply:
//
//  1. A, B and C are asked at the same time. A has fallen silent
//  2. if its reply were waited for in turn, until its timeout, those of B and C would be too late by then though they came at once: their deadlines are the same
//
// Keys that are not there get their slots, and go the way of all that is to be loaded.

const (
	// quickKeys is the most keys of a batch that has a quick part; the names and tables of larger ones would not be kept for the next one.
	quickKeys = 1024
	// quickBytes bounds the names that one node is asked for: they fit into the socket's buffer, so that sending them does not wait for the node.
	quickBytes = 8 << 10
	// inTurn is how long replies are waited for in turn, all together; at most a quarter of the timeout.
	inTurn = 5 * time.Millisecond
	// decodeHere is up to how many entries of a node are decoded on the caller's goroutine, where decoding is not next to nothing.
	decodeHere = 16
)

// quick is what a batch notes of its quick part. It is used again by other batches.
type quick struct {
	seen  map[string]struct{}
	names strings.Builder // of the entries
	keys  []quickKey
	nodes []quickNode
}

type quickKey struct {
	key, name string
	next      int32 // of the same node; -1: it is the last
}

type quickNode struct {
	keys, bytes int
	first, last int32
	losses      uint64 // as slot's, noted before it was asked what is owed
	many        *redisnode.Many
	lost        *trouble // of its keys that have slots
}

var unusedQuicks = sync.Pool{New: func() any { return &quick{seen: make(map[string]struct{})} }}

// newQuick is for a batch of these keys; nil: it has no quick part.
func (c *Cache[V]) newQuick(keys []string) *quick {
	if len(keys) > quickKeys || c.client.cfg.ReadFrom == ReadReplica && !c.cfg.Truth {
		return nil
	}
	q, _ := unusedQuicks.Get().(*quick) // it has no others
	for len(q.nodes) < len(c.client.nodes) {
		q.nodes = append(q.nodes, quickNode{})
	}
	q.nodes = q.nodes[:len(c.client.nodes)]
	return q
}

// free gives q back. Nobody uses it any more.
func (q *quick) free() {
	clear(q.seen)
	clear(q.keys)
	clear(q.nodes)
	q.keys = q.keys[:0]
	q.names = strings.Builder{} // the names are still in use, perhaps
	unusedQuicks.Put(q)
}

// name is the name of the entry of keys[0]. The names of all are cut out of one string.
func (q *quick) name(n *naming, keys []string) string {
	if q.names.Len() == 0 {
		size := len(keys) * (len(n.prefix) + len(n.suffix))
		for _, k := range keys {
			size += len(k)
		}
		q.names.Grow(size)
	}
	from := q.names.Len()
	q.names.WriteString(n.prefix)
	q.names.WriteString(keys[0])
	q.names.WriteString(n.suffix)
	return q.names.String()[from:]
}

// takesQuick takes keys[0] into the quick part; false: it needs more.
func (b *batch[V]) takesQuick(keys []string) bool {
	c, q, key := b.c, b.quick, keys[0]
	if q == nil || c.keeps(key, b.asked) {
		return false
	}
	name := q.name(&c.names, keys)
	owner := c.client.ring.OwnerIndex(name)
	n := &q.nodes[owner]
	if n.keys == 0 { // before the first of its keys is asked for among what is owed
		n.losses = c.client.debts.logs[owner].losses.Load()
	}
	if c.client.cfg.Gutter && !c.cfg.Truth {
		if _, down := c.client.absences.lasting(owner); down {
			return false
		}
	}
	owed := c.client.debts.outbox
	if owed.Has(name) || owed.Has(c.clearDebts[owner]) || c.copies != nil && c.copies.splits.of(key, b.asked) != nil {
		return false
	}
	at := int32(len(q.keys))
	q.keys = append(q.keys, quickKey{key, name, -1})
	if n.keys == 0 {
		n.first = at
	} else {
		q.keys[n.last].next = at
	}
	n.last = at
	n.keys++
	n.bytes += len(name)
	return true
}

// each calls f for the keys of a node, in their order.
func (q *quick) each(n *quickNode, f func(i int, k *quickKey)) {
	at := n.first
	for i := range n.keys {
		k := &q.keys[at]
		f(i, k)
		at = k.next
	}
}

// readQuick asks the owners of the quick part and takes what they say. What takes longer goes on in others when it returns.
func (b *batch[V]) readQuick(ctx context.Context, others *crew) {
	if b.quick == nil || len(b.quick.keys) == 0 {
		return
	}
	defer b.quick.drop()
	b.send(ctx, others)
	var here []int
	for i := range b.quick.nodes { // first those whose replies wait for nobody but us
		n := &b.quick.nodes[i]
		switch {
		case n.many == nil || !n.many.Sent():
		case !n.many.Here(): //nolint:contextcheck // it looks at what is there
			b.beside(ctx, others, i)
		case b.c.inPlace:
			b.taken(ctx, others, i)
		default: // a user's codec may take its time: the deadlines of the other replies pass
			here = append(here, i)
		}
	}
	for _, i := range here {
		if b.quick.nodes[i].keys > decodeHere {
			b.beside(ctx, others, i)
		} else {
			b.taken(ctx, others, i)
		}
	}
	for i := range b.quick.nodes { // those that others read for us
		if b.quick.nodes[i].many != nil {
			b.taken(ctx, others, i)
		}
	}
}

// drop gives up the replies that nobody has taken: there are none, but in a panic.
func (q *quick) drop() {
	for i := range q.nodes {
		if m := q.nodes[i].many; m != nil {
			m.Free()
		}
	}
}

// send sends the commands. A node that has more keys than are asked for at once is read in a goroutine.
func (b *batch[V]) send(ctx context.Context, others *crew) {
	q := b.quick
	until := time.Now().Add(min(inTurn, b.c.client.cfg.OperationTimeout/4))
	for i := range q.nodes {
		n := &q.nodes[i]
		if n.keys == 0 {
			continue
		}
		if ctx.Err() != nil {
			b.leave(n.keys)
			continue
		}
		node := b.c.client.nodes[i]
		if n.bytes > quickBytes || n.keys > node.BatchKeys(maxKeys) {
			group := b.slots(i)
			others.Go(func() { b.miss(b.readNode(ctx, group)...) })
			continue
		}
		n.many = node.Many(n.keys + 1)
		q.each(n, func(_ int, k *quickKey) { n.many.Add(k.name) })
		n.many.Add(b.c.names.of.Generation)
		n.many.Send(ctx, until)
	}
}

// beside takes a node's reply in a goroutine of its own.
func (b *batch[V]) beside(ctx context.Context, others *crew, node int) {
	m := b.quick.nodes[node].many
	b.quick.nodes[node].many = nil
	others.Go(func() {
		defer m.Free()
		vals, err := m.Read(ctx)
		if err != nil {
			b.unread(ctx, b.slots(node), err)
			return
		}
		b.oddities(ctx, b.answers(ctx, node, vals, new(slot[V])))
	})
}

// taken takes a node's reply, but for what needs questions more.
func (b *batch[V]) taken(ctx context.Context, others *crew, node int) {
	m := b.quick.nodes[node].many
	b.quick.nodes[node].many = nil
	defer m.Free()
	vals, err := m.Read(ctx)
	if err != nil {
		group := b.slots(node)
		others.Go(func() { b.unread(ctx, group, err) })
		return
	}
	if odd := b.answers(ctx, node, vals, &b.at); len(odd.keys) > 0 {
		others.Go(func() { b.oddities(ctx, odd) })
	}
}

// odd are keys of a node for whose values another question may have to be asked.
type odd[V any] struct {
	keys []wanted[V]
	vals [][]byte
	gen  invalidation.Generation
}

// answers takes the values that a node sent, of which none is kept. at is room for a slot, which the keys have one after the other: what look leaves there it leaves anew each time. It asks
// nobody; what may have to be asked comes back.
func (b *batch[V]) answers(ctx context.Context, node int, vals [][]byte, at *slot[V]) (more odd[V]) {
	c, n := b.c, &b.quick.nodes[node]
	more.gen = invalidation.ParseGeneration(vals[n.keys])
	*at = b.room(node)
	at.now = time.Now()
	p := newPlain(at, more.gen, vals[:n.keys])
	hits := 0
	b.quick.each(n, func(i int, k *quickKey) {
		data := vals[i]
		if e, ok := p.judge(data); ok {
			b.settlePlain(ctx, at, k, &e, more.gen)
			hits++
			return
		}
		if data != nil && !short(data) {
			more.keys, more.vals = append(more.keys, b.full(b.room(node), k.key)), append(more.vals, bytes.Clone(data))
			return
		}
		at.key, at.names.Data = k.key, k.name
		if b.answered(ctx, at, data, more.gen) {
			hits++
		}
	})
	c.counters.l2Hits.Add(uint64(hits))
	return more
}

// answered takes the value of one key; false: there is none to be returned, and the key is to be loaded.
func (b *batch[V]) answered(ctx context.Context, at *slot[V], data []byte, gen invalidation.Generation) bool {
	c := b.c
	c.outdate(at)
	if data != nil && c.whole != nil {
		data = bytes.Clone(data) // the value is a part of it
	}
	var e entry[V]
	f, _ := at.look(ctx, data, gen, &e) // it has nothing to ask
	if f != fresh && f != softened {
		b.miss(b.full(*at, at.key))
		return false
	}
	c.countSize(at.key, e.size, b.asked)
	c.checkCopies(at)
	if f == softened && !c.cfg.Truth {
		c.refreshBehind(ctx, b.full(*at, at.key).slot, c.ownLoader())
	}
	b.settle(at.key, &e, nil)
	return true
}

// short says that an entry has nothing beyond header, stamp and payload, or is none.
func short(data []byte) bool {
	return len(data) < headerBytes || binary.BigEndian.Uint16(data[6:]) == minHeader
}

// oddities are keys of a node for which it may have to be asked once more.
func (b *batch[V]) oddities(ctx context.Context, more odd[V]) {
	several(len(more.keys), func(i int) bool { return isStub(more.vals[i]) }, func(i int) {
		if !b.answer(ctx, more.keys[i], more.vals[i], more.gen) {
			b.miss(more.keys[i])
		}
	})
}

// room is a slot for the keys of a node, one after the other.
func (b *batch[V]) room(node int) slot[V] {
	return slot[V]{c: b.c, names: invalidation.Keys{Of: b.c.names.of}, owner: node, node: b.c.client.nodes[node], losses: b.quick.nodes[node].losses}
}

// full is a key with a slot of its own, made of what it had.
func (b *batch[V]) full(s slot[V], key string) wanted[V] {
	n := &b.quick.nodes[s.owner]
	if n.lost == nil {
		n.lost = new(trouble)
	}
	s.key, s.names, s.now, s.trouble = key, b.c.names.keys(key), time.Time{}, n.lost
	s.lapsed.data = bytes.Clone(s.lapsed.data)
	return wanted[V]{slot: &s}
}

// slots are a node's keys, each with a slot of its own.
func (b *batch[V]) slots(node int) []wanted[V] {
	n := &b.quick.nodes[node]
	all := make([]wanted[V], n.keys)
	b.quick.each(n, func(i int, k *quickKey) { all[i] = b.full(b.room(node), k.key) })
	return all
}
