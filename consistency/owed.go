// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/stalecheck"
)

// invalidation is one call: of some keys, of a tag, or of everything.
type invalidation struct {
	kind  *kind
	ids   []string
	tag   string
	all   bool
	upTo  uint64 // it stores a row of this version
	began time.Duration
}

// invalidate makes the call, and records it.
func (s *service) invalidate(ctx context.Context, inv invalidation) {
	c := inv.kind.writer
	inv.began, inv.upTo = stalecheck.Now(), 0
	var err error
	switch {
	case inv.all:
		err = c.Clear(ctx)
	case inv.tag != "":
		err = c.InvalidateTag(ctx, inv.tag)
	case len(inv.ids) == 1:
		err = c.Invalidate(ctx, inv.ids[0])
	default:
		err = c.InvalidateMany(ctx, inv.ids)
	}
	s.returned(inv, err)
}

// returned records an invalidation, as confirmed where it was, and keeps what failed. Of a call with keys those that were not reached are named.
func (s *service) returned(inv invalidation, err error) {
	now := stalecheck.Now()
	if err != nil && !client.NodesOnly(err) {
		s.note("invalidate", err) // of a write that is nowhere recorded, or worse
		return
	}
	failed := inv.ids
	if err != nil && inv.ids != nil {
		failed = client.UnreachedKeys(err)
		if done := slices.DeleteFunc(slices.Clone(inv.ids), func(id string) bool { return slices.Contains(failed, id) }); len(done) > 0 {
			s.rec.Invalidation(s.record(inv, done, now))
		}
	}
	rec := s.record(inv, failed, now)
	if rec.Failed = err != nil; rec.Failed {
		inv.ids = failed
		s.owed.add(inv)
	}
	s.rec.Invalidation(rec)
}

// record is what the checker is told of an invalidation of these keys, or of its tag, or of everything.
func (s *service) record(inv invalidation, ids []string, returned time.Duration) stalecheck.Invalidation {
	rec := stalecheck.Invalidation{UpTo: inv.upTo, Began: inv.began, Returned: returned}
	switch {
	case inv.all:
		rec.Prefix = inv.kind.name + ":"
	case inv.tag != "":
		rec.Keys = s.tagged(inv.kind, inv.tag)
	}
	for _, id := range ids {
		rec.Keys = append(rec.Keys, inv.kind.name+":"+id)
	}
	return rec
}

// tagged are the keys of a tag.
func (s *service) tagged(k *kind, tag string) []string {
	var keys []string
	for n := range s.Keys {
		if key := fmt.Sprintf("%s:%d", k.name, n); tagOf(key) == tag {
			keys = append(keys, key)
		}
	}
	return keys
}

// owed are the invalidations that failed. The client repeats them by itself; when it owes nothing any more, all that had failed before that are through.
type owed struct {
	mu   sync.Mutex
	list []invalidation
}

func (o *owed) add(list ...invalidation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, list...)
}

func (o *owed) take() []invalidation {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.list = nil
	return list
}

func (o *owed) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.list)
}

// settle records what is through, if the client owes nothing. What fails between the two looks is put back: it may not be among what was worked off.
func (s *service) settle() {
	list := s.owed.take()
	if len(list) == 0 {
		return
	}
	for _, cl := range s.clients {
		if cl.Stats().Owed > 0 {
			s.owed.add(list...)
			return
		}
	}
	now := stalecheck.Now()
	for _, inv := range list {
		s.rec.Invalidation(s.record(inv, inv.ids, now))
	}
}
