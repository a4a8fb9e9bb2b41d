// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// limiter is the user's own, whose refusals can be told from failures of the node: they say nothing about it. It is asked in the middle of an operation, in our goroutines too, so a
// panic of its goes no further: it is a refusal, and one of ReportResult is nothing.
type limiter struct{ redis.Limiter }

// Allow implements redis.Limiter.
func (l limiter) Allow() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &limited{fmt.Errorf("shelf: redis.Options.Limiter: a panic: %v", p)}
		}
	}()
	if err := l.Limiter.Allow(); err != nil {
		return &limited{err}
	}
	return nil
}

// ReportResult implements redis.Limiter.
func (l limiter) ReportResult(result error) {
	defer func() { _ = recover() }() // the operation is over: there is nobody to tell
	l.Limiter.ReportResult(result)
}

// limited is a refusal by the user's limiter.
type limited struct{ err error }

func (e *limited) Error() string { return e.err.Error() }
func (e *limited) Unwrap() error { return e.err }
