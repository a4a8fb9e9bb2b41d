// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-shelf/shelf/internal/stalecheck"
)

// drill is one line of the table: what is struck, and what must be true of the run then.
type drill struct {
	name    string
	setting setting
	before  time.Duration // healthy traffic; 0: beforeTime
	lasts   time.Duration // the fault; 0: strikeTime
	after   time.Duration // its end; 0: afterTime
	every   time.Duration // between two calls of again; 0: none
	quick   bool          // it is in the short form

	// what breaks, and what mends it. again is called over and over in between.
	strike, again, heal func(w *world)

	checks []func(o *outcome) check
	// own runs a drill that has another course than the others.
	own func(ctx context.Context, cfg config, d *drill) (verdict, error)
}

// The usual times. Of the healthy part the last five windows count; of the fault the first second, and then five windows.
const (
	windows    = 5
	window     = time.Second
	beforeTime = 7 * time.Second
	strikeTime = time.Second + windows*window + time.Second
	afterTime  = 6 * time.Second
	pollEvery  = 100 * time.Millisecond // the database's counters
	readsLimit = 10 * time.Second       // for the last reads to be answered
)

// tick is what the database's counters said at a moment.
type tick struct {
	at      time.Duration
	queries uint64
	running int
}

// outcome is what a run has shown.
type outcome struct {
	config
	samples              []sample // by the time when they were due
	struck, healed, over time.Duration
	source               []tick
	highest              int // queries of the database at once: the most there were
	limit                int // the most that there may be
	report               stalecheck.Report
	errors               map[string]int
	targeted             int           // the number of the node that was struck
	size                 int           // how many nodes there are
	connects             int           // connections that were made in the fault
	loads                map[int]int   // of the hottest keys, by rank: the most in any second after the end of the fault
	ttl                  time.Duration // of the entries
	busy                 float64       // share of the machine that was used while all was healthy, by this process and the servers
}

// play runs a drill.
func play(ctx context.Context, cfg config, d *drill) (o *outcome, err error) {
	w, err := launch(ctx, d.setting, cfg)
	defer func() { err = errors.Join(err, w.close()) }() //nolint:contextcheck // also when ctx has ended
	if err != nil {
		return nil, err
	}
	o = &outcome{config: cfg, limit: loadCap, ttl: w.ttl, targeted: w.target(), size: w.nodes, loads: make(map[int]int)}
	if err := o.run(ctx, w, d); err != nil {
		return nil, err
	}
	o.collect(w)
	return o, nil
}

// run lets traffic go on while the fault comes and goes.
func (o *outcome) run(ctx context.Context, w *world, d *drill) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.began = time.Now()
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	w.stopWriting = stopWriting
	if err := w.traffic(ctx, writing, o.rate, o.seed); err != nil {
		return err
	}
	watched := make(chan error, 1)
	go func() { watched <- o.watch(ctx, w) }()
	defer func() { err = errors.Join(err, w.wait(), w.failed()) }()
	defer func() { err = errors.Join(err, <-watched) }() // first: what is told must be told in its order
	defer stop()

	o.healthy(ctx, w, o.scaled(or(d.before, beforeTime)))
	o.fault(ctx, w, d)
	o.aftermath(ctx, w, o.healed+o.scaled(or(d.after, afterTime)))
	o.over = time.Since(w.began)
	if ctx.Err() != nil {
		return fmt.Errorf("drill: cut short: %w", ctx.Err())
	}
	return nil
}

func or(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// healthy waits, and measures what the load takes of the machine.
func (o *outcome) healthy(ctx context.Context, w *world, lasts time.Duration) {
	pause(ctx, lasts/4) // connections are made, hot keys are found
	began, used := time.Now(), w.cpu(ctx)
	pause(ctx, lasts-lasts/4)
	o.busy = (w.cpu(ctx) - used).Seconds() / time.Since(began).Seconds() / cores()
}

// fault strikes and mends.
func (o *outcome) fault(ctx context.Context, w *world, d *drill) {
	w.checker.Phase(struck, stalecheck.Now())
	connects := w.connects(ctx)
	o.struck = time.Since(w.began)
	call(d.strike, w)
	end, cancel := context.WithTimeout(ctx, o.scaled(or(d.lasts, strikeTime)))
	defer cancel()
	for d.again != nil && end.Err() == nil {
		d.again(w)
		pause(end, d.every)
	}
	<-end.Done()
	o.connects = w.connects(ctx) - connects
	o.healed = time.Since(w.began)
	call(d.heal, w)
	w.checker.Phase(mended, stalecheck.Now())
}

// aftermath waits until a time, and looks each second at how often the hottest keys are loaded.
func (o *outcome) aftermath(ctx context.Context, w *world, until time.Duration) {
	for ctx.Err() == nil && time.Since(w.began) < until {
		before := w.hotLoads()
		pause(ctx, min(time.Second, until-time.Since(w.began)))
		for rank, n := range w.hotLoads() {
			o.loads[rank] = max(o.loads[rank], n-before[rank])
		}
	}
}

func call(f func(*world), w *world) {
	if f != nil {
		f(w)
	}
}

// watch looks at the database ten times a second, and hands what was read to the checker.
func (o *outcome) watch(ctx context.Context, w *world) error {
	told := make(chan error, 1)
	go func() { told <- w.tell(ctx) }()
	every := time.NewTicker(pollEvery)
	defer every.Stop()
	for {
		n := w.db.Counts()
		o.source = append(o.source, tick{time.Since(w.began), n.Queries, n.Reading})
		select {
		case <-every.C:
		case <-ctx.Done():
			return <-told
		}
	}
}

// wait waits for the last reads and writes.
func (w *world) wait() error {
	done := make(chan struct{})
	go func() {
		w.crowd.Wait()
		close(done)
	}()
	select {
	case <-done:
		return w.tellOnce()
	case <-time.After(readsLimit):
		return fmt.Errorf("drill: reads or writes that began %v ago have not returned", readsLimit)
	}
}

// collect takes what the processes have recorded.
func (o *outcome) collect(w *world) {
	o.errors = make(map[string]int)
	for _, p := range w.processes {
		p.mu.Lock()
		o.samples = append(o.samples, p.samples...)
		for text, n := range p.errors {
			o.errors[text] += n
		}
		p.mu.Unlock()
	}
	slices.SortFunc(o.samples, func(a, b sample) int { return int(a.at - b.at) })
	o.highest = w.db.Counts().MaxReading
	o.report = w.checker.Finish()
}

// pause sleeps, not beyond ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
