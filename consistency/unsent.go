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

// returned records an invalidation, as confirmed where it was, and keeps what failed, to be repeated. Of a call with keys those that were not
// reached are named.
func (s *service) returned(inv invalidation, err error) {
	rec := stalecheck.Invalidation{UpTo: inv.upTo, Began: inv.began, Returned: stalecheck.Now(), Failed: err != nil}
	if err != nil && !client.NodesOnly(err) {
		s.note("invalidate", err) // of a write that is nowhere recorded, or worse
		return
	}
	if inv.ids == nil {
		rec.Prefix = inv.kind.name + ":"
		if inv.tag != "" {
			rec.Keys = s.tagged(inv.kind, inv.tag)
		}
		s.rec.Invalidation(rec)
		if err != nil {
			s.unsent.add(inv)
		}
		return
	}
	failed := client.UnreachedKeys(err)
	for _, id := range inv.ids {
		one := rec
		one.Keys, one.Failed = []string{inv.kind.name + ":" + id}, slices.Contains(failed, id)
		s.rec.Invalidation(one)
	}
	if len(failed) > 0 {
		s.unsent.add(invalidation{kind: inv.kind, ids: failed})
	}
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

// unsent are the invalidations that failed, as a service keeps them that cannot leave old rows to their TTL.
type unsent struct {
	mu   sync.Mutex
	list []invalidation
	busy int // of those that were taken, how many are being repeated
}

const resendEvery = 200 * time.Millisecond

func (u *unsent) add(list ...invalidation) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list = append(u.list, list...)
}

func (u *unsent) len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.list) + u.busy
}

func (u *unsent) take() []invalidation {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.list
	u.list, u.busy = nil, len(list)
	return list
}

func (u *unsent) done() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy--
}

// resend repeats what failed until ctx ends, the keys of a cache in one call.
func (s *service) resend(ctx context.Context) {
	whole := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		pause(ctx, resendEvery)
		list := s.unsent.take()
		for i := range s.kinds {
			k := &s.kinds[i]
			var ids []string
			for _, inv := range list {
				if inv.kind == k && inv.ids != nil {
					ids = append(ids, inv.ids...)
				}
			}
			if slices.Sort(ids); len(ids) > 0 {
				s.again(whole, invalidation{kind: k, ids: slices.Compact(ids)})
			}
		}
		for _, inv := range list {
			if inv.ids == nil {
				s.again(whole, inv)
			}
			s.unsent.done()
		}
	}
}

func (s *service) again(ctx context.Context, inv invalidation) {
	op := s.rec.Begin()
	defer op.End()
	s.invalidate(ctx, inv)
}
