// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"sync"
	"time"
)

// shard is one lock and everything behind it. Entries and tickets share the lock because Invalidate must end both in
// one step; with two locks there would be a moment between them at which a fill slips through. Reads of entries take none: see index.
type shard[V any] struct {
	held sieve[V] // first: its index's table is what every read begins with
	_    [64]byte // keeps what changes off that cache line

	mu         sync.Mutex
	bytes      int64 // sum of the entries' costs
	maxBytes   int64
	maxEntries int

	open   map[string]round // keys with tickets out; at most maxOpen
	lastID uint64           // id of the newest round; rounds start at 1, so that the zero Ticket is void

	count Stats // without reads, see tally; its gauges (Entries, Bytes, Open) are filled in only in a copy

	_ [64]byte // keeps the next shard off this one's cache lines
}

func (s *shard[V]) init(maxEntries int, maxBytes int64) {
	s.held.clear()
	s.maxEntries, s.maxBytes = maxEntries, maxBytes
	s.open = make(map[string]round)
}

// put stores an item, and evicts before that until both bounds will hold. The caller holds the lock and has made sure that it alone fits.
func (s *shard[V]) put(i *item[V], now time.Duration) {
	if old := s.held.index.find(i.hash, i.key); old != nil {
		s.bytes += i.cost - old.cost
		s.held.replace(old, i)
		s.shrink(now, 0)
		return
	}
	s.shrink(now, i.cost)
	if s.held.index.live >= s.maxEntries {
		s.evict(now)
	}
	s.held.add(i)
	s.bytes += i.cost
}

// shrink evicts until there is room for so many bytes.
func (s *shard[V]) shrink(now time.Duration, room int64) {
	for s.bytes > s.maxBytes-room {
		s.evict(now)
	}
}

// evict drops the entry whose turn it is. One that was over anyway is counted as expired: evictions of live
// entries are what says that the cache is too small.
func (s *shard[V]) evict(now time.Duration) {
	i := s.held.victim()
	if i.expires > now {
		s.count.Evicted++
	} else {
		s.count.Expired++
	}
	s.take(i)
}

// take takes an item out.
func (s *shard[V]) take(i *item[V]) {
	s.held.remove(i)
	s.bytes -= i.cost
}

// expire drops an item that a read has found to be over, unless somebody else has taken it, or put a new one in its place, before the lock was had.
func (s *shard[V]) expire(i *item[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held.index.find(i.hash, i.key) == i {
		s.count.Expired++
		s.take(i)
	}
}

func (s *shard[V]) drop(hash uint64, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(hash, key)
}

// remove is drop with the lock held.
func (s *shard[V]) remove(hash uint64, key string) {
	if i := s.held.index.find(hash, key); i != nil {
		s.take(i)
		s.count.Invalidated++
	}
}

func (s *shard[V]) invalidate(hash uint64, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(hash, key)
	if _, ok := s.open[key]; ok {
		delete(s.open, key)
		s.count.Voided++
	}
}

func (s *shard[V]) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Invalidated += uint64(s.held.index.live)
	s.count.Voided += uint64(len(s.open))
	s.held.clear()
	s.bytes = 0
	clear(s.open)
}
