// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

import (
	"hash/maphash"
	"math"
	"sync"
	"time"
)

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

// advance brings the shard's clock to now. From time to time the weights have grown so far that all counts are put
// back to the scale on which a read weighs 1.
func (s *shard) advance(now time.Time) {
	if shrink := s.clock.advance(now); shrink != 1 {
		s.sketch.scale(shrink)
		s.table.scale(shrink)
	}
}

// observeUnnamed counts reads in the sketch, and gives the key a name if its estimate says that it deserves one. The
// read itself is then the first that is counted under the name.
func (s *shard) observeUnnamed(d *Detector, key string, hash uint64, every, units float64) bool {
	w := s.clock.weight * every * units
	estimate := s.sketch.add(hash, w)
	if estimate < s.name*s.clock.weight {
		return false
	}
	n, lost, ok := s.table.admit(key, w, estimate-w)
	if !ok {
		return false
	}
	if lost.rank() > 0 { // somebody lost the name: back into the sketch, so that the key can earn it again
		s.sketch.raise(maphash.String(d.seed, lost.key), lost.rank())
	}
	n.sampled(every * s.clock.weight)
	return s.judge(n)
}

// judge says whether n is hot, and remembers it: which threshold counts depends on the last answer. Where one counted read stands for several, hotSamples of
// them are asked for as well, whatever their bytes.
func (s *shard) judge(n *name) bool {
	threshold, samples := s.enter, float64(hotSamples)
	if n.hot {
		threshold, samples = s.leave, samples*s.leave/s.enter
	}
	n.hot = n.seen >= threshold*s.clock.weight && (n.coarse <= s.clock.weight || n.reads >= samples*n.coarse)
	return n.hot
}

// list is Detector.List for one shard.
func (s *shard) list(to []KeyRate, least float64, every uint32, now time.Time) []KeyRate {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	for _, n := range s.table.names {
		if rate := s.clock.rate(n.seen); rate >= least {
			noise := 0.0
			if every > 1 {
				noise = math.Sqrt(rate * float64(every) * math.Ln2 / (2 * s.clock.halfLife.Seconds()))
			}
			to = append(to, KeyRate{Key: n.key, Rate: rate, AtMost: s.clock.rate(n.rank()), Noise: noise})
		}
	}
	return to
}
