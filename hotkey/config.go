// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

import (
	"fmt"
	"math"
	"time"
)

const (
	defaultEnter       = 100
	defaultHalfLife    = time.Second
	defaultCapacity    = 1024
	defaultSketchWidth = 16384
	defaultByteUnit    = 4096

	minHalfLife    = time.Millisecond
	maxHalfLife    = 24 * time.Hour
	maxCapacity    = 1 << 16
	minSketchWidth = 64
	maxSketchWidth = 1 << 24

	// A shard below these would be full of names, or of collisions, by chance alone.
	minShardNames = 64
	minShardWidth = 64
	maxShards     = 64

	// A key is named when its estimate reaches Enter/nameAt. Smaller: names come earlier, but cold keys compete for
	// them as soon as the sketch's error is of that size.
	nameAt = 8
	// Names whose rate is below Enter/listAt are what is left of earlier days; Top leaves them out.
	listAt = 16
)

// Config says what hot means and how much memory may be spent on finding out. The zero value is ready to use.
type Config struct {
	// Enter is the rate, in reads a second, at which a key becomes hot. 0 means 100. Values below ln 2 / HalfLife
	// (0.7 by default) make a key hot at its first read.
	Enter float64

	// Leave is the rate below which a hot key stops being hot. 0 means Enter/2; it must not be above Enter. The
	// distance is there because rates that are measured in a second waver (see HalfLife), and a key that
	// is hot one moment and not the next costs more than either.
	Leave float64

	// HalfLife is the time after which a read counts half. 0 means 1 s; otherwise 1 ms to 24 h. What it means:
	//   - memory: a key that is no longer read measures half its rate after one half-life, a thousandth after ten.
	//     A key read at 100 times Leave is forgotten after 6.6 half-lives;
	//   - delay: a key that starts at x times Enter is hot after log2(x/(x-1)) half-lives and the time it takes to be
	//     named, log2(8x/(8x-1)). That is 3.6 half-lives at 1.1 times Enter, 1.1 at twice, 0.17 at ten times;
	//   - noise: reads that come at random at rate r measure r with a standard deviation of sqrt(r*ln2/(2*HalfLife)):
	//     100 +- 5.9 a second by default. Reads at even distances waver by half a read's worth, 0.35/HalfLife.
	HalfLife time.Duration

	// Capacity is the most keys that are tracked by name, and so the most that can be hot at once. 0 means 1,024; at
	// most 65,536. Each takes some 150 bytes and its key.
	Capacity int

	// SketchWidth is the number of counters in each of the sketch's four rows, a power of two from 64 to 16,777,216.
	// 0 means 16,384; memory is 16 bytes times the width (256 KiB by default). When the keys without a name are read
	// T times a second in all, their estimates are too high by about T/SketchWidth. Above Enter/8 cold keys start to
	// compete for names: with the defaults at T = 200,000. Then it should be larger, or reads be counted by [Detector.Count], which draws samples.
	SketchWidth int

	// ByteUnit is how many bytes of a value count as one more read ([Detector.Count]): a value of 512 KiB that is read twice a second can hurt more than one of 100
	// bytes that is read a hundred times. 0 means 4,096.
	ByteUnit int
}

// withDefaults checks cfg and replaces zeros by the documented defaults.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Enter == 0 {
		cfg.Enter = defaultEnter
	}
	if cfg.Leave == 0 {
		cfg.Leave = cfg.Enter / 2
	}
	if cfg.HalfLife == 0 {
		cfg.HalfLife = defaultHalfLife
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = defaultCapacity
	}
	if cfg.SketchWidth == 0 {
		cfg.SketchWidth = defaultSketchWidth
	}
	if cfg.ByteUnit == 0 {
		cfg.ByteUnit = defaultByteUnit
	}
	return cfg, cfg.validate()
}

func (cfg Config) validate() error {
	switch {
	case !(cfg.Enter > 0) || math.IsInf(cfg.Enter, 1): // written so that it is true for NaN
		return fmt.Errorf("hotkey: Enter is %v: must be a positive number", cfg.Enter)
	case !(cfg.Leave > 0):
		return fmt.Errorf("hotkey: Leave is %v: must be a positive number", cfg.Leave)
	case cfg.Leave > cfg.Enter:
		return fmt.Errorf("hotkey: Leave is %v: must not be above Enter (%v)", cfg.Leave, cfg.Enter)
	case cfg.HalfLife < minHalfLife || cfg.HalfLife > maxHalfLife:
		return fmt.Errorf("hotkey: HalfLife is %v: must be from %v to %v", cfg.HalfLife, minHalfLife, maxHalfLife)
	case cfg.Capacity < 0 || cfg.Capacity > maxCapacity:
		return fmt.Errorf("hotkey: Capacity is %d: must be from 1 to %d", cfg.Capacity, maxCapacity)
	case cfg.ByteUnit < 0:
		return fmt.Errorf("hotkey: ByteUnit is %d: must not be negative", cfg.ByteUnit)
	case cfg.SketchWidth < minSketchWidth || cfg.SketchWidth > maxSketchWidth || cfg.SketchWidth&(cfg.SketchWidth-1) != 0:
		return fmt.Errorf("hotkey: SketchWidth is %d: must be a power of two from %d to %d",
			cfg.SketchWidth, minSketchWidth, maxSketchWidth)
	}
	return nil
}

// shardBits is the logarithm of the number of shards: as many as leave each its least number of names and counters.
func (cfg Config) shardBits() int {
	bits := 0
	for n := 2; n <= maxShards && cfg.Capacity/n >= minShardNames && cfg.SketchWidth/n >= minShardWidth; n *= 2 {
		bits++
	}
	return bits
}
