// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

// Stats is what a cache has done since New, and what it holds now. Counters only grow.
type Stats struct {
	Hits           uint64 // Get returned a fresh entry
	Misses         uint64 // Get returned nothing, expired entries included
	Expired        uint64 // entries dropped because they were over when Get or an eviction met them
	Evicted        uint64 // live entries dropped to keep MaxBytes or MaxEntries
	Commits        uint64 // values stored
	RefusedVoid    uint64 // commits refused: the key was invalidated or already filled since Begin
	RefusedExpired uint64 // commits refused: over before they arrived
	RefusedSize    uint64 // commits refused: larger than a shard, or of negative size
	Invalidated    uint64 // entries dropped by Invalidate, Drop or Clear
	Voided         uint64 // keys that had tickets out when Invalidate or Clear came
	Displaced      uint64 // keys whose tickets were made void to bound the tickets out; a sign of lost tickets

	Entries int   // now: entries held
	Bytes   int64 // now: their cost, see Config.MaxBytes
	Open    int   // now: keys with tickets out
}

// Refused is the number of commits that were refused, for any reason.
func (st Stats) Refused() uint64 { return st.RefusedVoid + st.RefusedExpired + st.RefusedSize }

// Stats sums over the shards, one after the other: each shard's numbers are of one moment, the whole is not. Hits and misses are
// counted apart, and exact.
func (c *Cache[V]) Stats() Stats {
	var sum Stats
	sum.Hits, sum.Misses = c.reads.sum()
	for i := range c.shards {
		sum.add(c.shards[i].stats())
	}
	return sum
}

func (s *shard[V]) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.count
	st.Entries, st.Bytes, st.Open = s.held.index.live, s.bytes, len(s.open)
	return st
}

func (st *Stats) add(o Stats) {
	st.Hits += o.Hits
	st.Misses += o.Misses
	st.Expired += o.Expired
	st.Evicted += o.Evicted
	st.Commits += o.Commits
	st.RefusedVoid += o.RefusedVoid
	st.RefusedExpired += o.RefusedExpired
	st.RefusedSize += o.RefusedSize
	st.Invalidated += o.Invalidated
	st.Voided += o.Voided
	st.Displaced += o.Displaced
	st.Entries += o.Entries
	st.Bytes += o.Bytes
	st.Open += o.Open
}
