// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// refusalEvery is how often OnRefusal is called at most.
const refusalEvery = time.Minute

// failures remembers the latest command that the node did not carry out, for those who ask why everything is loaded: a node may answer health checks and
// yet refuse the rest, for want of memory or of a permission. A Node shares it with its own path for bodies. A success does not touch it.
type failures struct {
	tell func(*Error) // nil: nobody wants to know

	mu   sync.Mutex
	err  error
	at   time.Time
	told time.Time
}

// note takes in a command that failed at now, unless it was the command's own fault.
func (f *failures) note(e *Error, now time.Time) {
	refused := isReply(e)
	if IsPoolTimeout(e) || !IsTrouble(e) && !(refused && redis.HasErrorPrefix(e.Err, "unknown command")) {
		return
	}
	f.mu.Lock()
	f.err, f.at = e, now
	tell := f.tell != nil && refused && (f.told.IsZero() || now.Sub(f.told) >= refusalEvery)
	if tell {
		f.told = now
	}
	f.mu.Unlock()
	if tell {
		f.tell(e)
	}
}

// latest gives what was noted last, and when.
func (f *failures) latest() (at time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at, f.err
}

// isReply reports whether the server has answered with an error: it was reached, and will not.
func isReply(e *Error) bool {
	reply := redis.Error(nil)
	return errors.As(e.Err, &reply)
}
