// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/workload"
)

// interval is what was counted between two lines of progress.
type interval struct {
	began, took time.Duration // since the phase began; took is set when it has ended
	loads       uint64        // queries that the store has sent

	latency                                    workload.Latencies                    // of all reads, failed ones too
	layers                                     [client.LayerSource + 1]atomic.Uint64 // answers, by where they came from
	failed, wrong, stale, writes, writesFailed atomic.Uint64
}

// reads is the number of answers.
func (i *interval) reads() (n uint64) {
	for l := range i.layers {
		n += i.layers[l].Load()
	}
	return n
}

// share is that of the answers which came from a layer.
func (i *interval) share(l client.Layer) float64 {
	return float64(i.layers[l].Load()) / float64(i.reads())
}

// add adds another interval's counts.
func (i *interval) add(other *interval) {
	i.took += other.took
	i.loads += other.loads
	i.latency.Merge(&other.latency)
	for l := range i.layers {
		i.layers[l].Add(other.layers[l].Load())
	}
	i.failed.Add(other.failed.Load())
	i.wrong.Add(other.wrong.Load())
	i.stale.Add(other.stale.Load())
	i.writes.Add(other.writes.Load())
	i.writesFailed.Add(other.writesFailed.Load())
}

// recorder takes what the crowd counts in a phase. Everybody counts in the interval that is now; a count that comes too late for it is in it all
// the same, and in the sum of the phase.
type recorder struct {
	store *Store
	start time.Time
	sent  int64 // the store's count when the interval began
	now   atomic.Pointer[interval]
	done  []*interval

	mu    sync.Mutex
	first error // that a read or a write has returned
}

func newRecorder(store *Store) *recorder {
	r := &recorder{store: store, start: time.Now(), sent: store.Reads()}
	r.now.Store(&interval{})
	return r
}

// next begins an interval and returns the last one. One goroutine calls it.
func (r *recorder) next() *interval {
	last := r.now.Load()
	ended := time.Since(r.start)
	r.now.Store(&interval{began: ended})
	sent := r.store.Reads()
	last.took, last.loads = ended-last.began, uint64(sent-r.sent)
	r.sent = sent
	r.done = append(r.done, last)
	return last
}

func (r *recorder) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		r.first = err
	}
}

// result is a phase that has ended.
type result struct {
	name  string
	cut   bool // it was ended early, by a signal
	parts []*interval
	total *interval
	scans uint64 // reads of rows, as PostgreSQL itself counts them
	err   error  // the first that a read or a write returned
}

// end sums up. The crowd has ended.
func (r *recorder) end(name string) result {
	r.next()
	res := result{name: name, parts: r.done, total: &interval{}, err: r.first}
	for _, i := range r.done {
		res.total.add(i)
	}
	return res
}

// database is how many of the reads reached the database: the larger one of our count and PostgreSQL's.
func (r result) database() uint64 { return max(r.scans, r.total.loads) }
