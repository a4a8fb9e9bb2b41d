// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/stalecheck"
)

// TestRecorderKeepsItsPromise: nothing that is taken later began before what an earlier Take has promised.
func TestRecorderKeepsItsPromise(t *testing.T) {
	var rec stalecheck.Recorder
	var wg sync.WaitGroup
	const workers, each = 4, 2000
	for range workers {
		wg.Go(func() {
			for range each {
				op := rec.Begin()
				rec.Write(stalecheck.Write{Began: op.Began})
				rec.Invalidation(stalecheck.Invalidation{Began: op.Began})
				rec.Read(stalecheck.Read{Began: op.Began})
				op.End()
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	n, promised := 0, time.Duration(0)
	for last := false; !last; {
		select {
		case <-done:
			last = true
		default:
		}
		b := rec.Take()
		for i := range b.Reads {
			if b.Reads[i].Began < promised {
				t.Fatalf("a read began at %v, %v was promised", b.Reads[i].Began, promised)
			}
		}
		n += len(b.Reads) + len(b.Writes) + len(b.Invalidations)
		promised = max(promised, b.Upto)
	}
	if n != 3*workers*each {
		t.Errorf("%d records, want %d", n, 3*workers*each)
	}
}

// TestOpenOperationHoldsThePromise: as long as something is under way, what began with it may still come.
func TestOpenOperationHoldsThePromise(t *testing.T) {
	var rec stalecheck.Recorder
	op := rec.Begin()
	rec.Begin().End()
	if b := rec.Take(); b.Upto != op.Began {
		t.Errorf("promised %v, an operation is under way since %v", b.Upto, op.Began)
	}
	op.End()
	if b := rec.Take(); b.Upto <= op.Began {
		t.Errorf("promised %v after the end of what began at %v", b.Upto, op.Began)
	}
}

func TestClockGoesOn(t *testing.T) {
	began, at := time.Now(), stalecheck.Now()
	for time.Since(began) < 20*time.Millisecond {
		now := stalecheck.Now()
		if now < at {
			t.Fatalf("%v after %v", now, at)
		}
		at = now
	}
}
