// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"
)

// Flight collapses concurrent loads of one key in this process into one. The
// zero value is ready; all methods are safe for concurrent use. A Flight must
// not be copied, and its owner calls Close.
//
// It stands on golang.org/x/sync/singleflight, which gathers the callers of Do,
// and keeps singleflight from its three dangers: the first caller's
// cancellation would fail everybody, a panic under DoChan kills the process,
// and a Goexit leaves the waiters hanging. So a run has a goroutine of its own,
// detached from its caller and guarded.
//
// Behind singleflight stands a table of who leads which key. It is what the
// batches ([Flight.Lead]) and background runs ([Flight.Start]) share with the
// callers of Do: whoever finds a key led waits for the leader's result.
type Flight[V any] struct {
	single singleflight.Group
	clock  moments
	crew   crew // runs and batches

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
// A caller that comes in the instant between the end of a run and its removal
// does not get the old result, but starts or joins the next run.
func (f *Flight[V]) Do(ctx context.Context, key string, run func(ctx context.Context, r *Run) (V, error)) (Result[V], error) {
	if err := f.mayWait(ctx, key); err != nil {
		return Result[V]{}, err
	}
	joined := f.clock.next()
	for {
		var own *call[V] // set in the goroutine of lead, read after its result has come
		landed := f.single.DoChan(key, func() (any, error) {
			c, leads, err := f.claim(key)
			if err != nil {
				return nil, err
			}
			if leads {
				own = c
				go f.fly(context.WithoutCancel(ctx), key, c, run)
			}
			<-c.done
			return c, nil
		})
		select {
		case <-ctx.Done():
			return Result[V]{}, ctx.Err()
		case r := <-landed:
			if r.Err != nil {
				return Result[V]{}, r.Err
			}
			c := r.Val.(*call[V])
			// The run ended; another process invalidated the key; we came and missed;
			// only now is the entry removed from singleflight. The run did not
			// overlap with us, so its value proves nothing. By the time singleflight
			// answers the entry is gone: a second turn is enough.
			if joined > c.ended {
				continue
			}
			return c.result(joined, r.Shared || c != own)
		}
	}
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
	// A run that singleflight has started but that has not claimed its lead yet
	// stays possible here, and that is right: it will read the source after us.
	delete(f.leads, key)
	f.single.Forget(key)
}

// ForgetAll is Forget for every key whose load is going on.
func (f *Flight[V]) ForgetAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.leads {
		f.single.Forget(key)
	}
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

// claim takes the lead of key, or joins the call that has it.
func (f *Flight[V]) claim(key string) (c *call[V], leads bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.leads[key]; c != nil {
		c.joins++
		return c, false, nil
	}
	if !f.crew.enter() {
		return nil, false, ErrClosed
	}
	return f.lead(key), true, nil
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
	defer f.mu.Unlock()
	return f.end(key, c, value, err)
}

// end is finish with f.mu held.
func (f *Flight[V]) end(key string, c *call[V], value V, err error) (shared bool) {
	if c.over() {
		return c.joins > 0
	}
	if f.leads[key] == c { // else it was forgotten, and the entry is another's
		delete(f.leads, key)
	}
	if c.cancel != nil {
		delete(f.background, c)
		c.cancel(nil)
	}
	c.value, c.err, c.ended = value, err, f.clock.next()
	close(c.done)
	return c.joins > 0
}
