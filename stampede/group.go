// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"fmt"
	"sync"
)

// Flight collapses concurrent loads of one key in this process into one. The
// zero value is ready; all methods are safe for concurrent use. A Flight must
// not be copied, and its owner calls Close.
//
// It is a table of who leads which key: whoever finds a key led waits for the
// leader's result, be that a caller of Do, a background run ([Flight.Start]) or a batch
// ([Flight.Lead]). A run has a goroutine of its own, detached from its caller
// and guarded: the first caller's cancellation would be everybody's, and a panic
// or Goexit would leave the others waiting. It is the only goroutine that a
// flight needs, and those who wait for it wait for one channel.
type Flight[V any] struct {
	clock moments
	crew  crew // runs and batches

	mu         sync.Mutex
	leads      map[string]*call[V]
	background map[*call[V]]struct{} // runs that Close cancels
}

// Do returns what run brings for key. While one run is going on, all callers
// of Do for the key wait for it instead of starting their own.
//
// The run is detached: its context has the values of the first caller's, but
// neither its cancellation nor its deadline, so run must bound its own time. A
// caller whose ctx ends gets ctx's error at once; the run goes on for the
// others, or to its end with nobody waiting.
//
// A panic in run is returned as *[PanicError], a Goexit as [ErrGoexit], to all who wait.
// A caller that comes when a run has ended does not get its result, but starts or joins the next run.
func (f *Flight[V]) Do(ctx context.Context, key string, run func(ctx context.Context, r *Run) (V, error)) (Result[V], error) {
	w, found, err := f.claim(ctx, key, true)
	if err != nil {
		return Result[V]{}, err
	}
	if !found {
		go f.fly(context.WithoutCancel(ctx), key, w.call, run)
	}
	return w.Get(ctx)
}

// Join is Do for a caller that has no run to offer yet: found is false where nobody loads key. In a crowd of callers all but one join, and what a run needs is made by that one alone.
func (f *Flight[V]) Join(ctx context.Context, key string) (w Wait[V], found bool, err error) {
	return f.claim(ctx, key, false)
}

// Start starts run for key in the background and does not wait. It returns
// false, and starts nothing, when the key is being loaded already or the flight
// is closed. Callers of Do that come while it runs wait for its result.
//
// The run's context has ctx's values; it is cancelled by Close, with cause
// ErrClosed, and by nothing else.
func (f *Flight[V]) Start(ctx context.Context, key string, run func(ctx context.Context, r *Run) (V, error)) bool {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(uninvolved(ctx)))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leads[key] != nil || !f.crew.enter() {
		cancel(nil)
		return false
	}
	c := f.lead(key)
	c.cancel = cancel
	if f.background == nil {
		f.background = make(map[*call[V]]struct{})
	}
	f.background[c] = struct{}{}
	go f.fly(ctx, key, c, run)
	return true
}

// Forget detaches the load of key that is going on, if any: callers that come
// from now on start a new one, while those that wait already get the old one's
// result. An invalidation calls it, so that nobody who comes after the
// invalidation is given a value that was read before it.
func (f *Flight[V]) Forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leads, key)
}

// ForgetAll is Forget for every key whose load is going on.
func (f *Flight[V]) ForgetAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.leads)
}

// Close refuses new work (ErrClosed), cancels what Start started, and waits
// until every run and batch has ended. When ctx is over before that, it returns
// an error that says how many are still running; it may then be called again.
// Runs of Do are waited for, not cancelled; but a load that needs a further key is
// refused it.
func (f *Flight[V]) Close(ctx context.Context) error {
	f.crew.shut()
	f.mu.Lock()
	for c := range f.background {
		c.cancel(ErrClosed)
	}
	f.mu.Unlock()
	return f.crew.close(ctx)
}

// Running returns how many runs and batches are going on.
func (f *Flight[V]) Running() int { return f.crew.running() }

// mayWait says why a caller must not wait for key, if it must not.
func (f *Flight[V]) mayWait(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.crew.isClosed() {
		return ErrClosed
	}
	if isLoading(ctx, f, key) {
		return fmt.Errorf("%w of key %q", ErrRecursiveLoad, key)
	}
	return nil
}

// claim joins the call that leads key. Where there is none it takes the lead, if that is wanted. Who leads must see that the call ends.
func (f *Flight[V]) claim(ctx context.Context, key string, lead bool) (w Wait[V], found bool, err error) {
	if err := f.mayWait(ctx, key); err != nil {
		return Wait[V]{}, false, err
	}
	joined := f.clock.next()
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.leads[key]; c != nil {
		c.joins++
		return Wait[V]{call: c, joined: joined, shared: true}, true, nil
	}
	if !lead {
		return Wait[V]{}, false, nil
	}
	if !f.crew.enter() {
		return Wait[V]{}, false, ErrClosed
	}
	return Wait[V]{call: f.lead(key), joined: joined}, false, nil
}

// lead enters a new call for key into the table. f.mu is held.
func (f *Flight[V]) lead(key string) *call[V] {
	if f.leads == nil {
		f.leads = make(map[string]*call[V])
	}
	c := newCall[V]()
	f.leads[key] = c
	return c
}

// fly runs a call to its end in the current goroutine, which must be its own.
func (f *Flight[V]) fly(ctx context.Context, key string, c *call[V], run func(context.Context, *Run) (V, error)) {
	defer f.crew.leave()
	ctx = withLoading(ctx, f, func(k string) bool { return k == key && !c.over() })
	protect(
		func() (V, error) { return run(ctx, &Run{clock: &f.clock, call: c}) },
		func(value V, err error) { f.finish(key, c, value, err) },
	)
}

// finish gives a call its result and takes it off the table; the first result
// stands. It reports whether anybody else was given it.
func (f *Flight[V]) finish(key string, c *call[V], value V, err error) (shared bool) {
	f.mu.Lock()
	first := f.settle(key, c, value, err)
	shared = c.joins > 0 // it is off the table: nobody joins any more
	f.mu.Unlock()
	if first {
		close(c.done) // without the lock: this makes all who wait ready to run, ten thousand perhaps
	}
	return shared
}

// settle is finish without waking anybody, with f.mu held. After the first, whose done it reports, c.done is to be closed.
func (f *Flight[V]) settle(key string, c *call[V], value V, err error) (first bool) {
	if c.settled {
		return false
	}
	if f.leads[key] == c { // else it was forgotten, and the entry is another's
		delete(f.leads, key)
	}
	if c.cancel != nil {
		delete(f.background, c)
		c.cancel(nil)
	}
	c.value, c.err, c.settled = value, err, true
	return true
}
