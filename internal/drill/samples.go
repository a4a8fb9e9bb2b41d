// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"time"
)

// ending is how a read ended.
type ending uint8

const (
	fromL1      ending = iota // this process's own copy
	fromNode                  // the owner
	fromReplica               // a replica of it
	fromStale                 // a copy past its time, since nothing else answered
	fromLoad                  // the database, by this read or one that it joined
	refused                   // ErrOverloaded
	failed                    // any other error
)

// sample is one read.
type sample struct {
	at   time.Duration // when it was due, since the traffic began
	took time.Duration // from then to its answer: what its user has waited
	late time.Duration // of that, before it was begun: the machine's fault, or that of whoever took its cores
	age  time.Duration // of the answer
	rank int32         // of its key, the most popular first
	node int16         // the number of the node that owns its key
	from int16         // the same of the node that was asked, which is another one in the gutter; -1: none was
	end  ending
}

// hit says that the cache has spared the database this read.
func (s *sample) hit() bool { return s.end <= fromStale }

// fresh says that the cache had an entry that was within its time.
func (s *sample) fresh() bool { return s.end < fromStale }

// answered says that the user has got a value.
func (s *sample) answered() bool { return s.end <= fromLoad }

// span is a part of a run, from its begin to before its end.
type span struct{ from, to time.Duration }

// parts are n spans of that width, one behind the other; none where n is negative.
func parts(from, width time.Duration, n int) []span {
	all := make([]span, max(n, 0))
	for i := range all {
		all[i] = span{from + time.Duration(i)*width, from + time.Duration(i+1)*width}
	}
	return all
}

// in are the samples that were due in a span. all is sorted by that.
func in(all []sample, s span) []sample {
	find := func(t time.Duration) int {
		i, _ := slices.BinarySearchFunc(all, t, func(e sample, t time.Duration) int { return int(e.at - t) })
		return i
	}
	return all[find(s.from):max(find(s.from), find(s.to))]
}

// count counts.
func count(all []sample, is func(*sample) bool) (n int) {
	for i := range all {
		if is(&all[i]) {
			n++
		}
	}
	return n
}

// share is the part of the samples for which is holds; of none it is 0.
func share(all []sample, is func(*sample) bool) float64 {
	if len(all) == 0 {
		return 0
	}
	return float64(count(all, is)) / float64(len(all))
}

// quantile is the nearest rank: the time that a share q of the samples does not exceed; of none it is 0. value says which time of a sample.
func quantile(all []sample, q float64, value func(*sample) time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	times := make([]time.Duration, len(all))
	for i := range all {
		times[i] = value(&all[i])
	}
	slices.Sort(times)
	rank := int(q*float64(len(times))+0.999999) - 1
	return times[min(max(rank, 0), len(times)-1)]
}

func took(s *sample) time.Duration { return s.took }
func late(s *sample) time.Duration { return s.late }

// medianOf is the middle one of what of gives for each span; of an even number the larger of the two.
func medianOf[T float64 | time.Duration](spans []span, of func(span) T) T {
	values := make([]T, 0, len(spans))
	for _, s := range spans {
		values = append(values, of(s))
	}
	return median(values)
}

func median[T float64 | time.Duration](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
