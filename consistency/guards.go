// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/go-shelf/shelf/internal/stalecheck"
)

// The guards that the tests break in one process, to see that a run then fails: in process 0, or in the blind one where a push would mend it at once.
const (
	guardInvalidate = "invalidate" // it writes the database, and only says that it has invalidated
	guardStore      = "store"      // it stores what it read before the write, with a plain SET
	guardOneClient  = "one client" // it writes through another client than it reads with
	guardPush       = "push"       // it is not told of changes, and lets its copies live on
)

// culprit is the process that a guard is broken in.
func culprit(guard string) int {
	if guard == guardOneClient {
		return blind
	}
	return 0
}

// writeBadly is a write by a program that does not know the protocol, or does not keep it.
func (s *service) writeBadly(ctx context.Context, k *kind, id string, absent bool) {
	op := s.rec.Begin()
	defer op.End()
	_, name := k.cache.Where(id)
	node := s.clients[0].Node(name)
	old, readErr := node.Get(ctx, name).Bytes()
	if _, err := s.update(ctx, k, id, absent); err != nil {
		return
	}
	inv := invalidation{kind: k, ids: []string{id}, began: stalecheck.Now()}
	var err error
	if s.Guard == guardStore {
		err = k.cache.Invalidate(ctx, id)
		if readErr == nil {
			_ = node.Set(ctx, name, old, time.Minute).Err() // that it fails now and then does not matter
		}
	}
	s.returned(inv, err)
}
