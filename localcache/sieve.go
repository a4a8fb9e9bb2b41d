// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

// sieve holds the entries of a shard and says which one goes when there is no room. It is SIEVE (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024): a
// queue in the order in which entries came, each with a mark that a hit sets, and a hand that goes from the oldest to the newest and round again. An entry without a mark
// that the hand meets goes; one with a mark loses it and stays.
//
// A hit moves nothing: with an LRU list it writes to five entries' neighbours, and costs twice as much. And what is read once goes before what is
// read again, however many such keys come by.
//
// Nothing here is safe for concurrent use: the shard's lock is held.
type sieve[V any] struct {
	index          map[string]*item[V]
	newest, oldest *item[V]
	hand           *item[V] // the next to be looked at; nil: the oldest
}

// item is an entry in the queue.
type item[V any] struct {
	key    string
	entry  entry[V]
	marked bool

	newer, older *item[V]
}

// add puts a key that is not there at the end of the queue, without a mark.
func (q *sieve[V]) add(key string, e entry[V]) {
	i := &item[V]{key: key, entry: e, older: q.newest}
	if q.newest != nil {
		q.newest.newer = i
	} else {
		q.oldest = i
	}
	q.newest = i
	q.index[key] = i
}

// remove takes an item out.
func (q *sieve[V]) remove(i *item[V]) {
	delete(q.index, i.key)
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
}

// victim is the item that goes next; nil: there is none. The hand takes away at most as many marks as there are.
func (q *sieve[V]) victim() *item[V] {
	i := q.hand
	for {
		if i == nil {
			i = q.oldest
		}
		if i == nil || !i.marked {
			q.hand = i
			return i
		}
		i.marked = false
		i = i.newer
	}
}

func (q *sieve[V]) clear() {
	*q = sieve[V]{index: make(map[string]*item[V])}
}
