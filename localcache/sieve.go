// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// sieve holds the entries of a shard and says which one goes when there is no room. It is SIEVE (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024): a
// queue in the order in which entries came, each with a mark that a hit sets, and a hand that goes from the oldest to the newest and round again. An entry without a mark
// that the hand meets goes; one with a mark loses it and stays.
//
// A hit moves nothing: with an LRU list it writes to five entries' neighbours, and costs twice as much; and it would need the lock. And what is read once goes before what is
// read again, however many such keys come by.
//
// But for index.find and marks, nothing here is safe for concurrent use: the shard's lock is held.
type sieve[V any] struct {
	index          index[V]
	newest, oldest *item[V]
	hand           *item[V] // the next to be looked at; nil: the oldest
}

// item is an entry in the queue. What a hit reads comes first, up to the value, so that it is on as few cache lines as can be.
type item[V any] struct {
	key     string
	expires time.Duration // on the cache's clock
	marked  atomic.Bool   // set by hits, which hold no lock; taken away by the hand
	short   [32]byte      // where a short key's bytes are: beside what they are compared for
	value   V

	hash uint64
	cost int64

	newer, older *item[V] // guarded by the shard's lock
}

// newItem makes an item with a copy of a key, which may be cut out of a request of a megabyte.
func newItem[V any](hash uint64, key string, v V, cost int64, expires time.Duration) *item[V] {
	i := &item[V]{value: v, hash: hash, cost: cost, expires: expires}
	if n := copy(i.short[:], key); n == len(key) {
		i.key = unsafe.String(&i.short[0], n) //nolint:gosec // short is never written again
	} else {
		i.key = strings.Clone(key)
	}
	return i
}

// mark notes that an item was asked for. It writes once for each round of the hand: a key that all processors read stays in all their caches.
func (i *item[V]) mark() {
	if !i.marked.Load() {
		i.marked.Store(true)
	}
}

// add puts a key that is not there at the end of the queue, without a mark.
func (q *sieve[V]) add(i *item[V]) {
	i.older = q.newest
	q.join(i)
	q.index.add(i)
}

// replace puts an item in the place of one with the same key, with a mark: a key that comes again is one that is wanted again.
func (q *sieve[V]) replace(old, i *item[V]) {
	i.marked.Store(true)
	i.newer, i.older = old.newer, old.older
	q.join(i)
	if q.hand == old {
		q.hand = i
	}
	old.newer, old.older = nil, nil
	q.index.replace(old, i)
}

// join makes an item's neighbours know it.
func (q *sieve[V]) join(i *item[V]) {
	if i.newer != nil {
		i.newer.older = i
	} else {
		q.newest = i
	}
	if i.older != nil {
		i.older.newer = i
	} else {
		q.oldest = i
	}
}

// remove takes an item out. Its links go: whoever still holds it would hold its neighbours with it, and theirs in turn.
func (q *sieve[V]) remove(i *item[V]) {
	q.index.remove(i)
	if q.hand == i {
		q.hand = i.newer
	}
	if i.newer != nil {
		i.newer.older = i.older
	} else {
		q.newest = i.older
	}
	if i.older != nil {
		i.older.newer = i.newer
	} else {
		q.oldest = i.newer
	}
	i.newer, i.older = nil, nil
}

// victim is the item that goes next; nil: there is none. The hand takes away at most as many marks as there are, and as hits put back meanwhile.
func (q *sieve[V]) victim() *item[V] {
	i := q.hand
	for {
		if i == nil {
			i = q.oldest
		}
		if i == nil || !i.marked.Load() {
			q.hand = i
			return i
		}
		i.marked.Store(false)
		i = i.newer
	}
}

func (q *sieve[V]) clear() {
	q.newest, q.oldest, q.hand = nil, nil, nil
	q.index.clear()
}
