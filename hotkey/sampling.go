// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	// The number of reads that Count really counts is held below some 100,000 a second: window by window the share is set anew.
	sampleWindow = 50 * time.Millisecond
	windowReads  = 5_000
	maxEvery     = 1 << 16

	// hotSamples is how many counted reads, at least, make a key hot where one stands for several. One counted read in a thousand stands for a thousand: the one that chance
	// gives to a cold key must not make it hot, however large its value, nor when the rush is over and all are counted again.
	hotSamples = 8
)

// sampling says which reads are counted: one in every, drawn at random, which then weighs every. So rates are right in the mean whatever every is, and the noise
// is that of Config.HalfLife with every times the variance.
type sampling struct {
	every   atomic.Uint32 // a power of two
	counted atomic.Int64  // in this window
	began   atomic.Int64  // when this window began, after base
	base    time.Time
}

// drawn says of one read in so many, at random, that it is counted. Nothing cheaper will do: a state of our own would be shared by all processors, and
// the time is the same for many reads where clocks are coarse.
func drawn(every uint32) bool { return uint32(rand.Uint64())&(every-1) == 0 }

// count notes that a read was counted, and sets every anew when the window is full or over. Of several callers that find it so one does it.
func (s *sampling) count(now time.Time) {
	reads, at, began := s.counted.Add(1), int64(now.Sub(s.base)), s.began.Load()
	passed := at - began
	if reads < windowReads && passed < int64(sampleWindow) || passed <= 0 || !s.began.CompareAndSwap(began, at) {
		return
	}
	s.counted.Store(0)
	// every times what it should have been: twice as much doubles it, and so on.
	want := float64(s.every.Load()) * float64(reads) / windowReads * float64(sampleWindow) / float64(passed)
	every := uint32(1)
	for float64(every) < want && every < maxEvery {
		every *= 2
	}
	s.every.Store(every)
}
