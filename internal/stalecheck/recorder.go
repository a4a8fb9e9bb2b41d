// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck

import (
	"sync"
	"time"
)

// Recorder keeps what a process does until it is taken. The zero value is ready, and safe for concurrent use. It grows until the next Take.
type Recorder struct {
	mu    sync.Mutex
	open  map[*Op]struct{}
	batch Batch
}

// Op is something under way. Reads and writes that are recorded in it must have begun no earlier than it did. (An invalidation may have, if only now
// is it known to be through; then its Returned is now.)
type Op struct {
	Began time.Duration

	rec *Recorder
}

// Begin starts an operation. Until its End nothing that began later can be judged: end it soon after the calls that it is about.
func (r *Recorder) Begin() *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = make(map[*Op]struct{})
	}
	// The time is taken under the lock: a Take that comes between must not promise that there is nothing as early as this.
	op := &Op{Now(), r}
	r.open[op] = struct{}{}
	return op
}

// End ends the operation. All of it has been recorded.
func (o *Op) End() {
	o.rec.mu.Lock()
	defer o.rec.mu.Unlock()
	delete(o.rec.open, o)
}

// Write records a write.
func (r *Recorder) Write(w Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batch.Writes = append(r.batch.Writes, w)
}

// Invalidation records an invalidation.
func (r *Recorder) Invalidation(i Invalidation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batch.Invalidations = append(r.batch.Invalidations, i)
}

// Read records a read.
func (r *Recorder) Read(read Read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batch.Reads = append(r.batch.Reads, read)
}

// Take returns what was recorded since the last Take.
func (r *Recorder) Take() Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.batch
	r.batch = Batch{}
	b.Upto = Now()
	for op := range r.open {
		b.Upto = min(b.Upto, op.Began)
	}
	return b
}
