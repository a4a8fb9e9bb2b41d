// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"encoding/binary"
	"math"
	"time"
	"unsafe"

	"github.com/go-shelf/shelf/invalidation"
)

// plain judges the entries that one node sent to a batch. Nearly all of them are of one kind: written by this release, with no extension but the stamp, of a node that nothing is held against,
// and within their time. What is needed of these it reads off the bytes, once the common part has been looked up for all of them; slot.look, which makes an entry of each and hands it on from
// one judge to the next, took five times as long, an eighth of what a batch costs. Whatever is different in any way is look's to judge: plain refuses nothing, and counts nothing.
type plain[V any] struct {
	c      *Cache[V]
	gen    invalidation.Generation
	head   uint64 // the first eight bytes of a plain entry
	now    int64  // on the node's clock, in nanoseconds as created and started
	doubts bool   // nothing the node sent is plain
	since  int64  // nor is what was created before

	text func(string) V // nil but where the payload is the value's text, as it is
	left int            // bytes of payloads yet to come, at most
	room []byte         // for values
}

// Small values are cut out of pieces of roomBytes at most, since an allocation each is a tenth of what a batch costs; who keeps one of them keeps its piece.
const (
	roomBytes  = 4 << 10
	roomValues = roomBytes / 8 // the largest that shares
)

// plainEntry is what a batch takes of one.
type plainEntry[V any] struct {
	value    V
	size     int
	created  time.Time
	softened bool
}

// newPlain is for the reply in which a node sent this generation, and which came at at.now. What is held against the node is looked up once: behind the reply, as it must be (see nodeLog.losses).
func newPlain[V any](at *slot[V], gen invalidation.Generation, vals [][]byte) plain[V] {
	c := at.c
	p := plain[V]{c: c, gen: gen, head: plainHead(c.cfg.Codec.ID()), now: at.node.Now(at.now).UnixNano(), since: math.MinInt64}
	if log := c.client.debts.logs[at.owner]; !c.cfg.Truth {
		p.doubts, p.since = log.losses.Load() != at.losses || log.missed.Load() != nil, log.started.Load()
	}
	if _, is := any(c.cfg.Codec).(String); is {
		p.text, _ = any(sameText).(func(string) V)
	}
	if !c.inPlace {
		return p
	}
	for _, v := range vals {
		if n := len(v) - minHeader; n > 0 && n <= roomValues {
			p.left += n
		}
	}
	return p
}

func sameText(s string) string { return s }

// plainHead is magic, format, codec, no flag, and the length of a header with a stamp.
func plainHead(codec uint8) uint64 {
	return magic0<<56 | magic1<<48 | formatNow<<40 | uint64(codec)<<32 | minHeader
}

// judge takes an entry that may be served; false: it is not plain.
func (p *plain[V]) judge(data []byte) (e plainEntry[V], ok bool) {
	if p.doubts || len(data) < minHeader || binary.BigEndian.Uint64(data) != p.head ||
		[extHead]byte(data[headerBytes:]) != [extHead]byte{extStamp, 0, 8} || int(binary.BigEndian.Uint32(data[52:])) != len(data)-minHeader ||
		!p.gen.Holds(binary.BigEndian.Uint64(data[stampAt:])) {
		return e, false
	}
	const farFuture = math.MaxInt64 / uint64(time.Millisecond)
	created := binary.BigEndian.Uint64(data[24:])
	soft, ok1 := millis(binary.BigEndian.Uint64(data[32:]))
	hard, ok2 := millis(binary.BigEndian.Uint64(data[40:]))
	if !ok1 || !ok2 || created > farFuture {
		return e, false
	}
	at := int64(created) * int64(time.Millisecond)
	age := time.Duration(p.now - at)
	if at < p.since || age < 0 || age >= hard {
		return e, false
	}
	if e.value, ok = p.open(data[minHeader:]); !ok {
		return e, false
	}
	e.size, e.created = headerBytes+len(data)-minHeader, time.UnixMilli(int64(created))
	e.softened = age >= soft || p.c.early(&header{soft: soft, cost: time.Duration(binary.BigEndian.Uint32(data[48:])) * time.Microsecond}, age)
	return e, true
}

// open makes a value of a payload that is not kept.
func (p *plain[V]) open(payload []byte) (V, bool) {
	switch {
	case p.c.whole != nil:
		return p.c.whole(p.copy(payload)), true
	case p.text != nil:
		kept := p.copy(payload)
		return p.text(unsafe.String(unsafe.SliceData(kept), len(kept))), true //nolint:gosec // unsafe: nobody else has these bytes
	}
	return p.c.decode(payload)
}

// copy is the payload, to be kept.
func (p *plain[V]) copy(payload []byte) []byte {
	n := len(payload)
	if n == 0 || n > roomValues {
		return append(make([]byte, 0, n), payload...)
	}
	if n > len(p.room) {
		p.room = make([]byte, max(n, min(p.left, roomBytes)))
	}
	kept := p.room[:n:n]
	p.room, p.left = p.room[n:], p.left-n
	copy(kept, payload)
	return kept
}

// settlePlain is answered for a plain entry.
func (b *batch[V]) settlePlain(ctx context.Context, at *slot[V], k *quickKey, e *plainEntry[V], gen invalidation.Generation) {
	c := b.c
	at.key, at.names.Data = k.key, k.name
	c.outdate(at)
	c.countSize(k.key, e.size, b.asked)
	c.checkCopies(at)
	if e.softened && !c.cfg.Truth {
		at.gen, at.seen, at.replace, at.lapsed = gen, e.created, false, lapsed{}
		c.refreshBehind(ctx, b.full(*at, k.key).slot, c.ownLoader())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found[k.key] = e.value
}
