// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"time"
)

// EntryOverhead is what an entry is charged against Config.MaxBytes besides its key's length and the size given at
// Commit: item, slots and bookkeeping, with room for a V of up to three words (a pointer, a string, a
// slice). A wider V has its width added to the size by whoever calls Commit. It is 150 to 180 bytes for keys of up to 32 bytes, which lie
// in the item and are charged all the same, depending on how far the shard's table is from its next doubling.
const EntryOverhead = 176

const (
	defaultMaxBytes   = 64 << 20
	defaultMaxEntries = 100_000
	defaultShards     = 64
	maxShards         = 1 << 16

	// Below these a shard stops being a useful cache of its own: chance puts twice the average into one shard and
	// nothing into the next, and one larger item empties it. They bound only the default number of shards.
	minShardBytes   = 1 << 20
	minShardEntries = 256
)

// Config sets the bounds of a Cache. The zero value is ready to use.
type Config struct {
	// MaxBytes bounds the sum over all entries of the size given at Commit, the key's length and EntryOverhead.
	// 0 means 64 MiB; otherwise it must be at least EntryOverhead, below which nothing fits.
	MaxBytes int64

	// MaxEntries bounds the number of entries. 0 means 100,000.
	MaxEntries int

	// Shards is the number of independently locked parts, a power of two up to 65,536. Both bounds are divided
	// evenly among them (rounded down, so the whole never exceeds its bound), and a shard evicts as soon as its own
	// part is full: with keys spread by a hash the cache as a whole evicts from some 90 % of its bound on.
	//
	// 0 means 64, halved until a shard has at least 1 MiB and 256 entries or one shard is left. So by default an
	// item whose cost is at most MaxBytes or 1 MiB, whichever is smaller, always fits. A number that is given is
	// used as it is, and an item fits if its cost is at most MaxBytes/Shards.
	Shards int

	// Origin is the moment from which Find counts. Zero means when New is called. It is from time.Now, with its monotonic reading: see Get.
	Origin time.Time
}

// withDefaults checks cfg and replaces zeros by the documented defaults.
func (cfg Config) withDefaults() (Config, error) {
	switch {
	case cfg.MaxBytes < 0:
		return cfg, fmt.Errorf("localcache: MaxBytes is %d: must not be negative", cfg.MaxBytes)
	case cfg.MaxBytes != 0 && cfg.MaxBytes < EntryOverhead:
		return cfg, fmt.Errorf("localcache: MaxBytes is %d: must be at least %d, the cost of an empty entry", cfg.MaxBytes, EntryOverhead)
	case cfg.MaxEntries < 0:
		return cfg, fmt.Errorf("localcache: MaxEntries is %d: must not be negative", cfg.MaxEntries)
	case cfg.Shards < 0:
		return cfg, fmt.Errorf("localcache: Shards is %d: must not be negative", cfg.Shards)
	case cfg.Shards > maxShards || cfg.Shards&(cfg.Shards-1) != 0:
		return cfg, fmt.Errorf("localcache: Shards is %d: must be a power of two up to %d", cfg.Shards, maxShards)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if cfg.MaxEntries == 0 {
		cfg.MaxEntries = defaultMaxEntries
	}
	if cfg.Shards == 0 {
		cfg.Shards = defaultShards
		for cfg.Shards > 1 && (cfg.shardBytes() < minShardBytes || cfg.shardEntries() < minShardEntries) {
			cfg.Shards /= 2
		}
	}
	if cfg.Origin.IsZero() {
		cfg.Origin = time.Now()
	}
	if cfg.shardEntries() < 1 || cfg.shardBytes() < EntryOverhead {
		return cfg, fmt.Errorf("localcache: Shards is %d: leaves a shard no room for an entry (MaxEntries %d, MaxBytes %d)",
			cfg.Shards, cfg.MaxEntries, cfg.MaxBytes)
	}
	return cfg, nil
}

func (cfg Config) shardBytes() int64 { return cfg.MaxBytes / int64(cfg.Shards) }
func (cfg Config) shardEntries() int { return cfg.MaxEntries / cfg.Shards }

// Cache is a bounded cache of values of type V. All methods are safe for concurrent use. Get, Find and Peek take no lock; the others take one
// shard's for a few dozen nanoseconds, Clear, Len, Bytes and Stats every shard's in turn.
//
// Values are handed out as they were stored, not copied: a V that holds pointers or slices is shared by all readers
// and must not be changed by any. The key of an entry is a copy of its own: one that was cut out of a larger string does not keep that alive.
type Cache[V any] struct {
	shards []shard[V]
	shift  uint         // of a key's hash, to the bits that choose its shard
	seed   maphash.Seed // a new one a cache: nobody outside can aim keys at one shard

	// origin is the zero of the cache's clock. Expiry is kept as nanoseconds since origin, and because New takes
	// origin with its monotonic reading, a `now` from time.Now is compared on the monotonic clock: a wall clock
	// that is set back an hour does not lengthen an entry's life by an hour.
	origin time.Time

	reads tally
}

// New returns an empty cache, or an error that names the field of cfg that is wrong.
func New[V any](cfg Config) (*Cache[V], error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cache[V]{
		shards: make([]shard[V], cfg.Shards),
		shift:  uint(64 - bits.TrailingZeros(uint(cfg.Shards))),
		seed:   maphash.MakeSeed(),
		origin: cfg.Origin,
	}
	for i := range c.shards {
		c.shards[i].init(cfg.shardEntries(), cfg.shardBytes())
	}
	return c, nil
}

// Get returns the value of key if it is fresh, that is, if it expires after now. An expired entry that is met is
// dropped. Get allocates nothing.
//
// now is time.Now() as it came, with its monotonic reading. (Times without one, such as time.Date makes in tests,
// work as long as every time given to the cache is of that kind; they follow the wall clock.) The monotonic clock may
// stand still while the machine is suspended, and entries then live longer by the suspension.
func (c *Cache[V]) Get(key string, now time.Time) (v V, ok bool) {
	if at := c.Find(key, c.since(now)); at != nil {
		return *at, true
	}
	return v, false
}

// Find is Get for paths on which nanoseconds count: the value is not copied, and the time is what has passed since Config.Origin. It returns nil where Get returns false. What it
// points to is shared with all readers and never changes: it is not to be written to, nor to be kept, since it keeps more than itself from being collected.
func (c *Cache[V]) Find(key string, now time.Duration) *V {
	hash := c.hash(key)
	s := c.shard(hash)
	i := s.held.index.first(hash)
	if i == nil || i.key != key {
		i = s.held.index.find(hash, key)
	}
	switch {
	case i == nil:
		c.reads.miss()
		return nil
	case i.expires <= now:
		c.reads.miss()
		s.expire(i)
		return nil
	}
	c.reads.hit()
	i.mark()
	return &i.value
}

// Peek is Get that leaves no trace: it counts nothing, drops nothing, and does not keep the entry from being evicted. It is
// for those who may not use what they see for what the cache is for.
func (c *Cache[V]) Peek(key string, now time.Time) (v V, ok bool) {
	hash := c.hash(key)
	if i := c.shard(hash).held.index.find(hash, key); i != nil && i.expires > c.since(now) {
		return i.value, true
	}
	return v, false
}

// Drop drops the entry of key, if there is one, and leaves the tickets of key as they are: for an entry that is no longer wanted though
// nothing has happened to what it was read from. It counts as Invalidated.
func (c *Cache[V]) Drop(key string) {
	hash := c.hash(key)
	c.shard(hash).drop(hash, key)
}

// Invalidate drops the entry of key and makes every ticket of key that is out void, in one step under the shard's
// lock. Once it has returned, no value read under an earlier ticket can be seen again. It costs the same for a key
// that is not here, and must be called for it too: its value may be on the way.
func (c *Cache[V]) Invalidate(key string) {
	hash := c.hash(key)
	c.shard(hash).invalidate(hash, key)
}

// Clear drops every entry and makes every ticket void. It is for the moment at which invalidations may have been
// missed.
//
// Shards are cleared one after the other. Once Clear has returned, nothing that was stored, and no ticket that was
// taken, before it was called is left. A ticket taken while it runs may survive. So what reads go through (a
// connection that may have lost its subscription, say) is replaced first and Clear called second: then a surviving
// ticket belongs to a read through the new one.
func (c *Cache[V]) Clear() {
	for i := range c.shards {
		c.shards[i].clear()
	}
}

// Len returns the number of entries, including expired ones that nothing has met yet.
func (c *Cache[V]) Len() int { return c.Stats().Entries }

// Bytes returns the present cost of all entries, counted as Config.MaxBytes counts it.
func (c *Cache[V]) Bytes() int64 { return c.Stats().Bytes }

// hash is what a key is looked up by: its shard by the highest bits, its place there by the lowest.
func (c *Cache[V]) hash(key string) uint64 { return maphash.String(c.seed, key) | hashBit }

// shard returns the part of the cache that holds the keys of a hash.
func (c *Cache[V]) shard(hash uint64) *shard[V] {
	return &c.shards[hash>>c.shift] // a shift by 64 gives 0
}

// since puts t on the cache's clock: what has passed since origin, held at the ends of an int64 (292 years).
func (c *Cache[V]) since(t time.Time) time.Duration { return t.Sub(c.origin) }
