// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import "time"

const (
	// windowSlots of slotLength are what the share of failures is taken over: two seconds.
	windowSlots = 8
	slotLength  = 250 * time.Millisecond
)

// window counts what came of the operations of the last two seconds. Not safe for concurrent use.
type window struct {
	slots [windowSlots]struct {
		number  int64 // of the time that it counts, since the epoch
		ok, bad int
	}
}

// add counts one operation that ended at now.
func (w *window) add(now time.Time, ok bool) {
	number := now.UnixNano() / int64(slotLength)
	s := &w.slots[number%windowSlots]
	if s.number != number {
		s.number, s.ok, s.bad = number, 0, 0
	}
	if ok {
		s.ok++
	} else {
		s.bad++
	}
}

// sum is what was counted in the two seconds before now, and in how many slots there are failures.
func (w *window) sum(now time.Time) (ok, bad, slots int) {
	oldest := now.UnixNano()/int64(slotLength) - windowSlots + 1
	for _, s := range w.slots {
		if s.number >= oldest {
			ok, bad = ok+s.ok, bad+s.bad
			if s.bad > 0 {
				slots++
			}
		}
	}
	return ok, bad, slots
}
