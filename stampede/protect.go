// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrGoexit is what waiters get when the function they waited for ended its
// goroutine by runtime.Goexit (as testing's FailNow does) instead of returning.
var ErrGoexit = errors.New("shelf: the load called runtime.Goexit")

// PanicError is a panic that was caught in a run or a load and handed to
// everybody who waited for it. Find it with errors.As.
type PanicError struct {
	Value any    // what was given to panic
	Stack []byte // the panicking goroutine's stack, as debug.Stack formats it
}

// Error names the panic's value. The stack is left to the Stack field: it is
// long, and belongs in a log rather than in a chain of wrapped errors.
func (p *PanicError) Error() string {
	return fmt.Sprintf("stampede: the load panicked: %v", p.Value)
}

// Unwrap returns the panic's value when it is an error, so that errors.Is sees it.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// protect calls fn and hands done what came of it, exactly once, however fn
// ends. It must be the last thing its goroutine does: a panic stops here, but
// a Goexit cannot be stopped and ends the goroutine after done has run.
func protect[V any](fn func() (V, error), done func(V, error)) {
	var value V
	err := ErrGoexit // stands when fn neither returns nor panics
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		done(value, err)
	}()
	value, err = fn()
}
