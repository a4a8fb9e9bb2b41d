// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"os"
	"sync"
	"testing"
	"time"
)

// note notes n commands that took d.
func (p *pace) note(n int, d time.Duration) { p.counts[bucketOf(d)].Add(uint32(n)) }

// unhindered is a process in which nothing waits for a processor.
func unhindered(time.Duration) float64 { return 0 }

// TestPatienceOfAStarvedProcess: late replies say nothing of a node where the process's own goroutines wait as long to run.
func TestPatienceOfAStarvedProcess(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		waits float64
		limps bool
	}{{0, true}, {0.02, true}, {0.11, false}, {0.5, false}} {
		p := &pace{timeout: 50 * ms, waits: func(limit time.Duration) float64 {
			if limit != minSlow {
				t.Errorf("asked for waits of %v", limit)
			}
			return tc.waits
		}}
		for range 10 {
			p.note(900, ms/4)
			p.note(100, 45*ms)
			p.roll()
		}
		if limps := p.patience() > 0; limps != tc.limps {
			t.Errorf("one reply of ten is late, and %v of the goroutines wait as long: limps %v", tc.waits, limps)
		}
	}
}

// TestStarved: the share of goroutines that wait for a processor is about none in an idle process, and most in one with far more work than processors.
func TestStarved(t *testing.T) {
	var s starved
	if got := s.share(time.Millisecond); got != 0 {
		t.Errorf("at first: %v", got)
	}
	// Each of so many goroutines works for a while when its turn comes; all become ready at once.
	start := make(chan struct{})
	var wg sync.WaitGroup
	for range 2000 {
		wg.Go(func() {
			<-start
			for end := time.Now().Add(100 * time.Microsecond); time.Now().Before(end); {
			}
		})
	}
	time.Sleep(10 * time.Millisecond) // all are at the gate, or nearly all
	s.share(time.Millisecond)
	close(start)
	wg.Wait()
	if got := s.share(time.Millisecond); got < 0.3 {
		t.Errorf("2,000 goroutines with 0.1 ms of work each: %v waited for longer than 1 ms", got)
	}
	if got := s.share(time.Hour); got != 0 {
		t.Errorf("%v waited for longer than an hour", got)
	}
}

func TestBuckets(t *testing.T) {
	for i := range unanswered - 1 {
		end := bucketEnd(i)
		if bucketOf(end-1) != i || bucketOf(end) != i+1 {
			t.Fatalf("bucket %d ends at %v: before it is %d, there %d", i, end, bucketOf(end-1), bucketOf(end))
		}
	}
	if bucketOf(-1) != 0 || bucketOf(time.Hour) != unanswered-1 {
		t.Error(bucketOf(-1), bucketOf(time.Hour))
	}
}

func TestPatience(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name  string
		note  func(p *pace)
		least time.Duration // of the patience; 0: there is none
	}{
		{"nothing", func(*pace) {}, 0},
		{"all alike", func(p *pace) { p.note(1000, ms/2) }, 0},
		{"all slow", func(p *pace) { p.note(1000, 30*ms) }, 0},
		{"one of ten", func(p *pace) { p.note(900, ms/2); p.note(100, 50*ms) }, minSlow * 2 / 3},
		{"one of ten, of a node that takes 2 ms", func(p *pace) { p.note(900, 2*ms); p.note(100, 50*ms) }, 8 * ms},
		{"one of ten, though it takes 5 ms", func(p *pace) { p.note(900, 5*ms); p.note(100, 50*ms) }, 20 * ms},
		{"one of ten, but the timeout is not longer", func(p *pace) { p.note(900, 15*ms); p.note(100, 50*ms) }, 0},
		{"nearly half", func(p *pace) { p.note(520, ms/2); p.note(480, 50*ms) }, minSlow * 2 / 3},
		{"more than half", func(p *pace) { p.note(480, ms/2); p.note(520, 50*ms) }, 0},
		{"two of twenty", func(p *pace) { p.note(18, ms/2); p.note(2, 50*ms) }, 0},
		{"three of twenty", func(p *pace) { p.note(17, ms/2); p.note(3, 50*ms) }, minSlow * 2 / 3},
		{"one of a thousand", func(p *pace) { p.note(9990, ms/2); p.note(10, 50*ms) }, 0},
		{"short of the least patience", func(p *pace) { p.note(900, ms/4); p.note(100, 2*ms) }, 0},
	} {
		p := &pace{timeout: 50 * ms, waits: unhindered}
		tc.note(p)
		p.roll()
		if got := p.patience(); got < tc.least || got > tc.least*3/2 {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.least)
		}
	}
}

// TestPatienceFollows: it comes with the tail, stays while some are slow, and goes when none has been for some seconds, or when all are.
func TestPatienceFollows(t *testing.T) {
	const ms = time.Millisecond
	p := &pace{timeout: 50 * ms, waits: unhindered}
	beats := func(fast, slow int, until func() bool) time.Duration {
		t.Helper()
		for i := range 1000 {
			if until() {
				return time.Duration(i) * beatEvery
			}
			p.note(fast, ms/2)
			p.note(slow, 50*ms)
			p.roll()
		}
		t.Fatal("never")
		return 0
	}
	limps := func() bool { return p.patience() > 0 }
	healthy := func() bool { return !limps() }
	for range 20 {
		p.note(100, ms/2)
		p.roll()
	}
	if took := beats(90, 10, limps); took > time.Second {
		t.Errorf("it took %v to see that one of ten is slow", took)
	}
	for range 40 {
		p.note(199, ms/2)
		p.note(1, 50*ms)
		p.roll()
		if healthy() {
			t.Fatal("one of 200 is slow, and it is forgotten")
		}
	}
	if took := beats(100, 0, healthy); took > 10*time.Second {
		t.Errorf("it took %v to see that none is slow any more", took)
	}
	beats(90, 10, limps)
	if took := beats(0, 100, healthy); took > 2*time.Second {
		t.Errorf("it took %v to see that all are slow", took)
	}
}

func TestPaceCountsWhatWasAnswered(t *testing.T) {
	p := &pace{timeout: time.Second}
	sent := time.Now().Add(-100 * time.Millisecond)
	p.ended(sent, nil)
	p.ended(sent, &Error{Err: os.ErrDeadlineExceeded})
	for _, err := range []error{errEOF, &Error{Err: ErrRunChanged}, &Error{Err: ErrDown}, &Error{Err: plainReply("OOM")}} {
		p.ended(sent, err)
	}
	total := uint32(0)
	for i := range p.counts {
		total += p.counts[i].Load()
	}
	if total != 2 {
		t.Errorf("%d counted, want the answer and the timeout", total)
	}
}

// TestWait: how long a reply is waited for follows the slowest of a hundred, between two fifths of the timeout and all of it.
func TestWait(t *testing.T) {
	const ms = time.Millisecond
	silent := &Error{Err: os.ErrDeadlineExceeded}
	for _, tc := range []struct {
		name string
		note func(p *pace)
		want time.Duration
	}{
		{"nothing", func(*pace) {}, 50 * ms},
		{"too few", func(p *pace) { p.note(enoughTail-1, ms/2) }, 50 * ms},
		{"quick", func(p *pace) { p.note(enoughTail, ms/2) }, 20 * ms},
		{"one of a thousand is slow", func(p *pace) { p.note(999, ms/2); p.note(1, 49*ms) }, 20 * ms},
		{"a few of a thousand", func(p *pace) { p.note(985, 5*ms); p.note(15, 8*ms) }, 32 * ms},
		{"a few are as slow as can be", func(p *pace) { p.note(985, 5*ms); p.note(15, 49*ms) }, 50 * ms},
		{"all are", func(p *pace) { p.note(1000, 49*ms) }, 50 * ms},
		{"some have no answer: that says nothing of those that have", func(p *pace) {
			p.note(960, ms/2)
			for range 40 {
				p.ended(time.Now(), silent)
			}
		}, 20 * ms},
		{"a tenth is slow: callers ask anew", func(p *pace) { p.note(900, ms/2); p.note(100, 8*ms); p.most.Store(1) }, 32 * ms},
	} {
		p := &pace{timeout: 50 * ms, waits: unhindered}
		tc.note(p)
		p.roll()
		if got := p.wait(); got < tc.want || got > tc.want*5/4 {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestWaitFollows: a node that becomes slow, and still answers in time, is waited for within two heartbeats; one that is quick again is not, some ten seconds later.
func TestWaitFollows(t *testing.T) {
	const ms = time.Millisecond
	p := &pace{timeout: 50 * ms, waits: unhindered}
	beats := func(took time.Duration, until time.Duration) (n int) {
		for ; p.wait() != until; n++ {
			if n == 1000 {
				t.Fatalf("replies take %v, and it never waits %v", took, until)
			}
			p.note(100, took)
			p.roll()
		}
		return n
	}
	beats(ms, 20*ms)
	for range 100 {
		p.note(100, ms)
		p.roll()
	}
	if n := beats(30*ms, 50*ms); n > 2 {
		t.Errorf("it took %d heartbeats to wait for a slow node", n)
	}
	if n := beats(ms, 20*ms); n > 60 {
		t.Errorf("it took %d heartbeats to forget one slow one", n)
	}
}
