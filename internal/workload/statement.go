// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"maps"
	"time"
)

// Counts is what the database has been asked to do.
type Counts struct {
	// Queries counts statements that read, Rows the ids that they asked for, and
	// Writes the statements that change. All count on arrival.
	Queries, Rows, Writes uint64
	// Failed counts statements that returned an error other than ErrNoRow and
	// ErrRowExists: injected ones and their context's.
	Failed uint64
	// InFlight is how many statements have arrived and not returned, those in line
	// included; MaxInFlight is the most there have been at once.
	InFlight, MaxInFlight int
	// Reading and MaxReading are the same of statements that read: what loaders
	// ask of the database.
	Reading, MaxReading int
}

// Counts returns the counters as they are now.
func (d *Database) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

// Reads is how often a row was asked for, by Query and QueryMany.
func (d *Database) Reads(id string) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads[id]
}

// ReadsByID is [Database.Reads] of every id that was asked for at all.
func (d *Database) ReadsByID() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.reads)
}

// ResetCounts starts all counters anew. Statements in flight stay in flight, so
// MaxInFlight and MaxReading start at their number.
func (d *Database) ResetCounts() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.reads)
	d.counts = Counts{
		InFlight: d.counts.InFlight, MaxInFlight: d.counts.InFlight,
		Reading: d.counts.Reading, MaxReading: d.counts.Reading,
	}
}

// faults are what is wrong with the database now.
type faults struct {
	slow time.Duration
	fail error
	hang chan struct{} // nil, or closed when the hang ends
}

// Slow makes each statement that begins from now on take that much longer. Zero
// ends it.
func (d *Database) Slow(extra time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.slow = extra
}

// Fail makes each statement that begins from now on end in err, after its
// latency. Nil ends it.
func (d *Database) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.fail = err
}

// Hang makes each statement that begins from now on wait until its context ends
// or the hang does. Meanwhile it keeps its place among MaxConcurrent.
func (d *Database) Hang(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case on && d.faults.hang == nil:
		d.faults.hang = make(chan struct{})
	case !on && d.faults.hang != nil:
		close(d.faults.hang)
		d.faults.hang = nil
	}
}

// statement is one visit to the database. Exactly one of atStart (a read) and
// atEnd (a change) is set; they run with mu held.
type statement struct {
	ids            []string // what a read asks for
	atStart, atEnd func() error
}

// run takes a statement through the database: it is counted, waits for a place
// and for a hang to end, reads, takes its time, changes.
func (d *Database) run(ctx context.Context, s statement) (err error) {
	d.arrive(s)
	injected := true // whatever fails before the statement's own function
	defer func() { d.leave(s, err != nil && injected) }()

	if err := d.takeSlot(ctx); err != nil {
		return err
	}
	defer d.freeSlot()
	if err := d.awaitHang(ctx); err != nil {
		return err
	}
	latency, result, fault := d.begin(s)
	if err := sleep(ctx, latency); err != nil {
		return err
	}
	if fault != nil {
		return fault
	}
	injected = false
	if s.atEnd == nil {
		return result
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.atEnd()
}

func (d *Database) arrive(s statement) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.atEnd != nil {
		d.counts.Writes++
	} else {
		d.counts.Queries++
		d.counts.Rows += uint64(len(s.ids))
		d.counts.Reading++
		d.counts.MaxReading = max(d.counts.MaxReading, d.counts.Reading)
	}
	for _, id := range s.ids {
		d.reads[id]++
	}
	d.counts.InFlight++
	d.counts.MaxInFlight = max(d.counts.MaxInFlight, d.counts.InFlight)
}

func (d *Database) leave(s statement, failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts.InFlight--
	if s.atStart != nil {
		d.counts.Reading--
	}
	if failed {
		d.counts.Failed++
	}
}

// begin looks at the faults and, for a read, at the rows.
func (d *Database) begin(s statement) (latency time.Duration, result, fault error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	latency = d.cfg.Latency + d.faults.slow
	if d.cfg.Jitter > 0 {
		latency += time.Duration(d.rand.Int64N(int64(d.cfg.Jitter) + 1))
	}
	if s.atStart != nil {
		result = s.atStart()
	}
	return latency, result, d.faults.fail
}

func (d *Database) takeSlot(ctx context.Context) error {
	if d.slots == nil {
		return nil
	}
	select {
	case d.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *Database) freeSlot() {
	if d.slots != nil {
		<-d.slots
	}
}

func (d *Database) awaitHang(ctx context.Context) error {
	for {
		d.mu.Lock()
		hang := d.faults.hang
		d.mu.Unlock()
		if hang == nil {
			return nil
		}
		select {
		case <-hang: // and look again: it may hang anew
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sleep waits for d, or for the end of the context, which counts even where
// there is nothing to wait for.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
