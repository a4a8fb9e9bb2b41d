// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// TestAbsences: a flood of random keys gets what the first bucket holds and no more; keys that are asked for again are remembered all the same; and both stay below the
// bound, whatever is asked.
func TestAbsences(t *testing.T) {
	const rate, burst, flood = 50, 500, 10_000 // keys a second
	a := stampede.NewAbsences(rate, burst)
	now, admitted := time.Now(), 0
	for i := range 60 * flood { // a minute
		if a.Admit(fmt.Sprint("random", i), now.Add(time.Duration(i)*time.Second/flood)) {
			admitted++
		}
	}
	if want := burst + 60*rate; admitted < want-1 || admitted > want {
		t.Errorf("%d of a flood of random keys are remembered, want %d", admitted, want)
	}
	now, admitted = now.Add(time.Minute), 0
	for i := range 100 {
		key := fmt.Sprint("wanted", i)
		a.Admit(key, now) // refused, or one of two that the bucket has by now
		if a.Admit(key, now) {
			admitted++
		}
	}
	if admitted < 98 {
		t.Errorf("%d of 100 keys that were asked for twice in a flood are remembered", admitted)
	}
	admitted = 0
	for i := range 60 * flood {
		if a.Admit(fmt.Sprint("twice", i/2), now.Add(time.Duration(i)*time.Second/flood)) {
			admitted++
		}
	}
	if most := 2 * (burst + 60*rate); admitted > most {
		t.Errorf("%d absences are remembered in a minute of keys that are asked for twice, at most %d may be", admitted, most)
	}
}

func TestAbsencesConcurrently(t *testing.T) {
	a := stampede.NewAbsences(1, 100)
	var wg sync.WaitGroup
	var mu sync.Mutex
	now, admitted := time.Now(), 0
	for range 4 {
		wg.Go(func() {
			for i := range 10_000 {
				if a.Admit(fmt.Sprint(i%5000), now) {
					mu.Lock()
					admitted++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if admitted != 200 {
		t.Errorf("%d admitted, want what both buckets hold: 200", admitted)
	}
}
