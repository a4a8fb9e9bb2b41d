// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import "testing"

// check fails the test if the parts of c contradict each other: queue and index, byte count and costs, bounds,
// open tickets, and the shard that each key is in. It is called after every step of the tests that walk at random.
func check[V any](t testing.TB, c *Cache[V]) {
	t.Helper()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		checkEntries(t, c, i)
		checkOpen(t, c, i)
		s.mu.Unlock()
	}
}

func checkEntries[V any](t testing.TB, c *Cache[V], i int) {
	t.Helper()
	s := &c.shards[i]
	keys := queue(t, s)
	listed := make(map[string]bool, len(keys))
	var bytes int64
	for _, k := range keys {
		e := s.held.index.find(c.hash(k), k)
		if e == nil {
			t.Fatalf("shard %d: %q is in the list but not in the index", i, k)
		}
		if listed[k] {
			t.Fatalf("shard %d: %q is in the list twice", i, k)
		}
		listed[k] = true
		if c.shard(c.hash(k)) != s {
			t.Fatalf("shard %d: %q belongs to another shard", i, k)
		}
		if least := int64(len(k)) + EntryOverhead; e.cost < least || e.cost > s.maxBytes {
			t.Fatalf("shard %d: %q costs %d, outside [%d, %d]", i, k, e.cost, least, s.maxBytes)
		}
		bytes += e.cost
	}
	checkIndex(t, &s.held.index, i, len(keys))
	if hand := s.held.hand; hand != nil && s.held.index.find(hand.hash, hand.key) != hand {
		t.Fatalf("shard %d: the hand is at %q, which is not there", i, s.held.hand.key)
	}
	if bytes != s.bytes {
		t.Fatalf("shard %d: entries cost %d, counted are %d", i, bytes, s.bytes)
	}
	if s.bytes > s.maxBytes || len(keys) > s.maxEntries {
		t.Fatalf("shard %d: %d bytes of %d, %d entries of %d: over a bound", i, s.bytes, s.maxBytes, len(keys), s.maxEntries)
	}
	in, out := s.count.Commits, s.count.Evicted+s.count.Expired+s.count.Invalidated
	if uint64(len(keys)) > in-min(out, in) { // a commit over an old entry adds none, hence not equal
		t.Fatalf("shard %d: %d entries, but %d came in and %d went", i, len(keys), in, out)
	}
}

// What was taken out holds nothing of the queue: a reader that keeps it for long must not keep all that came after it.
func TestTakenItemsHoldNothing(t *testing.T) {
	var q sieve[int]
	q.clear()
	items := make([]*item[int], 4)
	for k := range items {
		items[k] = poorItem(k)
		q.add(items[k])
	}
	q.replace(items[1], poorItem(1))
	q.remove(items[2])
	for _, i := range items[1:3] {
		if i.newer != nil || i.older != nil {
			t.Errorf("%s still knows its neighbours", i.key)
		}
	}
}

// checkIndex: the table holds as many items as it says, each where a search finds it, and has room for searches to end.
func checkIndex[V any](t testing.TB, x *index[V], i, keys int) {
	t.Helper()
	slots := x.table.Load().slots
	live, used := 0, 0
	for at := range slots {
		hash, item := slots[at].hash.Load(), slots[at].item.Load()
		switch {
		case (hash > gone) != (item != nil):
			t.Fatalf("shard %d: slot %d has hash %d and item %v", i, at, hash, item)
		case item != nil && (item.hash != hash || x.find(hash, item.key) != item):
			t.Fatalf("shard %d: a search for %q does not find slot %d", i, item.key, at)
		case item != nil:
			live++
		case hash == gone && slots[(at+1)%len(slots)].hash.Load() == empty:
			t.Fatalf("shard %d: slot %d is gone and could be empty", i, at)
		}
		if hash != empty {
			used++
		}
	}
	if live != keys || live != x.live || used != x.used {
		t.Fatalf("shard %d: list has %d keys, the index %d and counts %d; %d slots are used, counted are %d", i, keys, live, x.live, used, x.used)
	}
	if 4*used > 3*len(slots) {
		t.Fatalf("shard %d: %d of %d slots are used", i, used, len(slots))
	}
}

func checkOpen[V any](t testing.TB, c *Cache[V], i int) {
	t.Helper()
	s := &c.shards[i]
	if len(s.open) > maxOpen {
		t.Fatalf("shard %d: %d keys with tickets out, at most %d allowed", i, len(s.open), maxOpen)
	}
	ids := make(map[uint64]string, len(s.open))
	for k, r := range s.open {
		if c.shard(c.hash(k)) != s {
			t.Fatalf("shard %d: tickets of %q belong to another shard", i, k)
		}
		if r.id == 0 || r.id > s.lastID {
			t.Fatalf("shard %d: tickets of %q have id %d, given out were 1 to %d", i, k, r.id, s.lastID)
		}
		if other, twice := ids[r.id]; twice {
			t.Fatalf("shard %d: %q and %q share ticket id %d", i, k, other, r.id)
		}
		ids[r.id] = k
		if r.holders < 1 {
			t.Fatalf("shard %d: %q has %d holders and is still open", i, k, r.holders)
		}
	}
}

// queue is the keys of a shard, oldest first. It walks the list both ways.
func queue[V any](t testing.TB, s *shard[V]) (keys []string) {
	t.Helper()
	for i := s.held.oldest; i != nil; i = i.newer {
		keys = append(keys, i.key)
	}
	n := len(keys)
	for i := s.held.newest; i != nil; i = i.older {
		if n--; n < 0 || keys[n] != i.key {
			t.Fatalf("%q is at another place from the other end of %v", i.key, keys)
		}
	}
	return keys
}
