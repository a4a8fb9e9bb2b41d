// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrLoadTimeout is returned when a load outlives its limit. It wraps
// context.DeadlineExceeded.
var ErrLoadTimeout = fmt.Errorf("shelf: the load took too long: %w", context.DeadlineExceeded)

// Guard counts the loads that [Call] runs, so that its owner can wait for them:
// also for those whose callers were sent away because the load hung. The zero
// value is ready; methods are safe for concurrent use.
type Guard struct{ crew crew }

// Running returns how many loads have not ended yet.
func (g *Guard) Running() int { return g.crew.running() }

// Close refuses new loads (ErrClosed) and waits for the running ones. It does
// not cancel them; their time limits do. When ctx is over first, it returns an
// error that says how many are still running; it may then be called again.
func (g *Guard) Close(ctx context.Context) error { return g.crew.close(ctx) }

// Call runs the user's fn in a goroutine of its own, under a context that ends
// after timeout, and makes its ways out safe: a panic is returned as
// *[PanicError], a Goexit as [ErrGoexit], and a fn that ignores its context is left
// behind when the context ends, with [ErrLoadTimeout] (or the cause for which ctx
// was cancelled). What it brings later is dropped.
//
// after is called exactly once, when fn has really ended or will not be
// called at all. A hanging fn still occupies the database, so whatever
// stands for its share of it (a [Place]) is given back there and not before. In
// the normal case after has run when Call returns. It must not be nil or panic.
func Call[V any](ctx context.Context, g *Guard, timeout time.Duration, fn func(ctx context.Context) (V, error), after func()) (V, error) {
	var none V
	if ctx.Err() != nil {
		after()
		return none, context.Cause(ctx)
	}
	if !g.crew.enter() {
		after()
		return none, ErrClosed
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w (limit %v)", ErrLoadTimeout, timeout))
	defer cancel()

	type returned struct {
		value V
		err   error
	}
	ended := make(chan returned, 1) // buffered: nobody may be there to receive
	go protect(
		func() (V, error) { return fn(ctx) },
		func(value V, err error) {
			after()
			g.crew.leave()
			ended <- returned{value, err}
		},
	)
	select {
	case r := <-ended:
		return r.value, reason(ctx, r.err)
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// reason returns err, or why ctx is over where err only says that it is: the
// error of a fn that heeds its context. Call then answers the same, whichever it
// sees first, fn's return or the context's end.
func reason(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil && errors.Is(err, over) {
		return context.Cause(ctx)
	}
	return err
}
