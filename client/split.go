// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// splitHold is for how long a key counts as split since somebody last said so.
	splitHold = 5 * time.Second
	// maxSplits bounds the keys that a cache knows to be split. More are not split: what a fleet reads of thousands of hot keys is spread by their owners.
	maxSplits = 1024
)

// split says that the fleet's rate of a key wants it on k nodes now, its owner counted, and at most CacheConfig.HotCopies; below 2: on the owner alone. It holds for
// splitHold and is to be said again while that is so; it is cheap enough to be called once a second a key. From now on this process reads one of the k nodes, by
// chance. The first reader that finds a copy missing brings it, and that is what notes at the owner how far copies can exist: so nothing is to be written here,
// and processes may differ about k. Without CacheConfig.HotCopies it does nothing.
func (c *Cache[V]) split(key string, k int) {
	if c.copies == nil || c.copies.hot < 2 {
		return
	}
	k = min(k, c.copies.hot)
	if k < 2 {
		c.copies.splits.forget(key)
		return
	}
	c.copies.splits.set(key, k, time.Now(), func() []int { return c.nodesOf(c.names.data(key), k) })
}

// splits are the keys that are split, with their nodes. Reads are without locks.
type splits struct {
	live atomic.Int32 // how many are in keys, expired ones included
	keys sync.Map     // key -> *splitKey
	mu   sync.Mutex   // held by who changes keys
}

// splitKey is not changed once it is in the table.
type splitKey struct {
	nodes []int // the first of the key's walk
	until time.Time
}

// of are the nodes of a key that is split, the owner first; nil: it is not.
func (s *splits) of(key string, now time.Time) []int {
	if s.live.Load() == 0 {
		return nil
	}
	v, ok := s.keys.Load(key)
	if !ok {
		return nil
	}
	k, _ := v.(*splitKey)
	if !now.Before(k.until) {
		return nil
	}
	return k.nodes
}

func (s *splits) set(key string, k int, now time.Time, nodes func() []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := &splitKey{until: now.Add(splitHold)}
	v, known := s.keys.Load(key)
	switch old, _ := v.(*splitKey); {
	case known && len(old.nodes) == k:
		fresh.nodes = old.nodes
	case !known && s.live.Load() >= maxSplits && s.sweep(now) >= maxSplits:
		return
	default:
		fresh.nodes = nodes()
	}
	s.keys.Store(key, fresh)
	if !known {
		s.live.Add(1)
	}
}

func (s *splits) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.keys.LoadAndDelete(key); known {
		s.live.Add(-1)
	}
}

// count is how many keys are split now.
func (s *splits) count(now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweep(now)
}

// sweep drops those whose time is over, and says how many are left. mu is held.
func (s *splits) sweep(now time.Time) int {
	s.keys.Range(func(key, v any) bool {
		if k, _ := v.(*splitKey); !now.Before(k.until) {
			s.keys.Delete(key)
			s.live.Add(-1)
		}
		return true
	})
	return int(s.live.Load())
}
