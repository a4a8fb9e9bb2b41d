// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	resendEvery = time.Second
	maxUnsent   = 10_000 // keys; for one beyond, the TTL is what ends the old row
)

// unsent repeats invalidations that a node did not confirm. A node that was cut off, not dead, still has the old row when it is reached
// again. The list dies with the process; for that case, too, there is the TTL.
type unsent struct {
	send       func(ctx context.Context, keys []string) error
	log        *slog.Logger
	stop, done chan struct{}

	mu   sync.Mutex
	keys map[string]struct{}
}

// newUnsent starts the goroutine that close ends.
func newUnsent(send func(ctx context.Context, keys []string) error, log *slog.Logger) *unsent {
	u := &unsent{send: send, log: log, stop: make(chan struct{}), done: make(chan struct{}), keys: make(map[string]struct{})}
	go u.run()
	return u
}

func (u *unsent) add(key string, err error) {
	u.log.Warn("invalidation not confirmed", "key", key, "error", err)
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.keys[key]; !known && len(u.keys) >= maxUnsent {
		u.log.Error("too many unconfirmed invalidations: this one is not sent again, its old row may be served until its TTL", "key", key, "kept", len(u.keys))
		return
	}
	u.keys[key] = struct{}{}
}

func (u *unsent) len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.keys)
}

func (u *unsent) run() {
	defer close(u.done)
	tick := time.NewTicker(resendEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			u.resend()
		case <-u.stop:
			u.resend()
			return
		}
	}
}

// resend sends all keys once. They leave the list first: one that is added meanwhile belongs to a later write, and must stay.
func (u *unsent) resend() {
	u.mu.Lock()
	keys := u.keys
	u.keys = make(map[string]struct{})
	u.mu.Unlock()
	if len(keys) == 0 || u.send(context.Background(), slices.Collect(maps.Keys(keys))) == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.Copy(u.keys, keys) // with those that got through: twice does no harm
}

// close tries once more and ends the goroutine.
func (u *unsent) close() {
	close(u.stop)
	<-u.done
	if n := u.len(); n > 0 {
		u.log.Error("ended with invalidations that were not confirmed", "keys", n)
	}
}
