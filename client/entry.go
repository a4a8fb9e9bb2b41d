// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"fmt"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// entry is a value with its header, decoded.
type entry[V any] struct {
	header
	value V
	born  time.Time // when its age was zero, on this process's clock
	size  int       // bytes of header and payload, as the codec made it
	wire  []byte    // what to store; nil for an entry that was read, or that cannot be stored
	body  []byte    // of a large value that is to be stored: what goes with wire, see large.go
	fault error     // why a value cannot be stored, where that is a fault of the value
}

func (e *entry[V]) ageAt(now time.Time) time.Duration { return max(0, now.Sub(e.born)) }

// freshness is what a reader may do with the bytes that it found.
type freshness int

const (
	absent   freshness = iota // nothing there
	fresh                     // serve
	softened                  // serve, and see that it is refreshed
	unusable                  // bytes are there but must not be served: foreign, undecodable, past their time
	lapsing                   // past their time, and may answer all the same when nothing else does; only from judge to weigh, for all others it is unusable
)

// judge decodes the bytes of an entry and says what they are good for. A nil slice is a missing key. gen is the cache's generation on the
// node, read in the same command. The value of an entry whose payload lies apart is not there yet: slot.whole brings it, and has the last word.
func (c *Cache[V]) judge(data []byte, n *redisnode.Node, gen invalidation.Generation) (e entry[V], f freshness) {
	f = c.judgeInto(&e, data, n, gen, time.Now())
	return e, f
}

// judgeInto is judge for who has just looked at the clock. The entry, which is large, is made where its reader has it: zero where there is none.
func (c *Cache[V]) judgeInto(e *entry[V], data []byte, n *redisnode.Node, gen invalidation.Generation, now time.Time) freshness {
	*e = entry[V]{}
	if data == nil {
		return absent
	}
	f := c.decide(e, data, n, gen, now)
	if f == unusable {
		*e = entry[V]{}
	}
	return f
}

// decide is judgeInto for bytes that are there. Of an unusable entry it may leave something.
func (c *Cache[V]) decide(e *entry[V], data []byte, n *redisnode.Node, gen invalidation.Generation, now time.Time) freshness {
	payload, ok := e.parse(data)
	if !ok || (e.codec != c.cfg.Codec.ID() && !e.negative) || c.exceeds(&e.header) {
		c.counters.foreign.Add(1)
		return unusable
	}
	if !gen.Holds(e.stamp) {
		c.counters.cleared.Add(1)
		return unusable
	}
	age, ok := e.age(n.Now(now))
	e.born = now.Add(-age)
	if !ok || age >= e.hard {
		c.counters.expired.Add(1)
		if ok && c.lapses(&e.header, age) {
			return lapsing
		}
		return unusable
	}
	e.size = headerBytes
	if !e.negative && e.apart == (apart{}) && !c.open(e, payload) {
		return unusable
	}
	if age >= e.soft || c.early(&e.header, age) {
		return softened
	}
	return fresh
}

// exceeds says whether an entry claims to be larger than what this cache stores. Believing it would be to set aside whatever memory somebody asks for.
func (c *Cache[V]) exceeds(h *header) bool {
	return int64(h.packed.size) > int64(c.cfg.MaxValueBytes) || int64(h.apart.size) > int64(c.cfg.MaxValueBytes)
}

// open makes an entry's value of its payload, which must be the entry's alone: bytes are not copied once more. What cannot be opened is foreign, and counted.
func (c *Cache[V]) open(e *entry[V], payload []byte) (ok bool) {
	if e.packed == (packing{}) {
		if c.whole != nil {
			e.value, ok = c.whole(payload), true
		} else {
			e.value, ok = c.decode(payload)
		}
		e.size = headerBytes + len(payload)
	} else {
		withScratch(int(e.packed.size), func(buf []byte) {
			var original []byte
			if original, ok = decompress(buf, payload, e.packed); ok {
				e.value, ok = c.decode(original)
			}
		})
		e.size = headerBytes + int(e.packed.size)
	}
	if !ok {
		c.counters.foreign.Add(1)
	}
	return ok
}

// decode is the codec's work. A codec that panics on bytes that it does not understand says, in its way, that they are foreign; and it may be
// at work in a goroutine of ours, whose panic would be the process's.
func (c *Cache[V]) decode(payload []byte) (v V, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	v, err := c.cfg.Codec.Decode(payload)
	return v, err == nil
}

// early is the election of one reader, ahead of soft expiry, the likelier the nearer expiry is and the longer a load takes.
func (c *Cache[V]) early(h *header, age time.Duration) bool {
	return !c.cfg.NoEarlyRefresh && stampede.Early(age, h.soft, h.cost, c.cfg.Beta, c.draw())
}

// seal makes the entry of a value that was loaded, or of its absence, ready to be stored. began is when the load began: ages count
// from there, since the value may be as old as that. The zero of the options is the cache's own TTL and version. A value that cannot be
// stored has no wire form, and fault says why if that is an error.
func (c *Cache[V]) seal(v V, negative bool, n *redisnode.Node, began time.Time, cost time.Duration, o SetOptions) entry[V] {
	e := entry[V]{value: v, born: began}
	e.header = header{codec: c.cfg.Codec.ID(), negative: negative, created: n.Now(began), cost: cost}
	e.soft, e.hard = c.lifetimes(negative, o.TTL)
	if !negative && c.cfg.Version != nil {
		e.version = c.cfg.Version(v)
	}
	if o.Version > 0 {
		e.version = o.Version
	}
	if negative && c.cfg.NoNegative {
		return e
	}
	if e.fault = c.tag(&e); e.fault != nil {
		c.counters.unencodable.Add(1)
		return e
	}
	var payload []byte
	if !negative {
		var err error
		if payload, err = c.cfg.Codec.Append(nil, v); err != nil {
			c.counters.unencodable.Add(1)
			e.fault = fmt.Errorf("%w: %w", ErrUnencodable, err)
			return e
		}
	}
	if len(payload) > c.cfg.MaxValueBytes {
		c.counters.oversized.Add(1)
		e.fault = fmt.Errorf("%w: it encodes to %d bytes, at most %d are stored (CacheConfig.MaxValueBytes)", ErrTooLarge, len(payload), c.cfg.MaxValueBytes)
		return e
	}
	e.size = headerBytes + len(payload)
	if c.cfg.Compression == CompressNone || len(payload) < c.cfg.CompressAbove {
		c.seals(&e, payload)
		return e
	}
	withScratch(maxCompressed(len(payload)), func(buf []byte) {
		if packed, ok := compress(buf, payload, c.cfg.Compression); ok {
			e.packed = packing{c.cfg.Compression, uint32(len(payload))}
			payload = packed
		}
		c.seals(&e, payload)
	})
	return e
}

// seals writes the wire form of an entry, with its payload or apart from it.
func (c *Cache[V]) seals(e *entry[V], payload []byte) {
	if len(payload) > c.cfg.LargeValueBytes {
		e.setApart(payload)
		return
	}
	e.wire = appendEnvelope(make([]byte, 0, minHeader+8+len(payload)), e.header, payload)
}

// lifetimes draws the soft and the hard TTL of one entry. Jitter shortens both by the same draw, so that soft stays before hard.
func (c *Cache[V]) lifetimes(negative bool, ttl time.Duration) (soft, hard time.Duration) {
	soft, hard = c.cfg.SoftTTL, c.cfg.TTL
	switch {
	case negative:
		soft, hard = c.cfg.NegativeTTL, c.cfg.NegativeTTL
	case ttl > 0:
		soft, hard = max(time.Millisecond, time.Duration(float64(ttl)*c.softShare())), ttl
	}
	if c.cfg.NoJitter {
		return soft, hard
	}
	draw := c.draw()
	return stampede.Jitter(soft, c.cfg.Jitter, draw), stampede.Jitter(hard, c.cfg.Jitter, draw)
}

// softShare is SoftTTL as a share of TTL; a value with a TTL of its own softens at the same share of it.
func (c *Cache[V]) softShare() float64 { return float64(c.cfg.SoftTTL) / float64(c.cfg.TTL) }
