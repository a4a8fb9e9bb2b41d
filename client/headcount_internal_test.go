// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"testing"
	"time"
)

// TestHeadcount: more are believed at once, fewer after a minute and by a tenth each time; a look that shows more ends the wait.
func TestHeadcount(t *testing.T) {
	var h headcount
	now := time.Now()
	after := func(d time.Duration, counted, want int) {
		t.Helper()
		now = now.Add(d)
		if got := h.take(counted, now); got != want {
			t.Errorf("%d were counted: %d are believed, want %d", counted, got, want)
		}
	}
	const beat = 2 * time.Second
	after(0, 7, 7)
	after(beat, 100, 100)
	after(beat, 50, 100)
	for range 29 {
		after(beat, 50, 100)
	}
	after(beat, 50, 90) // a minute
	after(beat, 50, 81)
	after(beat, 50, 73)
	after(beat, 60, 66)
	after(beat, 50, 60) // not below what was seen meanwhile
	after(beat, 50, 60) // another minute for the rest
	after(time.Minute, 50, 54)
	after(beat, 50, 50)
	after(beat, 50, 50)
	after(beat, 101, 101)
	after(beat, 100, 101)
	after(time.Minute-1, 101, 101) // it was a mistake
	after(beat, 100, 101)
	after(time.Minute-1, 100, 101)
	after(1, 100, 100)
	after(beat, 1, 100)
	after(time.Minute, 2, 90)
	for range 40 { // 90 less a tenth, 34 times
		now = now.Add(beat)
		h.take(1, now)
	}
	if h.live != 2 {
		t.Errorf("%d are believed, want the 2 that were seen in the last minute", h.live)
	}
	after(time.Minute, 1, 1)
}
