// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"sync/atomic"
	"unsafe"
)

// tally counts hits and misses, all of them. It is what a hit writes to, so it is spread over cache lines: on one that all processors write to a
// count takes many times as long. Goroutines find a line by where their stack is, which costs nothing; that two
// share one, by chance, makes both slower and nothing wrong.
type tally struct {
	lanes [1 << laneBits]lane
}

const (
	laneBits  = 5
	stackBits = 11 // stacks begin at multiples of 2 KiB at least
)

type lane struct {
	hits, misses atomic.Uint64
	_            [112]byte // two lines: processors fetch them in pairs
}

func (t *tally) lane() *lane {
	var here byte
	at := uint64(uintptr(unsafe.Pointer(&here))) >> stackBits //nolint:gosec // a number, never a pointer again
	return &t.lanes[at*0x9E3779B97F4A7C15>>(64-laneBits)]     // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4)
}

func (t *tally) hit()  { t.lane().hits.Add(1) }
func (t *tally) miss() { t.lane().misses.Add(1) }

func (t *tally) sum() (hits, misses uint64) {
	for i := range t.lanes {
		hits += t.lanes[i].hits.Load()
		misses += t.lanes[i].misses.Load()
	}
	return hits, misses
}
