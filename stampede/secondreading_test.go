// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// TestFetch_NoSecondReadingForNobody: a load that ignores its timeout ends at last, with less than the floor. It is not repeated: everybody has left, and what it would begin
// with its caller gone (a probe of a breaker) nobody would end if it hung once more.
func TestFetch_NoSecondReadingForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.shelf.floor, w.shelf.hasFloor = 2, true
		loads := 0
		_, err := stampede.Fetch(t.Context(), w.loop, w.shelf, stampede.Miss, nil, func(context.Context) (loaded, error) {
			loads++
			time.Sleep(time.Minute)
			return loaded{Entry: 1, Version: 1}, nil
		})
		if !errors.Is(err, stampede.ErrLoadTimeout) {
			t.Errorf("got %v", err)
		}
		mustClose(t, w.guard)
		if loads != 1 {
			t.Errorf("%d loads", loads)
		}
		w.idle(t)
	})
}
