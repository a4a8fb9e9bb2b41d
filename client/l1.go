// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"time"
	"unsafe"

	"github.com/go-shelf/shelf/localcache"
)

// l1Entry is what the in-process cache holds of an entry.
type l1Entry[V any] struct {
	value    V
	version  uint64
	born     time.Time // when the entry's age was zero, on this process's monotonic clock
	owner    int       // the node it came from
	negative bool
	soft     time.Duration // the age from which it is stale
	stamp    uint64
	tags     []string
}

// fromL1 is this process's own copy of a key, if there is one that may be served.
func (c *Cache[V]) fromL1(key string, now time.Time) (l1Entry[V], bool) {
	e, ok := c.l1.Get(key, now)
	if !ok {
		return e, false
	}
	if !c.views[e.owner].keeps(e.stamp, e.tags) {
		c.counters.l1Doubted.Add(1)
		return e, false
	}
	return e, true
}

// ticket is a place in L1 that was asked for before the value was read (see localcache.Ticket). The zero ticket is for a key that is
// not kept in L1.
type ticket[V any] struct {
	c      *Cache[V]
	ticket localcache.Ticket
}

// wantL1 takes a ticket where the key belongs in L1.
func (c *Cache[V]) wantL1(key string, hot bool) ticket[V] {
	if c.l1 == nil || (c.cfg.L1 == L1Hot && !hot) {
		return ticket[V]{}
	}
	return ticket[V]{c, c.l1.Begin(key)}
}

// commit puts an entry into L1 if the ticket is still good. It lives for L1TTL or for what is left of the entry, whichever is
// shorter, counted from before the read was sent.
func (t ticket[V]) commit(e *entry[V], owner int, asked, now time.Time) {
	if t.c == nil {
		return
	}
	age := e.ageAt(asked)
	left := min(t.c.cfg.L1TTL, e.hard-age)
	kept := l1Entry[V]{version: e.version, born: asked.Add(-age), owner: owner, negative: e.negative, soft: e.soft, stamp: e.stamp, tags: e.tags}
	if !e.negative {
		kept.value = t.c.copied(e.value)
	}
	// What the value takes in memory is not known; what it takes when it is encoded is a fair guess.
	t.c.l1.Commit(t.ticket, kept, int64(unsafe.Sizeof(kept))+int64(e.size), asked.Add(left), now)
}

// cancel gives the ticket back; it does nothing after a commit.
func (t ticket[V]) cancel() {
	if t.c != nil {
		t.c.l1.Cancel(t.ticket)
	}
}
