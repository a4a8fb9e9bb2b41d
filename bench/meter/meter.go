// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package meter runs an operation again and again for a while, in several goroutines, and says what that took: wall time, this process's processor
// time, allocations, and how long single operations were.
//
// It knows nothing of caches. What is measured with it runs in a process of its own (package child), so that processor time and allocations are those of one
// library and of nothing else.
package meter

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Plan says how an operation is to be measured.
type Plan struct {
	// For is how long it is repeated. An operation that has begun is finished, and each goroutine begins one.
	For time.Duration
	// Goroutines do it at once; 0 means 1.
	Goroutines int
	// Procs is GOMAXPROCS meanwhile; 0 leaves it.
	Procs int
	// TimeEvery says that every so many calls one is timed, which costs two readings of the clock (some 100 ns here); 0 times none.
	TimeEvery int
	// Spin is for how many nanoseconds a core is kept busy for each operation besides: the slow-down of a self-test.
	Spin float64
}

// Slot is what was measured.
type Slot struct {
	Ops     int64         // operations that succeeded
	Failed  int64         // those that did not
	Error   string        // the first of their errors
	Wall    time.Duration // from the start of the goroutines to the end of the last
	CPU     time.Duration // user and system time of the whole process, its runtime included
	Kernel  time.Duration // the system time of that: calls of the kernel, the network's most of all
	Mallocs uint64        // allocations of the whole process
	Bytes   uint64        // their size
	P50     time.Duration // of the calls that were timed; 0 where none was
	P99     time.Duration

	// Filled in by who knows of them:
	Loads       int64         // how often the source was asked
	Load        time.Duration // how long that took, the median
	Connections int           // sockets that are open at the end; 0 where that cannot be known
	Warmed      int64         // operations of the warm-up before
	Servers     time.Duration // processor time of all servers, for these and for those of the warm-up
}

// Op does one or more operations and says how many. It is called by one goroutine only; turn is that goroutine's own.
type Op func(ctx context.Context, turn *Turn) (n int, err error)

// maxFailed is the share of operations above which a slot is no measurement.
const maxFailed = 0.01

// Measure runs what newOp makes for each goroutine, and returns when all have ended. The garbage of before is collected first. Not for concurrent use: the figures
// are the process's.
func Measure(ctx context.Context, p Plan, newOp func(goroutine int) Op) (Slot, error) {
	if p.For <= 0 {
		return Slot{}, fmt.Errorf("meter: Plan.For is %v: must be above 0", p.For)
	}
	if p.Procs > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(p.Procs))
	}
	lanes := make([]lane, max(p.Goroutines, 1))
	for i := range lanes {
		lanes[i] = newLane(i, p, len(lanes), newOp(i))
	}
	runtime.GC()
	var s Slot
	before := read()
	began := time.Now()
	var stop atomic.Bool
	timer := time.AfterFunc(p.For, func() { stop.Store(true) })
	defer timer.Stop()
	var wg sync.WaitGroup
	for i := range lanes {
		wg.Go(func() { lanes[i].run(ctx, &stop) })
	}
	wg.Wait()
	s.Wall = time.Since(began)
	read().since(before, &s)
	return s, gather(ctx, lanes, &s)
}

// gather adds up what the goroutines have counted.
func gather(ctx context.Context, lanes []lane, s *Slot) error {
	var took []time.Duration
	for i := range lanes {
		l := &lanes[i]
		s.Ops += l.ops
		s.Failed += l.failed
		if s.Error == "" && l.err != nil {
			s.Error = l.err.Error()
		}
		took = append(took, l.took...)
	}
	if len(took) > 0 {
		slices.Sort(took)
		s.P50, s.P99 = took[len(took)/2], took[len(took)*99/100]
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case float64(s.Failed) > maxFailed*float64(s.Ops):
		return fmt.Errorf("meter: %d of %d operations failed, the first: %s", s.Failed, s.Ops+s.Failed, s.Error)
	}
	return nil
}

// lane is one goroutine's part. Its counters are its own until it has ended.
type lane struct {
	op     Op
	plan   Plan
	turn   Turn
	ops    int64
	failed int64
	err    error
	took   []time.Duration
	calls  int
	timed  int
	_      [64]byte // two lanes do not share a cache line
}

// samples is how many durations all goroutines together keep: when a lane has its share, the oldest go.
const samples = 1 << 16

func newLane(i int, p Plan, lanes int, op Op) lane {
	l := lane{op: op, plan: p, turn: Turn{state: 0x9E3779B97F4A7C15 * uint64(i+1)}}
	if p.TimeEvery > 0 {
		l.took = make([]time.Duration, 0, samples/lanes)
	}
	return l
}

// run makes one call at least: on a busy machine the time may be over before the goroutine has begun.
func (l *lane) run(ctx context.Context, stop *atomic.Bool) {
	for l.calls == 0 || !stop.Load() {
		l.calls++
		var began time.Time
		timed := l.plan.TimeEvery > 0 && l.calls%l.plan.TimeEvery == 0
		if timed {
			began = time.Now()
		}
		n, err := l.op(ctx, &l.turn)
		if l.plan.Spin > 0 {
			l.turn.spin(l.plan.Spin * float64(n))
		}
		if timed {
			l.keep(time.Since(began))
		}
		if err == nil {
			l.ops += int64(n)
			continue
		}
		l.failed++
		if l.err == nil {
			l.err = err
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (l *lane) keep(d time.Duration) {
	if len(l.took) < cap(l.took) {
		l.took = append(l.took, d)
	} else {
		l.took[l.timed%len(l.took)] = d
	}
	l.timed++
}
