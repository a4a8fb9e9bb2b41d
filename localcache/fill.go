// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import "time"

// maxOpen bounds the keys of one shard that have tickets out. Each is a fill on its way, so a thousand a shard is far
// beyond what a process does; tickets that somebody forgets to end are what the bound is for.
const maxOpen = 1024

// Ticket is the right to store one value of one key. Begin hands it out, Commit or Cancel ends it. It is a plain
// value of three words; taking one allocates nothing once the shard has seen as many open keys before. The zero
// Ticket is void. A ticket is good only for the cache that gave it.
type Ticket struct {
	key   string
	round uint64
}

// round is the open tickets of one key. They share an id, and they end together when the id leaves the shard's map:
// a ticket whose id is not the one in the map is void, whatever happened to its round. Ids are never used twice.
type round struct {
	id      uint64
	holders int // tickets out; the last one cancelled takes the round away
}

// Begin returns a ticket for key. It must be taken before the read whose result is to be stored is sent, because it
// vouches for everything read after it:
//
//	A: Begin(k), id 1           A: sends its read
//	                            node: A's read sees v1
//	                            node: k is changed to v2, and says so
//	   Invalidate(k): id 1 is gone
//	B: Begin(k), id 2           B: sends its read, sees v2
//	B: Commit v2: stored, id 2 is gone
//	A: Commit v1: refused, for 1 is not in the map
//
// Had A taken its ticket after its read was answered, it could have come after the Invalidate and v1 would have been
// stored. And were the tickets of a key told apart only by "there is one", B's would have made A's good again: hence
// the ids.
//
// Any number of callers may hold tickets of one key. A ticket that is never ended costs one map slot a key, however
// many of the key's tickets are lost, until the key is filled, invalidated or cleared; a shard keeps at most 1,024
// keys with open tickets and then makes those of an arbitrary key void, which costs that key a fill and no more.
func (c *Cache[V]) Begin(key string) Ticket {
	s := c.shard(c.hash(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.open[key]
	if !ok {
		s.makeRoom()
		s.lastID++
		r.id = s.lastID
	}
	r.holders++
	s.open[key] = r
	return Ticket{key: key, round: r.id}
}

// makeRoom takes an arbitrary round away when the shard has as many as it may have. Map order is random enough that
// lost tickets cannot keep the room for ever.
func (s *shard[V]) makeRoom() {
	if len(s.open) < maxOpen {
		return
	}
	for key := range s.open {
		delete(s.open, key)
		s.count.Displaced++
		return
	}
}

// Commit stores v under the ticket's key until expires and reports whether it did. size is the memory that v holds,
// in bytes; the key's length and EntryOverhead are added. It is refused, and what was stored before stays, when
//   - the ticket is void: since Begin the key was invalidated, or filled by this or another ticket, or all tickets of
//     the key were cancelled;
//   - expires is not after now;
//   - the cost is more than a shard may hold (see Config.Shards), or size is negative.
//
// A refusal is no failure: v is as good an answer to the caller's own read as it ever was, it is just not kept.
//
// Commit ends the ticket, and with a ticket that was good also those of the key's other holders: the first to answer
// fills. The others read the same value, or one of them a newer and one an older one whose invalidation is under way;
// refusing them keeps a slow old reply from replacing a quick new one.
func (c *Cache[V]) Commit(t Ticket, v V, size int64, expires, now time.Time) bool {
	hash := c.hash(t.key)
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.open[t.key]
	if !ok || r.id != t.round {
		s.count.RefusedVoid++
		return false
	}
	delete(s.open, t.key)
	end, at := c.since(expires), c.since(now)
	if end <= at {
		s.count.RefusedExpired++
		return false
	}
	if size < 0 || size > s.maxBytes { // before the sum, which an absurd size would overflow
		s.count.RefusedSize++
		return false
	}
	cost := size + int64(len(t.key)) + EntryOverhead
	if cost > s.maxBytes {
		s.count.RefusedSize++
		return false
	}
	s.put(newItem(hash, t.key, v, cost, end), at)
	s.count.Commits++
	return true
}

// Cancel ends the ticket without a fill. After Commit, whatever it returned, Cancel does nothing, so it may be
// deferred right after Begin. A ticket is not to be used after Cancel: cancelling it twice may end another holder's in
// its place, and committing it may do the other holder's fill. Neither can store a stale value.
func (c *Cache[V]) Cancel(t Ticket) {
	s := c.shard(c.hash(t.key))
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.open[t.key]
	if !ok || r.id != t.round {
		return
	}
	r.holders--
	if r.holders == 0 {
		delete(s.open, t.key)
		return
	}
	s.open[t.key] = r
}
