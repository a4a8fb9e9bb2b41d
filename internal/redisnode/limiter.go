// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import "github.com/redis/go-redis/v9"

// limiter is the user's own, whose refusals can be told from failures of the node: they say nothing about it.
type limiter struct{ redis.Limiter }

// Allow implements redis.Limiter.
func (l limiter) Allow() error {
	if err := l.Limiter.Allow(); err != nil {
		return &limited{err}
	}
	return nil
}

// limited is a refusal by the user's limiter.
type limited struct{ err error }

func (e *limited) Error() string { return e.err.Error() }
func (e *limited) Unwrap() error { return e.err }
