// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// exact is the detector without bounds and without steps: one decaying count for each key there ever was.
type exact struct {
	halfLife time.Duration
	counts   map[string]exactCount
}

type exactCount struct {
	count float64
	at    time.Time
	peak  float64 // highest rate there was
}

func newExact(halfLife time.Duration) *exact {
	return &exact{halfLife: halfLife, counts: map[string]exactCount{}}
}

func (e *exact) rate(key string, now time.Time) float64 {
	c := e.counts[key]
	return c.count * math.Exp2(-float64(now.Sub(c.at))/float64(e.halfLife)) * math.Ln2 / e.halfLife.Seconds()
}

func (e *exact) observe(key string, now time.Time) (peak float64) {
	c := e.counts[key]
	c.count = c.count*math.Exp2(-float64(now.Sub(c.at))/float64(e.halfLife)) + 1
	c.at = now
	c.peak = max(c.peak, c.count*math.Ln2/e.halfLife.Seconds())
	e.counts[key] = c
	return c.peak
}

// tolerance is what cutting time into steps may cost, and float32 on top of it.
const tolerance = 1.0111

// On traces of every kind and with tables and sketches that are far too small: what is counted under a name is never
// above the truth, the rank and the sketch are never below it, and so no key is ever called hot that was not.
func TestBoundsOnBothSides(t *testing.T) {
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 3))
		cfg := Config{
			Enter:       []float64{3, 20, 100}[rng.IntN(3)],
			HalfLife:    []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second}[rng.IntN(3)],
			Capacity:    []int{1, 4, 64, 300}[rng.IntN(4)],
			SketchWidth: []int{64, 256, 4096}[rng.IntN(3)],
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { boundsOnBothSides(t, cfg, rng) })
	}
}

func boundsOnBothSides(t *testing.T, cfg Config, rng *rand.Rand) {
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	twin := newExact(cfg.HalfLife)
	zipf := rand.NewZipf(rng, 1.01+rng.Float64(), 1, 2000)
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 12_000 {
		key := fmt.Sprint("k", zipf.Uint64())
		now = now.Add(time.Duration(rng.ExpFloat64() * float64(500*time.Microsecond)))
		if rng.IntN(2000) == 0 { // now and then a pause, short or longer than the clock's whole scale
			now = now.Add(time.Duration(rng.IntN(40)) * cfg.HalfLife)
		}
		hot := d.Observe(key, now)
		if peak := twin.observe(key, now); hot && peak*tolerance < cfg.Enter {
			t.Fatalf("read %d: %q is hot at Enter %v, its rate was never above %v", i, key, cfg.Enter, peak)
		}
		if hot && twin.rate(key, now)*tolerance < cfg.Enter/2 {
			t.Fatalf("read %d: %q is hot at %v, which is below Leave", i, key, twin.rate(key, now))
		}
		if i%500 == 0 {
			check(t, d)
			compareAll(t, d, twin, now)
		}
	}
}

// compareAll holds every key against the truth.
func compareAll(t *testing.T, d *Detector, twin *exact, now time.Time) {
	t.Helper()
	for key := range twin.counts {
		hash := maphash.String(d.seed, key)
		s := &d.shards[hash>>d.shift]
		s.advance(now)
		want := twin.rate(key, now)
		upper := s.clock.rate(float64(s.sketch.estimate(hash)))
		if at, ok := s.table.index[key]; ok {
			n := &s.table.names[at]
			upper = s.clock.rate(n.rank())
			if lower := s.clock.rate(n.seen); lower > want*tolerance+1e-6 {
				t.Fatalf("%q: %v counted under its name, true is %v", key, lower, want)
			}
		}
		if upper*tolerance+1e-4 < want {
			t.Fatalf("%q: upper bound %v, true is %v", key, upper, want)
		}
	}
}

// Whatever passes through, a detector's parts keep the size they were made with.
func TestFixedSize(t *testing.T) {
	for _, cfg := range []Config{{}, {Capacity: 1}, {Capacity: 100_000 / 2}, {SketchWidth: 64}, {Capacity: 65, SketchWidth: 1 << 16}} {
		d, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg, _ = cfg.withDefaults()
		cells, names := 0, 0
		for i := range d.shards {
			cells += len(d.shards[i].sketch.cells)
			names += cap(d.shards[i].table.names)
		}
		if cells != sketchRows*cfg.SketchWidth {
			t.Errorf("%+v: %d counters", cfg, cells)
		}
		if names > cfg.Capacity || names < cfg.Capacity-len(d.shards) {
			t.Errorf("%+v: room for %d names", cfg, names)
		}
	}
}

// The clock's weights are those of the formula, across the points at which it starts a new scale.
func TestClock(t *testing.T) {
	const halfLife = time.Second
	start := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, stride := range []time.Duration{time.Millisecond, 40 * time.Millisecond, 999 * time.Millisecond, 31 * time.Second, 33 * time.Second} {
		c := newClock(halfLife)
		c.advance(start)
		count := 1.0 // one read at start
		for i := range 3000 {
			passed := time.Duration(i) * stride
			count *= c.advance(start.Add(passed))
			want := math.Exp2(-passed.Seconds())
			got := count / c.weight
			if want < 1e-300 {
				break
			}
			if got > want*tolerance || got < want/tolerance {
				t.Fatalf("stride %v: after %v a read counts %v, want %v", stride, passed, got, want)
			}
		}
	}
}

// Keys that share the sketch are estimated too high by no more than the reads that fall on a counter.
func TestSketchError(t *testing.T) {
	const width, keys = 1024, 8 * 1024
	rng := rand.New(rand.NewPCG(1, 1))
	s := newSketch(width)
	hashes := make([]uint64, keys)
	for i := range hashes {
		hashes[i] = rng.Uint64()
		s.add(hashes[i], 1)
	}
	sum := 0.0
	for _, h := range hashes {
		sum += float64(s.estimate(h)) - 1
	}
	if mean := sum / keys; mean > keys/width {
		t.Errorf("estimates are too high by %.1f on average, want at most %d", mean, keys/width)
	}
}

// Cold keys get no names while the sketch can keep them apart, however long the clock has run.
func TestColdKeysGetNoNames(t *testing.T) {
	d, err := New(Config{Enter: 1000, HalfLife: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 250_000 { // 50 half-lives
		now = now.Add(20 * time.Microsecond)
		d.Observe(fmt.Sprint("cold", i), now)
	}
	for i := range d.shards {
		if n := len(d.shards[i].table.names); n != 0 {
			t.Errorf("shard %d: %d names", i, n)
		}
	}
}
