// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"runtime/metrics"
	"time"
)

// starved tells how short of processors this process is: by how long goroutines wait to run, as the runtime counts it (runtime/metrics, /sched/latencies:seconds; one in eight is
// counted). A reply is taken as long as it waits for that too, and no other connection will be quicker.
//
// Not safe for concurrent use. Reading costs some microseconds.
type starved struct {
	sample [1]metrics.Sample
	before []uint64 // the counts at the last call
}

// share is which part of the goroutines that have become ready since the last call had to wait for longer than limit, roughly; 0 at the first call, and where none has.
func (s *starved) share(limit time.Duration) float64 {
	s.sample[0].Name = "/sched/latencies:seconds"
	metrics.Read(s.sample[:])
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0 // a runtime that does not count it
	}
	h := s.sample[0].Value.Float64Histogram()
	first := len(s.before) != len(h.Counts)
	if first {
		s.before = make([]uint64, len(h.Counts))
	}
	var all, long uint64
	for i, n := range h.Counts {
		all += n - s.before[i]
		if h.Buckets[i] >= limit.Seconds() {
			long += n - s.before[i]
		}
		s.before[i] = n
	}
	if first || all == 0 {
		return 0
	}
	return float64(long) / float64(all)
}
