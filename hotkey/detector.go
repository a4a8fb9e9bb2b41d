// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// Detector counts reads and says which keys are hot. Its memory is fixed by its Config. All methods are safe for
// concurrent use; Observe and Hot take one shard's lock for some tens of nanoseconds.
//
// What it promises of reads that are all counted (Observe, and Count below some 100,000 a second), with all rates decayed as Config.HalfLife says:
//   - the rate of a named key is never above the true one and reaches it from below: what was read before the key was
//     named is missing, which is at most an eighth of Enter unless it had to fight for its name, and that gap halves
//     with each half-life. A steady rate r is measured as r to within 0.6 %, any rate to within 1.1 %, which is the
//     price of counting time in steps of a 64th of HalfLife;
//   - so no key is hot whose rate was never Enter (less that 1.1 %);
//   - a key above Enter may be missed only while as many keys as its shard has names (Config.Capacity over the number
//     of shards, 64 by default) are estimated higher.
//
// Where Count draws samples this holds in the mean: a rate is off by its KeyRate.Noise either way.
//
// Times should not run backward: a now that is older than the newest one seen counts as that one. Times from time.Now
// carry a monotonic reading and do not. Times without one that were far in the future once stop decay until then.
type Detector struct {
	shards []shard
	shift  uint // of a key's hash, to the bits that choose its shard
	seed   maphash.Seed
	list   float64 // reads a second from which on Top lists a key
	unit   float64 // bytes that count as one read more

	sampling sampling
	pins     atomic.Pointer[map[string]struct{}]
}

// KeyRate is a key and how often it is read. The true rate lies from Rate to AtMost, but for Noise.
type KeyRate struct {
	Key    string
	Rate   float64 // reads a second, decayed; large values count for more, see Config.ByteUnit
	AtMost float64 // the same, with what may have been read before the key was tracked by name
	Noise  float64 // the standard deviation of Rate that comes from counting one read in several; 0 where all were counted
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
		unit:   float64(cfg.ByteUnit),
	}
	d.sampling.base = time.Now()
	d.sampling.every.Store(1)
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
	return d.observe(key, 1, 1, now) || d.pinned(key)
}

// Count counts one read of a value of so many bytes (0: they do not matter) at now, and answers nothing: ask [Detector.Hot] where it matters. It is for
// paths on which nanoseconds count. Up to some 100,000 reads a second all are counted; above, as many are drawn at random and count for the others. Then a key needs eight
// counted reads to be hot, whatever its bytes: at ten million reads a second in all those are the keys with 700 a second.
func (d *Detector) Count(key string, bytes int, now time.Time) {
	every := d.sampling.every.Load()
	if every > 1 && !drawn(every) { // where reads are many that is all
		return
	}
	d.sampling.count(now)
	d.observe(key, float64(every), 1+float64(bytes)/d.unit, now)
}

// observe counts one read that stands for every, each of which counts as units.
func (d *Detector) observe(key string, every, units float64, now time.Time) bool {
	hash := maphash.String(d.seed, key)
	s := &d.shards[hash>>d.shift] // a shift by 64 gives 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	i, ok := s.table.index[key]
	if !ok {
		return s.observeUnnamed(d, key, hash, every, units)
	}
	n := &s.table.names[i]
	n.seen += every * units * s.clock.weight
	n.sampled(every * s.clock.weight)
	return s.judge(n)
}

// Pin makes keys hot whatever their rates, until Unpin. Pinning is for a few keys that are known beforehand: each call copies the set.
func (d *Detector) Pin(keys ...string) {
	d.changePins(func(pins map[string]struct{}) {
		for _, k := range keys {
			pins[k] = struct{}{}
		}
	})
}

// Unpin takes pins back; a key that is not pinned is no error.
func (d *Detector) Unpin(keys ...string) {
	d.changePins(func(pins map[string]struct{}) {
		for _, k := range keys {
			delete(pins, k)
		}
	})
}

func (d *Detector) changePins(change func(pins map[string]struct{})) {
	for {
		old := d.pins.Load()
		pins := make(map[string]struct{})
		if old != nil {
			maps.Copy(pins, *old)
		}
		if change(pins); d.pins.CompareAndSwap(old, &pins) {
			return
		}
	}
}

func (d *Detector) pinned(key string) bool {
	pins := d.pins.Load()
	if pins == nil {
		return false
	}
	_, is := (*pins)[key]
	return is
}

// Hot reports whether key is hot at now, or pinned, without counting a read.
func (d *Detector) Hot(key string, now time.Time) bool {
	if d.pinned(key) {
		return true
	}
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
	all := d.List(nil, d.list, now)
	slices.SortFunc(all, func(a, b KeyRate) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))]
}

// List appends to a slice the keys that have a name and whose rate is at least so many reads a second, in no order. It is Top for those who look often: some
// 20 us with the default capacity, and no allocation where there is room.
func (d *Detector) List(to []KeyRate, least float64, now time.Time) []KeyRate {
	every := d.sampling.every.Load()
	for i := range d.shards {
		to = d.shards[i].list(to, least, every, now)
	}
	return to
}
