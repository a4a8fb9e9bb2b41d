// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// The gutter (Config.Gutter): while a key's owner is down, its entry may live on a stand-in, the next node of the ring's walk, under names of its own. The stand-in
// never becomes the owner: nothing moves when a node goes or comes, and what lies in the gutter is gone 10 s later.
//
// A gutter entry is a shelf beside the owner, not behind it: it is filled from the loader alone, under a lease on the stand-in. So an invalidation that has voided
// both is complete, whatever becomes of one of them later. But processes may differ about whether the owner is down, and one that finds it well does not
// look into the gutter:
//
//  1. P finds owner O down, and reads K from stand-in S
//  2. Q finds O well; it writes K and invalidates on O. P has the old row for as long as S keeps it: gutterTTL, which is the promise
//  3. now Q finds O down too, and reads K from S: the old row, after its own write
//
// Against the third step a process believes only entries whose load began after it had found the owner down; from that moment on it invalidates in
// the gutter too. What it invalidated before, it had written before.

const (
	// gutterTTL is the longest life of an entry in the gutter.
	gutterTTL = 10 * time.Second
	// gutterMargin is by how much the stand-in's clock may be estimated wrong.
	gutterMargin = 100 * time.Millisecond
	// gutterTail is for how long after an owner's return invalidations go into the gutter too: others may notice it later, and a load that began in the
	// gutter may end by then.
	gutterTail = 15 * time.Second
)

// absence is a time in which this process has found a node down. The zero end says that it lasts.
type absence struct{ began, ended time.Time }

// absences are the latest ones, by node. Each is written by one goroutine at a time: whoever tells of a change of the node's state (redisnode.Config.OnState).
type absences []atomic.Pointer[absence]

func (a absences) begin(node int, now time.Time) {
	if _, already := a.lasting(node); !already { // it may have answered a heartbeat in between
		a[node].Store(&absence{began: now})
	}
}

func (a absences) end(node int, now time.Time) {
	if was := a[node].Load(); was != nil && was.ended.IsZero() {
		a[node].Store(&absence{began: was.began, ended: now})
	}
}

// lasting is when the present absence of a node began; false: it is not away.
func (a absences) lasting(node int) (since time.Time, ok bool) {
	was := a[node].Load()
	if was == nil || !was.ended.IsZero() {
		return time.Time{}, false
	}
	return was.began, true
}

// recent says whether a node is away, or was so lately that somebody may still look into its gutter.
func (a absences) recent(node int, now time.Time) bool {
	was := a[node].Load()
	return was != nil && (was.ended.IsZero() || now.Sub(was.ended) < gutterTail)
}

// standIn is the node that has the gutter of an entry; -1: there is none.
func (c *Client) standIn(data string) int {
	owner := true
	for i := range c.ring.WalkIndex(data) {
		if !owner {
			return i
		}
		owner = false
	}
	return -1
}

// place is where a reader looks for a key: at its owner, or in the gutter while that is down. Where the stand-in is down as well there is no gutter.
func (c *Cache[V]) place(key string) (s slot[V]) {
	c.placeInto(&s, key)
	s.nameAll()
	return s
}

// placeInto is place for one who needs the name of the entry alone, as locate. s is zero.
func (c *Cache[V]) placeInto(s *slot[V], key string) {
	c.locate(s, key)
	if c.client.cfg.Gutter && !c.cfg.Truth {
		c.placeBeside(s)
	}
}

// placeBeside makes s the key's place in the gutter if that is where to look.
func (c *Cache[V]) placeBeside(s *slot[V]) {
	since, down := c.client.absences.lasting(s.owner)
	if !down {
		return
	}
	g, ok := c.gutter(s.key)
	if _, down := c.client.absences.lasting(g.owner); !ok || down {
		return
	}
	c.counters.gutter.Add(1)
	g.since = since
	*s = g
}

// gutter is a key's place in the gutter; false where the client has one node only.
func (c *Cache[V]) gutter(key string) (slot[V], bool) {
	names := c.names.gutterKeys(key)
	i := c.client.standIn(c.names.data(key))
	if i < 0 {
		return slot[V]{}, false
	}
	return slot[V]{c: c, key: key, names: names, owner: i, node: c.client.nodes[i], gutter: true, losses: c.client.debts.logs[i].losses.Load()}, true
}

// tooEarly says whether an entry in the gutter is from before this process looked there: see above.
func (s *slot[V]) tooEarly(created time.Time) bool {
	return s.gutter && created.Before(s.node.Now(s.since).Add(gutterMargin))
}

// voidGutter is the part of an invalidation that concerns the gutter: for keys whose owner was not reached, or was away lately. What fails is owed to
// the stand-in.
func (c *Cache[V]) voidGutter(ctx context.Context, keys []string, reached func(key string) bool, versionOf func(key string) uint64) []error {
	if !c.client.cfg.Gutter || c.cfg.Truth || len(c.client.nodes) == 1 {
		return nil
	}
	now := time.Now()
	var there []string
	for _, key := range keys {
		if !reached(key) || c.client.absences.recent(c.slotOf(key).owner, now) {
			there = append(there, key)
		}
	}
	if len(there) == 0 {
		return nil
	}
	do := c.invalidation(versionOf, false)
	do.at = c.inGutter
	do.failed = func(failed []*NodeError) []error { return c.owe(failed, do.at, versionOf) }
	return c.everywhere(ctx, opInvalidate, there, do)
}

func (c *Cache[V]) inGutter(key string) *slot[V] {
	s, _ := c.gutter(key)
	return &s
}

// gutterKeys are the names of a key in the gutter. Each has a prefix of its own, before the name that the entry has at its owner.
func (n naming) gutterKeys(key string) invalidation.Keys {
	data := n.data(key)
	return invalidation.Keys{Data: gutterPrefix + data, Lease: gutterLeasePrefix + data, Mark: gutterMarkPrefix + data, Body: gutterBodyPrefix + data, Of: n.of}
}
