// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// Detector counts reads and says which keys are hot. Its memory is fixed by its Config. All methods are safe for
// concurrent use; Observe and Hot take one shard's lock for some tens of nanoseconds.
//
// What it promises, with all rates decayed as Config.HalfLife says:
//   - the rate of a named key is never above the true one and reaches it from below: what was read before the key was
//     named is missing, which is at most an eighth of Enter unless it had to fight for its name, and that gap halves
//     with each half-life. A steady rate r is measured as r to within 0.6 %, any rate to within 1.1 %, which is the
//     price of counting time in steps of a 64th of HalfLife;
//   - so no key is hot whose rate was never Enter (less that 1.1 %);
//   - a key above Enter may be missed only while as many keys as its shard has names (Config.Capacity over the number
//     of shards, 64 by default) are estimated higher.
//
// Times should not run backward: a now that is older than the newest one seen counts as that one. Times from time.Now
// carry a monotonic reading and do not. Times without one that were far in the future once stop decay until then.
type Detector struct {
	shards []shard
	shift  uint // of a key's hash, to the bits that choose its shard
	seed   maphash.Seed
	list   float64 // reads a second from which on Top lists a key
}

// KeyRate is a key and how often it is read.
type KeyRate struct {
	Key  string
	Rate float64 // reads a second, decayed
}

// shard is an independent detector for its part of the keys.
type shard struct {
	mu     sync.Mutex
	clock  clock
	sketch sketch
	table  table

	// Thresholds as counts: what a key of that rate adds up to, see clock.
	enter, leave, name float64

	_ [64]byte // keeps the next shard's lock off this one's cache line
}

// New returns a detector that has seen nothing, or an error that names the field of cfg that is wrong.
func New(cfg Config) (*Detector, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	bits := cfg.shardBits()
	d := &Detector{
		shards: make([]shard, 1<<bits),
		shift:  uint(64 - bits),
		seed:   maphash.MakeSeed(),
		list:   cfg.Enter / listAt,
	}
	for i := range d.shards {
		s := &d.shards[i]
		s.clock = newClock(cfg.HalfLife)
		s.sketch = newSketch(cfg.SketchWidth >> bits)
		s.table = newTable(cfg.Capacity >> bits)
		s.enter, s.leave = s.clock.count(cfg.Enter), s.clock.count(cfg.Leave)
		s.name = s.enter / nameAt
	}
	return d, nil
}

// Observe counts one read of key at now and reports whether the key is hot. It allocates only when a key is named.
func (d *Detector) Observe(key string, now time.Time) bool {
	hash := maphash.String(d.seed, key)
	s := &d.shards[hash>>d.shift] // a shift by 64 gives 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	i, ok := s.table.index[key]
	if !ok {
		return s.observeUnnamed(d, key, hash)
	}
	n := &s.table.names[i]
	n.seen += s.clock.weight
	return s.judge(n)
}

// Hot reports whether key is hot at now, without counting a read.
func (d *Detector) Hot(key string, now time.Time) bool {
	s := &d.shards[maphash.String(d.seed, key)>>d.shift]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	i, ok := s.table.index[key]
	return ok && s.judge(&s.table.names[i])
}

// Top returns the n keys with the highest rates, highest first, equal ones by key: fewer if fewer are known, none if
// n is not positive. Known are the keys that have a name and at least a sixteenth of Config.Enter. It copies the whole
// table and sorts it: some 100 us with the default capacity, for reports and not for the read path.
func (d *Detector) Top(n int, now time.Time) []KeyRate {
	if n <= 0 {
		return nil
	}
	var all []KeyRate
	for i := range d.shards {
		all = d.shards[i].list(all, d.list, now)
	}
	slices.SortFunc(all, func(a, b KeyRate) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))]
}

func (s *shard) list(to []KeyRate, least float64, now time.Time) []KeyRate {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	for _, n := range s.table.names {
		if rate := s.clock.rate(n.seen); rate >= least {
			to = append(to, KeyRate{Key: n.key, Rate: rate})
		}
	}
	return to
}

// advance brings the shard's clock to now. From time to time the weights have grown so far that all counts are put
// back to the scale on which a read weighs 1.
func (s *shard) advance(now time.Time) {
	if shrink := s.clock.advance(now); shrink != 1 {
		s.sketch.scale(shrink)
		s.table.scale(shrink)
	}
}

// observeUnnamed counts a read in the sketch, and gives the key a name if its estimate says that it deserves one. The
// read itself is then the first that is counted under the name.
func (s *shard) observeUnnamed(d *Detector, key string, hash uint64) bool {
	w := s.clock.weight
	estimate := s.sketch.add(hash, w)
	if estimate < s.name*w {
		return false
	}
	n, lost, ok := s.table.admit(key, w, estimate-w)
	if !ok {
		return false
	}
	if lost.rank() > 0 { // somebody lost the name: back into the sketch, so that the key can earn it again
		s.sketch.raise(maphash.String(d.seed, lost.key), lost.rank())
	}
	return s.judge(n)
}

// judge says whether n is hot, and remembers it: which threshold counts depends on the last answer.
func (s *shard) judge(n *name) bool {
	threshold := s.enter
	if n.hot {
		threshold = s.leave
	}
	n.hot = n.seen >= threshold*s.clock.weight
	return n.hot
}
