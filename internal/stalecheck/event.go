// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck

import "time"

// Layer says what answered a read.
type Layer uint8

// The layers.
const (
	None   Layer = iota
	L1           // the reading process's own copy
	L2           // a node
	Source       // a load, the reader's own or one that it joined
)

func (l Layer) String() string { return [...]string{"none", "L1", "L2", "source"}[l&3] }

// Times are readings of one clock for all processes: see Now.

// Write is a change of a row that the source has taken.
type Write struct {
	Key     string
	Version uint64 // 1 or more. Larger is newer, in the order in which the source took the writes; a key's versions never start anew
	Value   uint64 // no other write has it
	Absent  bool   // the row is gone

	Began, Committed time.Duration
}

// Invalidation is a call that makes copies of rows disappear, or the invalidation inside a write.
type Invalidation struct {
	Keys   []string // which; nil: all that begin with Prefix
	Prefix string

	// UpTo is the newest version that is covered; 0: whatever had been committed when it Began. Give it where the call stores a row, and where loads
	// read a source that lags and nothing but the version keeps older rows out: of a write that crossed it, such a call knows nothing.
	UpTo   uint64
	Failed bool // it returned an error, so it confirms nothing

	Began, Returned time.Duration
}

// Read is an answer that somebody got.
type Read struct {
	Key     string
	Version uint64 // of the row; not used where it is absent
	Value   uint64
	Absent  bool
	Layer   Layer
	Marked  bool  // the answer said that it may be old
	Class   uint8 // what the recorder knows of the read that a rule may want to know: theirs to agree on

	Began, Ended time.Duration

	process int
}

// Process is who read, as given to Checker.Add.
func (r *Read) Process() int { return r.process }

// Forever is the Upto of a process that will report nothing more.
const Forever = time.Duration(1<<63 - 1)

// Batch is what a process has recorded since its last one.
type Batch struct {
	Writes        []Write
	Invalidations []Invalidation
	Reads         []Read

	// Upto promises that every read and write which this process began before, and every invalidation that returned before, is in this batch or an earlier one.
	Upto time.Duration
}
