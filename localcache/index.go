// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import "sync/atomic"

// index finds a shard's items by key. Reads take no lock; changes are made under the shard's, by one at a time.
//
// It is a table with open addressing and linear probing: an item lies in the first slot at or after its hash that was free when it came. That reads
// need no lock follows from three rules:
//
//   - An item that is published never changes, but for its mark. A new value of a key is a new item, in the same slot.
//   - From the hash's own slot to an item's none is empty, at any moment, and an item never moves within a table. So a read that looks from slot to slot until it
//     meets an empty one passes by every item that was there all the while. A slot in the middle of others is therefore not emptied when its item
//     goes: it is marked as gone.
//   - When slots that are gone have used the table up, a new one is made and takes its place in one store. The old one is never written to again: who still reads it has begun before.
//
// What Invalidate promises is one store: the slot no longer has the hash. Go's atomic operations are ordered as if one processor ran them, so who begins
// to read after that store does not meet the item; who has begun before may still return it.
type index[V any] struct {
	table atomic.Pointer[table[V]]

	// Guarded by the shard's lock:
	live int // items
	used int // slots that are not empty: items, and what is gone
}

// table is slots, a power of two of them, of which at least a quarter is empty: every search ends.
type table[V any] struct {
	slots []slot[V]
}

// slot is an item and its hash, which is looked at first: of items with other hashes nothing is read, and each is a cache line that is not at hand. The two are
// not of one moment, so the item's key is compared as well. The item is stored before the hash, and goes after it.
type slot[V any] struct {
	hash atomic.Uint64
	item atomic.Pointer[item[V]]
}

// What a slot has in place of a hash. No hash is one of these: hashBit is set in all, which chooses neither a shard nor (in tables of this world) a slot.
const (
	empty   = 0
	gone    = 1
	hashBit = 1 << 40
)

// fewestSlots is how many an empty table has.
const fewestSlots = 8

func newTable[V any](slots int) *table[V] { return &table[V]{make([]slot[V], slots)} }

// at is the slot that comes so many after a hash's own.
func (t *table[V]) at(hash uint64) *slot[V] { return &t.slots[hash&uint64(len(t.slots)-1)] }

// first is the item in a hash's own slot if it has that hash, else nil: most searches end there, and need no call.
func (x *index[V]) first(hash uint64) *item[V] {
	s := x.table.Load().at(hash)
	if s.hash.Load() != hash {
		return nil
	}
	return s.item.Load()
}

// find is the item of a key, or nil. It takes no lock.
func (x *index[V]) find(hash uint64, key string) *item[V] {
	t := x.table.Load()
	for at := hash; ; at++ {
		s := t.at(at)
		switch s.hash.Load() {
		case hash:
			if i := s.item.Load(); i != nil && i.key == key {
				return i
			}
		case empty:
			return nil
		}
	}
}

// add puts in an item whose key is not there.
func (x *index[V]) add(i *item[V]) {
	if slots := len(x.table.Load().slots); 4*(x.used+1) > 3*slots {
		x.rebuild()
	}
	x.live++
	if x.table.Load().put(i) == empty {
		x.used++
	}
}

// put stores an item in the first slot that is free, and says what that held.
func (t *table[V]) put(i *item[V]) (before uint64) {
	for at := i.hash; ; at++ {
		s := t.at(at)
		if before = s.hash.Load(); before <= gone {
			s.item.Store(i)
			s.hash.Store(i.hash)
			return before
		}
	}
}

// rebuild makes a table of what is there, five eighths full at most: an eighth is left until the next one, which so costs an addition the copying of eight slots at
// most, and two as a rule.
func (x *index[V]) rebuild() {
	slots := fewestSlots
	for 5*slots < 8*(x.live+1) {
		slots *= 2
	}
	t := newTable[V](slots)
	old := x.table.Load()
	for s := range old.slots {
		if i := old.slots[s].item.Load(); i != nil {
			t.put(i)
		}
	}
	x.used = x.live
	x.table.Store(t)
}

// place is where an item is that is there: how many slots after the first one's.
func (t *table[V]) place(i *item[V]) uint64 {
	at := i.hash
	for t.at(at).item.Load() != i {
		at++
	}
	return at
}

// replace puts an item in the place of one with the same key.
func (x *index[V]) replace(old, i *item[V]) {
	t := x.table.Load()
	t.at(t.place(old)).item.Store(i)
}

// remove takes an item out. Where the next slot is empty nothing lies behind this one, and it is emptied, with those before it that are gone.
func (x *index[V]) remove(i *item[V]) {
	t := x.table.Load()
	at := t.place(i)
	s := t.at(at)
	s.hash.Store(gone)
	s.item.Store(nil)
	x.live--
	if t.at(at+1).hash.Load() != empty {
		return
	}
	for ; t.at(at).hash.Load() == gone; at-- {
		t.at(at).hash.Store(empty)
		x.used--
	}
}

func (x *index[V]) clear() {
	x.live, x.used = 0, 0
	x.table.Store(newTable[V](fewestSlots))
}
