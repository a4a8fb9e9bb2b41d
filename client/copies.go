// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"hash/fnv"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// Copies of an entry on other nodes than its owner: of keys too hot for one node (CacheConfig.HotCopies), or of every key (CacheConfig.Copies). The nodes are
// the first of the key's walk; index 0 is the owner, which has the entry itself. A copy lies under names of its own.
//
// A copy is a shelf behind the owner. It is made under a lease on its node that was taken before the owner's primary was read (copybring.go), and voided after the
// owner and before the call returns (copyvoid.go). So:
//
//  1. B reads the entry at the owner, under its lease on node 2
//  2. W invalidates: at the owner, which says that there may be a copy on node 2; then there
//  3. B's fill comes                  -> before W came to node 2: it is removed. After: its lease is gone, it is refused
//
// How W knows: the read of step 1 notes in the same step, in a record beside the entry, on how many nodes copies can be (invalidation.Split). The record lives
// longer than lease and copy together, so an invalidation at the owner finds it, or there is no copy any more. Where every key has copies no record is needed.
//
// The owner may forget the record, and invalidations, as a node does that is restarted or fails over. So a copy says which history of the owner's writes it was
// read from (header.source), and a reader believes it only if that is the one that it knows the owner by: one that has met the owner's new run believes none
// from before it, and none that somebody else has made of what the new run had forgotten to delete before this process has repeated it.
//
// L1 is filled from the owner alone: copies are for readers that keep nothing.

const (
	// copyTTL is the longest life of a copy of a hot key.
	copyTTL = 10 * time.Second
	// copyLeaseTTL is that of the lease on a copy: what reading the owner and filling may take.
	copyLeaseTTL = 5 * time.Second
	// splitLife is that of a split record: longer than copyLeaseTTL and copyTTL together, by as much as clocks may be set meanwhile.
	splitLife = 30 * time.Second
	// copyAhead is what is left of the life of a hot key's copy when it is brought anew, so that its readers never find it missing.
	copyAhead = copyTTL / 5
)

// copying is what a cache needs for copies; nil where it has none.
type copying struct {
	hot    int  // on how many nodes a hot key may be; below 2: this process reads and makes no copies of those
	fixed  int  // on how many nodes every key is
	void   int  // how many an invalidation covers in any case
	record bool // invalidations ask for the split record
	most   int  // how many they cover where it cannot be read

	splits  splits
	runs    copyRuns                  // copies under way: one a key and node
	flight  stampede.Flight[struct{}] // where they run
	waiting atomic.Int64              // of them, those of every key that have no turn yet
	turns   chan struct{}
}

func (c *Cache[V]) makeCopying() {
	nodes := len(c.client.nodes)
	fixed, void := min(c.cfg.Copies, nodes), min(max(c.cfg.Copies, c.cfg.CopiesVoided), nodes)
	if c.cfg.HotCopies == 0 && void < 2 || nodes < 2 {
		return
	}
	c.copies = &copying{
		hot: min(c.cfg.HotCopies, nodes), fixed: max(fixed, 1), void: max(void, 1), record: c.cfg.HotCopies > 0,
		turns: make(chan struct{}, copiesAtOnce),
	}
	c.copies.most = c.copies.void
	switch {
	case c.cfg.HotCopies == 1: // others make them, as many as they will
		c.copies.most = nodes
	case c.cfg.HotCopies > 1:
		c.copies.most = max(c.copies.most, c.copies.hot)
	}
}

// close ends the making of copies.
func (cs *copying) close(ctx context.Context) error {
	if cs == nil {
		return nil
	}
	return cs.flight.Close(ctx)
}

// splitsNow is how many keys are known to be split.
func (cs *copying) splitsNow() int {
	if cs == nil {
		return 0
	}
	return cs.splits.count(time.Now())
}

// copySlot is one key's place on one of the other nodes.
type copySlot[V any] struct {
	slot[V]
	home       *slot[V]
	index      int    // in the key's walk
	homeLosses uint64 // as losses, of the owner
}

// copyAt is a key's place on the node that is the index-th of its walk. home is its owner's.
func (c *Cache[V]) copyAt(home *slot[V], index, node int) copySlot[V] {
	return copySlot[V]{
		slot: slot[V]{
			c: c, key: home.key, names: c.names.copyKeys(home.key), owner: node, node: c.client.nodes[node],
			losses: c.client.debts.logs[node].losses.Load(), copied: true,
		},
		home: home, index: index, homeLosses: c.client.debts.logs[home.owner].losses.Load(),
	}
}

// copyKeys are the names of a copy.
func (n naming) copyKeys(key string) invalidation.Keys {
	data := n.data(key)
	return invalidation.Keys{Data: copyPrefix + data, Lease: copyLeasePrefix + data, Mark: copyMarkPrefix + data, Body: copyBodyPrefix + data, Of: n.of}
}

// owedAs is the name under which the invalidation of a slot is owed. A key has a copy on several nodes, each under the same name there: so the node is in it.
func (s *slot[V]) owedAs() string {
	if !s.copied {
		return s.names.Data
	}
	return copyOwedPrefix + strconv.Itoa(s.owner) + ":" + strings.TrimPrefix(s.names.Data, copyPrefix)
}

// copyOwedPrefix begins a name that owedAs has made: only an entry of the outbox, or of a log, is named so.
const copyOwedPrefix = "~c"

// copyOwed reads a name that owedAs has made for a copy: its node, and the name of the entry at its owner.
func copyOwed(name string) (node int, data string, ok bool) {
	rest, ok := strings.CutPrefix(name, copyOwedPrefix)
	if !ok {
		return 0, "", false
	}
	number, data, ok := strings.Cut(rest, ":")
	node, err := strconv.Atoi(number)
	return node, data, ok && err == nil && node >= 0
}

// owesCopy says whether an invalidation is owed that a copy may have missed: its own, the key's, or a clearing of the owner or the copy's node.
func (c *Cache[V]) owesCopy(s *copySlot[V]) bool {
	s.losses, s.homeLosses = c.client.debts.logs[s.owner].losses.Load(), c.client.debts.logs[s.home.owner].losses.Load()
	o := c.client.debts.outbox
	return !o.Empty() && (o.Has(s.owedAs()) || o.Has(s.home.names.Data) || o.Has(c.clearDebts[s.owner]) || o.Has(c.clearDebts[s.home.owner]))
}

// believes has the last word on a copy that was read, after slot.look: what the owner has lost or is owed counts for its copies as well.
func (s *copySlot[V]) believes(e *entry[V], f freshness) freshness {
	if f != fresh && f != softened {
		return f
	}
	log := s.c.client.debts.logs[s.home.owner]
	switch {
	case e.source != log.source.Load() || log.losses.Load() != s.homeLosses:
		s.c.counters.distrusted.Add(1)
	case len(e.tags) > 0 && s.c.owesTag(s.home.owner, e.tags):
		s.c.counters.cleared.Add(1)
	default:
		return f
	}
	return unusable
}

// sourceOf is the number of a history of writes, as redisnode names it; 0 for that of a server that does not say.
func sourceOf(stream string) uint64 {
	if stream == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(stream)) // never fails
	return h.Sum64() | 1
}

// nodesOf are the first k nodes of a key's walk, the owner first.
func (c *Cache[V]) nodesOf(data string, k int) []int {
	nodes := make([]int, 0, k)
	for node := range c.client.ring.WalkIndex(data) {
		if len(nodes) == k {
			break
		}
		nodes = append(nodes, node)
	}
	return nodes
}
