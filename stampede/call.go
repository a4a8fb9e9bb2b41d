// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"sync/atomic"
)

// Result is what a caller gets from a [Flight].
type Result[V any] struct {
	Value V
	// Shared: the value was, or may have been, handed to other callers too. A
	// caller that wants to change it must copy it first.
	Shared bool
	// Late: this caller came after the run had begun to read the source
	// ([Run.Began]), or, if it never did, after its last look elsewhere ([Run.Looked]). The value may then be older than something that the caller
	// knows to be true, so it must not be used if the fill was refused.
	Late bool
	// AfterLast: this caller came after the run had sent its last request to the shelf ([Run.Looked]). Even a
	// value that was stored then, under a good lease, may have been invalidated before the caller came.
	AfterLast bool
}

// Run is handed to a run function so that it can tell when its load begins.
// A nil *Run is valid and tells nobody.
type Run struct {
	clock *moments
	call  looker
}

// looker is a call, whatever the type of its value.
type looker interface {
	setBegan(now uint64)
	setLooked(now uint64)
}

// Began is called right before the source is read. The first call counts:
// callers that come later are late, even if the source is read once more.
func (r *Run) Began() {
	if r != nil {
		r.call.setBegan(r.clock.next())
	}
}

// Looked is called by a run each time before it sends a request to the shelf: to look whether the value has come from elsewhere, or to
// store it. A caller that came after the last of them may know of something newer than what it brings ([Result.AfterLast]; where
// nothing was loaded that is [Result.Late], too). A nil Run is valid.
func (r *Run) Looked() {
	if r != nil {
		r.call.setLooked(r.clock.next())
	}
}

// moments orders events in a flight: of two calls to next that do not overlap
// the later one gets the larger number, and no number is 0.
type moments struct{ last atomic.Uint64 }

func (m *moments) next() uint64 { return m.last.Add(1) }

// call is one run's, or one key of a batch's, way from claim to result.
type call[V any] struct {
	began  atomic.Uint64 // moment at which the source was first read, 0 before
	looked atomic.Uint64 // moment of the last request to the shelf, 0 before
	done   chan struct{} // closed when the fields below are final

	// Written under Flight.mu. Read under it, or after done is closed.
	joins   int                     // others that wait for this call
	cancel  context.CancelCauseFunc // background runs only
	settled bool                    // value and err are final
	value   V
	err     error
}

func (c *call[V]) setBegan(now uint64)  { c.began.CompareAndSwap(0, now) }
func (c *call[V]) setLooked(now uint64) { c.looked.Store(now) }

func newCall[V any]() *call[V] { return &call[V]{done: make(chan struct{})} }

func (c *call[V]) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait returns when the call is over; before that only with the error of a ctx that ends. A result that is there is given even if ctx is over.
func (c *call[V]) wait(ctx context.Context) error {
	if c.over() {
		return nil
	}
	left := ctx.Done()
	if left == nil {
		<-c.done // a third of what the select costs
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-left:
		return ctx.Err()
	}
}

// result makes res what a caller gets that came at moment joined. Only after done.
func (c *call[V]) result(joined uint64, shared bool, res *Result[V]) error {
	began, looked := c.began.Load(), c.looked.Load()
	if began == 0 {
		began = looked
	}
	res.Value = c.value
	res.Shared = shared || c.joins > 0
	res.Late = began != 0 && joined > began
	res.AfterLast = looked != 0 && joined > looked
	return c.err
}

// Wait is a claim on the result of a load that somebody runs; [Flight.Join], [Flight.Lead]
// and [Batch.Wait] give it. It may be dropped without being used.
type Wait[V any] struct {
	call   *call[V]
	joined uint64
	shared bool
	err    error // set instead of call when waiting would be a deadlock
}

// Done reports whether there is a result, or an error: Get would not wait.
func (w *Wait[V]) Done() bool { return w.err != nil || w.call.over() }

// Get waits for the result, or until ctx is over, in which case it returns ctx's
// error and disturbs nobody. It may be called again and concurrently.
func (w *Wait[V]) Get(ctx context.Context) (Result[V], error) {
	var res Result[V]
	err := w.GetInto(ctx, &res)
	return res, err
}

// GetInto is Get for results that are large, and callers that are many: res becomes the result, and nothing of its size is on a caller's stack beside. Where ctx is over, res stays as it is.
func (w *Wait[V]) GetInto(ctx context.Context, res *Result[V]) error {
	if w.err != nil {
		return w.err
	}
	if err := w.call.wait(ctx); err != nil {
		return err
	}
	return w.call.result(w.joined, w.shared, res)
}
