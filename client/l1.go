// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"math"
	"time"
	"unsafe"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/localcache"
)

// l1Entry is what the in-process cache holds of an entry. It never changes. Times are by the cache's clock. What a hit looks at comes first and is narrow: with
// the key before it that is two cache lines for a value of up to two words, and each is one that is not at hand.
type l1Entry[V any] struct {
	value    V
	ends     time.Duration       // from then on it is not served; L1 keeps it longer for StaleIfError
	watch    *redisnode.Tracking // who tells when the entry changes; nil: nobody
	stamp    uint64
	size     uint32 // of its wire form, in bytes
	owner    uint16 // the node it came from: there are ring.MaxNodes at most
	negative bool
	tagged   bool // it has tags

	tags    []string
	version uint64
	born    time.Duration // when the entry's age was zero
	soft    time.Duration // the age from which it is stale
}

// fromL1 is this process's own copy of a key, if there is one that may be served: its node still tells of changes, has done so within the last
// second, and the cache has not been cleared. nil: there is none.
func (c *Cache[V]) fromL1(key string, at time.Duration) *l1Entry[V] {
	e := c.l1.Find(key, at)
	if e == nil {
		return nil
	}
	if !c.serves(e, at) {
		c.counters.l1Doubted.Add(1)
		return nil
	}
	if e.size >= largeRead {
		c.countKept(key, int(e.size), c.opened.Add(at))
	}
	return e
}

// serves says whether a copy may be served as what the owner has.
func (c *Cache[V]) serves(e *l1Entry[V], at time.Duration) bool {
	v := &c.views[e.owner]
	if at >= e.ends || e.watch != nil && !v.vouches(e.watch, at) {
		return false
	}
	latest := v.latest.Load()
	return latest == nil || e.stamp >= latest.Cleared && (!e.tagged || v.keeps(e.watch != nil, e.stamp, e.tags))
}

// ticket is a place in L1 that was asked for before the value was read (see localcache.Ticket). The zero ticket is for a key that is
// not kept in L1.
type ticket[V any] struct {
	c      *Cache[V]
	ticket localcache.Ticket
	watch  *redisnode.Tracking // what the value must be read through; nil on a node that cannot push
	pushes uint64              // of the cache's generation, before the read
}

// wantL1 takes a ticket where the key belongs in L1. What is in the gutter is kept as what nobody watches, whatever the node can: other processes' invalidations need not reach
// it. Without that all reads of a hot key whose owner is down would fall on the stand-in. A node that can push but does not at the moment (it is being connected, or has fallen silent) gives none:
// a copy would live on for longer than the second for which silence is believed.
func (c *Cache[V]) wantL1(s *slot[V], now time.Time) ticket[V] {
	if !c.keeps(s.key, now) {
		return ticket[V]{}
	}
	if s.gutter {
		return ticket[V]{c, c.l1.Begin(s.key), nil, 0}
	}
	watch := s.node.Tracking()
	if watch == nil && s.node.Tracks() || watch != nil && !watch.Fresh(now) {
		return ticket[V]{}
	}
	return ticket[V]{c, c.l1.Begin(s.key), watch, c.views[s.owner].pushes.Load()}
}

// commit puts an entry into L1 if the ticket is still good. It lives for L1TTL (L1BlindTTL where nobody watches it) or for what is left of the entry,
// whichever is shorter, counted from before the read was sent. With a watch, the entry must be what was read through it, never
// what a loader returned: a process hears nothing of the delete of a key that was missing when it read it, nor of what comes after its own fill.
func (t ticket[V]) commit(e *entry[V], s *slot[V], asked, now time.Time) {
	if t.c == nil || s.unwatched {
		return
	}
	age := e.ageAt(asked)
	ttl := t.c.cfg.L1BlindTTL
	if t.watch != nil {
		ttl = t.c.cfg.L1TTL
		view := &t.c.views[s.owner]
		if session := s.node.Session(); !t.watch.Over() { // else the generation may be another run's
			view.learn(session, s.gen)
			view.watched(t.watch, t.c.since(t.watch.Began()), t.pushes)
		}
	}
	left := min(ttl, e.hard-age)
	if s.gutter {
		left = min(left, gutterTTL-age)
	}
	expires := asked.Add(left)
	kept := l1Entry[V]{
		version: e.version, born: t.c.since(asked) - age, owner: uint16(s.owner), size: uint32(min(uint64(e.size), math.MaxUint32)), negative: e.negative, soft: e.soft,
		stamp: e.stamp, tagged: len(e.tags) > 0, tags: e.tags, watch: t.watch, ends: t.c.since(expires),
	}
	if extra := t.c.afterlife(e); extra > 0 {
		expires = asked.Add(e.hard - age + extra)
	}
	if !e.negative {
		kept.value = t.c.copied(e.value)
	}
	// What the value takes in memory is not known; what it takes when it is encoded is a fair guess. Its tags can be as large as 16 KiB.
	size := int64(unsafe.Sizeof(kept)) + int64(e.size)
	for _, tag := range e.tags {
		size += int64(unsafe.Sizeof(tag)) + int64(len(tag))
	}
	t.c.l1.Commit(t.ticket, kept, size, expires, now)
}

// blind says that nobody watches what is stored under the ticket: then it may be what a loader returned.
func (t ticket[V]) blind() bool { return t.c != nil && t.watch == nil }

// cancel gives the ticket back; it does nothing after a commit.
func (t ticket[V]) cancel() {
	if t.c != nil {
		t.c.l1.Cancel(t.ticket)
	}
}

// clock is the cache's clock: what has passed since it was made. It is one reading of one clock, where time.Now reads two, and comparing such times
// takes an instruction. A clock that a goroutine sets now and then would cost less still, and would say of a process that was stopped, or got no processor, for a minute that none has passed.
func (c *Cache[V]) clock() time.Duration { return time.Since(c.opened) }

// now is the same as a time.
func (c *Cache[V]) now() time.Time { return c.opened.Add(c.clock()) }

// since is a time as clock has it.
func (c *Cache[V]) since(t time.Time) time.Duration { return t.Sub(c.opened) }
