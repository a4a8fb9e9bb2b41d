// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck

import "time"

// Since says what starts the clock of a rule.
type Since int

// What starts the clock.
const (
	Confirmed    Since = iota // an invalidation that covers a newer version returned nil, in whatever process
	OwnConfirmed              // the same, in the process that reads
	Committed                 // the source had taken a newer version, whether or not anything was invalidated
)

// Rule is a promise.
type Rule struct {
	Name  string
	Short string // heads its column in the table of phases; empty: Name, its first 15 bytes
	Since Since
	// Bound is how stale a read may be; 0: not at all.
	Bound time.Duration
	// Covers says whether the promise is about a read; nil: about every one. phase is the last that began before the read did.
	Covers func(r *Read, phase string) bool
}

// Bounds are the times at which stale reads are counted.
var Bounds = [...]time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}

// Tally counts the reads that a rule covers.
type Tally struct {
	Reads  uint64
	Near   uint64              // of them, those that began within a second of a write of their key: those in which a stale copy would show
	Stale  [len(Bounds)]uint64 // stale by more than Bounds[i]
	Broken uint64              // stale by more than the rule's Bound
	Back   uint64              // of the broken ones, those whose newer version had been seen before: the old one came back
	Marked uint64              // of the stale ones, those that said so
	Max    time.Duration       // by how much the stalest was stale
}

// nearTime is what Near counts as near.
const nearTime = time.Second

// count takes a read in, and says whether it breaks the rule.
func (t *Tally) count(r *Read, stale, bound time.Duration, near, back bool) (broken bool) {
	t.Reads++
	if near {
		t.Near++
	}
	if stale <= 0 {
		return false
	}
	t.Max = max(t.Max, stale)
	for i, b := range Bounds {
		if stale > b {
			t.Stale[i]++
		}
	}
	if r.Marked {
		t.Marked++
	}
	if stale <= bound {
		return false
	}
	t.Broken++
	if back {
		t.Back++
	}
	return true
}

// merge adds another tally.
func (t *Tally) merge(o *Tally) {
	t.Reads += o.Reads
	t.Near += o.Near
	for i := range t.Stale {
		t.Stale[i] += o.Stale[i]
	}
	t.Broken += o.Broken
	t.Back += o.Back
	t.Marked += o.Marked
	t.Max = max(t.Max, o.Max)
}
