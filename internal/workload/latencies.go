// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Latencies is a histogram of durations, from which quantiles are read. The zero
// value is empty and ready; it takes 36 KiB, must not be copied, and is safe for
// concurrent use.
//
// Its buckets are those of an HDR histogram: each doubling of the duration is
// divided into 128 equal parts, so a quantile is within 0.4 % of a recorded
// duration of that rank, from 1 ns to 73 min; below 256 ns it is exact. What is
// longer counts as 73 min, except in Max and Mean, which are exact always.
//
// Record costs three or four atomic additions (some 50 ns) and no allocation. A
// quantile that is read while others record is that of some recordings up to now.
type Latencies struct {
	buckets [bucketCount]atomic.Uint64
	sum     atomic.Uint64 // nanoseconds
	max     atomic.Int64  // nanoseconds
}

const (
	partBits    = 7 // 128 parts a doubling
	parts       = 1 << partBits
	rangeBits   = 42               // up to 2^42 ns
	longest     = 1<<rangeBits - 1 // the end of the last bucket
	bucketCount = parts * (rangeBits - partBits + 1)
)

// Record adds one duration; a negative one counts as 0.
func (l *Latencies) Record(d time.Duration) {
	d = max(d, 0)
	l.buckets[bucketOf(d)].Add(1)
	l.sum.Add(uint64(d))
	l.raiseMax(int64(d))
}

func (l *Latencies) raiseMax(ns int64) {
	for {
		seen := l.max.Load()
		if ns <= seen || l.max.CompareAndSwap(seen, ns) {
			return
		}
	}
}

// Merge adds what other has recorded, as if it had been recorded here.
func (l *Latencies) Merge(other *Latencies) {
	for i := range other.buckets {
		if n := other.buckets[i].Load(); n > 0 {
			l.buckets[i].Add(n)
		}
	}
	l.sum.Add(other.sum.Load())
	l.raiseMax(other.max.Load())
}

// Count is the number of recorded durations.
func (l *Latencies) Count() uint64 {
	var n uint64
	for i := range l.buckets {
		n += l.buckets[i].Load()
	}
	return n
}

// Max is the longest recorded duration, exactly, or 0.
func (l *Latencies) Max() time.Duration { return time.Duration(l.max.Load()) }

// Mean is the average of the recorded durations, exactly, or 0. It overflows
// after a recorded total of 584 years.
func (l *Latencies) Mean() time.Duration {
	n := l.Count()
	if n == 0 {
		return 0
	}
	return time.Duration(l.sum.Load() / n)
}

// Quantile returns the duration that a share q of the recorded ones do not
// exceed (nearest rank: the ceil(q*n)-th smallest), within the error stated
// above. Quantile(0.99) is p99; q is brought into 0 to 1, and 1 gives Max.
// Without recordings it is 0. It costs some 30 us.
func (l *Latencies) Quantile(q float64) time.Duration {
	var counts [bucketCount]uint64 // one reading: the sum must be that of its parts
	var total uint64
	for i := range l.buckets {
		counts[i] = l.buckets[i].Load()
		total += counts[i]
	}
	if total == 0 {
		return 0
	}
	if q >= 1 {
		return l.Max()
	}
	rank := uint64(math.Ceil(max(q, 0) * float64(total)))
	rank = min(max(rank, 1), total)
	for i, n := range counts {
		if n >= rank {
			return min(middleOf(i), l.Max())
		}
		rank -= n
	}
	return l.Max() // not reached: rank is at most total
}

// bucketOf is the bucket of a duration. The first 256 buckets hold one nanosecond
// each; then every doubling has 128, each twice as wide as those of the doubling
// before.
func bucketOf(d time.Duration) int {
	v := min(uint64(d), longest)
	shift := max(bits.Len64(v)-partBits-1, 0)
	return shift*parts + int(v>>shift)
}

// middleOf is the middle of a bucket: off by half its width at most, which is
// 1/256 of its start.
func middleOf(bucket int) time.Duration {
	shift := max(bucket/parts-1, 0)
	start := uint64(bucket-shift*parts) << shift
	return time.Duration(start + (1<<shift)/2)
}
