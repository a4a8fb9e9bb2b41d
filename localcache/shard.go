// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"fmt"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// shard is one lock and everything behind it. Entries and tickets share the lock because Invalidate must end both in
// one step; with two locks there would be a moment between them at which a fill slips through.
type shard[V any] struct {
	mu sync.Mutex

	lru        *simplelru.LRU[string, entry[V]]
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

func (s *shard[V]) init(maxEntries int, maxBytes int64) error {
	lru, err := simplelru.NewLRU[string, entry[V]](maxEntries, nil)
	if err != nil {
		return fmt.Errorf("localcache: %w", err)
	}
	s.lru, s.maxEntries, s.maxBytes = lru, maxEntries, maxBytes
	s.open = make(map[string]round)
	return nil
}

func (s *shard[V]) get(key string, now int64) (value V, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.lru.Get(key)
	if ok && e.expires > now {
		s.count.Hits++
		return e.value, true
	}
	s.count.Misses++
	if ok {
		s.lru.Remove(key)
		s.bytes -= e.cost
		s.count.Expired++
	}
	return value, false
}

// put stores e under key and evicts until both bounds hold. The caller holds the lock and has made sure that e alone
// fits, so the loop over bytes ends at the latest when e is the only entry left.
func (s *shard[V]) put(key string, e entry[V], now int64) {
	if old, ok := s.lru.Peek(key); ok {
		s.bytes -= old.cost
	} else {
		key = strings.Clone(key) // it may be cut out of a request of a megabyte; what is there has its copy already
		if s.lru.Len() >= s.maxEntries {
			s.evict(now) // here and not in lru.Add, which would not say what it took off the byte count
		}
	}
	s.lru.Add(key, e) // moves to the front, so evict below does not meet it before all others
	s.bytes += e.cost
	for s.bytes > s.maxBytes {
		s.evict(now)
	}
}

// evict drops the least recently used entry. One that was over anyway is counted as expired: evictions of live
// entries are what says that the cache is too small.
func (s *shard[V]) evict(now int64) {
	_, e, ok := s.lru.RemoveOldest()
	if !ok {
		return
	}
	s.bytes -= e.cost
	if e.expires > now {
		s.count.Evicted++
	} else {
		s.count.Expired++
	}
}

func (s *shard[V]) peek(key string, now int64) (value V, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.lru.Peek(key); ok && e.expires > now {
		return e.value, true
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
	if e, ok := s.lru.Peek(key); ok {
		s.lru.Remove(key)
		s.bytes -= e.cost
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
	s.count.Invalidated += uint64(s.lru.Len())
	s.count.Voided += uint64(len(s.open))
	s.lru.Purge()
	s.bytes = 0
	clear(s.open)
}
