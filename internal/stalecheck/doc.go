// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package stalecheck says how consistent a cache is, from a record of what its users did and saw.
//
// Every write of the source has a version, in the source's own order, and a value that no other write has. The processes under test record their writes,
// invalidations and reads, each with its begin and end on one clock ([Now]: CLOCK_MONOTONIC, which all processes of a machine share), and hand them to
// a [Checker] while they go on:
//
//	rec := new(stalecheck.Recorder)        // in each process
//	op := rec.Begin()
//	v, err := cache.Get(ctx, id)
//	rec.Read(stalecheck.Read{Key: id, Began: op.Began, Ended: stalecheck.Now(), Version: v.Version, Value: v.Unique, Layer: stalecheck.L2})
//	op.End()
//	checker.Add(process, rec.Take())       // now and then, over a pipe for instance
//	report := checker.Finish()             // in the end
//
// # What is stale
//
// A version is superseded when an invalidation that covers a newer one has returned nil. A read is stale if it saw a version that had been superseded
// before it began, and it is stale by the time that had passed since. So a read that began before the invalidation had returned may see either value,
// and of writes that overlap any: nobody can blame it. Time between the begin of a read and the moment at which it really looked is not counted, so the
// figures never blame a cache for the scheduler's doing; they may be too small by the duration of a read.
//
// An invalidation covers what had been committed when it began; one that stores a row (a write-through) covers that row's version and those before.
// One that failed confirms nothing: its write is unconfirmed until another invalidation covers it.
//
// That a row is absent has no version that a reader could see. Such a read counts as one of the newest absence that it can have seen.
//
// Besides, a value that nobody wrote, one of another version, and one that was read before its write began are always faults ([Report.Wrong]).
//
// # Rules
//
// A [Rule] is a promise: which reads it covers, what starts the clock, and how stale such a read may be. To check another promise (reads after a
// failover, of keys that move) add a rule, and a [Checker.Phase] where the time matters; nothing else has to change.
//
// # Confidence
//
// A share of stale reads is a sample. [UpperBound] says how large the true share can be, at 95 % confidence, and [Nines] writes a share as nines. The
// figure is for the reads of the run, taken as independent: the same key read a thousand times between two writes is one observation rather than a
// thousand. [Tally.Near] counts the reads that came within a second of a write of their key, which are those that were in danger.
//
// # Cost
//
// The checker holds the writes of the last Config.History of each key (some 100 bytes and 16 a process each), one record a key, and the reads that
// are waiting for the slowest process (some 100 bytes each). Judging a read takes below a microsecond, a write or an invalidation some more; an invalidation of
// many keys as much for each of them.
package stalecheck
