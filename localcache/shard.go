// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"strings"
	"sync"
)

// shard is one lock and everything behind it. Entries and tickets share the lock because Invalidate must end both in
// one step; with two locks there would be a moment between them at which a fill slips through.
type shard[V any] struct {
	mu sync.Mutex

	held       sieve[V]
	bytes      int64 // sum of the entries' costs
	maxBytes   int64
	maxEntries int

	open   map[string]round // keys with tickets out; at most maxOpen
	lastID uint64           // id of the newest round; rounds start at 1, so that the zero Ticket is void

	count Stats // its gauges (Entries, Bytes, Open) are filled in only in a copy

	_ [64]byte // keeps the next shard's lock off this one's cache line
}

// entry is a value, what it is charged, and when it ends on the cache's clock.
type entry[V any] struct {
	value   V
	cost    int64
	expires int64
}

func (s *shard[V]) init(maxEntries int, maxBytes int64) {
	s.held.clear()
	s.maxEntries, s.maxBytes = maxEntries, maxBytes
	s.open = make(map[string]round)
}

// get is on the path of every read: no defer, and nothing is written but a mark and a count.
func (s *shard[V]) get(key string, now int64) (value V, ok bool) {
	s.mu.Lock()
	i := s.held.index[key]
	switch {
	case i == nil:
		s.count.Misses++
	case i.entry.expires > now:
		s.count.Hits++
		i.marked = true
		value, ok = i.entry.value, true
	default:
		s.count.Misses++
		s.count.Expired++
		s.take(i)
	}
	s.mu.Unlock()
	return value, ok
}

// put stores e under key, and evicts before that until both bounds will hold. The caller holds the lock and has made sure that e alone fits. A key that was there
// is one that is wanted again.
func (s *shard[V]) put(key string, e entry[V], now int64) {
	i := s.held.index[key]
	if i != nil {
		s.bytes += e.cost - i.entry.cost
		i.entry, i.marked = e, true
		s.shrink(now, 0)
		return
	}
	s.shrink(now, e.cost)
	if len(s.held.index) >= s.maxEntries {
		s.evict(now)
	}
	s.held.add(strings.Clone(key), e) // the key may be cut out of a request of a megabyte
	s.bytes += e.cost
}

// shrink evicts until there is room for so many bytes.
func (s *shard[V]) shrink(now, room int64) {
	for s.bytes > s.maxBytes-room {
		s.evict(now)
	}
}

// evict drops the entry whose turn it is. One that was over anyway is counted as expired: evictions of live
// entries are what says that the cache is too small.
func (s *shard[V]) evict(now int64) {
	i := s.held.victim()
	if i.entry.expires > now {
		s.count.Evicted++
	} else {
		s.count.Expired++
	}
	s.take(i)
}

// take takes an item out.
func (s *shard[V]) take(i *item[V]) {
	s.held.remove(i)
	s.bytes -= i.entry.cost
}

func (s *shard[V]) peek(key string, now int64) (value V, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.held.index[key]; i != nil && i.entry.expires > now {
		return i.entry.value, true
	}
	return value, false
}

func (s *shard[V]) drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key)
}

// remove is drop with the lock held.
func (s *shard[V]) remove(key string) {
	if i := s.held.index[key]; i != nil {
		s.take(i)
		s.count.Invalidated++
	}
}

func (s *shard[V]) invalidate(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key)
	if _, ok := s.open[key]; ok {
		delete(s.open, key)
		s.count.Voided++
	}
}

func (s *shard[V]) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Invalidated += uint64(len(s.held.index))
	s.count.Voided += uint64(len(s.open))
	s.held.clear()
	s.bytes = 0
	clear(s.open)
}
