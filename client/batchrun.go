// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/stampede"
)

// batchRun is lease, load, fill for many keys: the same protocol as stampede.Fetch, with every step done for all keys at once. One
// goroutine runs it.
type batchRun[V any] struct {
	c    *Cache[V]
	led  *stampede.Batch[outcome[V]]
	todo []*slot[V]
	mode stampede.Mode // of its leases: Miss (the zero), or Refresh for entries that are there and are to be loaded all the same
	left func() bool   // whether the caller has left

	wake *wake // of the keys that were watched last; nil without pushes
}

// grant is a key that this run loads: under a lease, or, where there is none, without filling.
type grant[V any] struct {
	*slot[V]
	token string // of the lease; "" where none was asked for or it was refused
	lost  bool   // the request's reply was: the token must not be used for a fill, but it is given back, in case the request was done
	floor uint64 // the row version that an invalidation announced
}

func (g *grant[V]) mayFill() bool { return g.token != "" && !g.lost }

// run works until every key has an answer: first it loads all that it can lease, then it watches what others hold, until it is there,
// can be leased, or WaitTimeout has passed and the rest is loaded without being stored.
func (r *batchRun[V]) run(ctx context.Context) {
	deadline := time.Now().Add(r.c.cfg.WaitTimeout)
	held := r.inParts(ctx, r.todo, false)
	defer func() { r.wake.drop() }()
	for poll := pollMin; len(held) > 0; poll = min(poll*2, pollMax) {
		left := time.Until(deadline)
		if left > 0 {
			r.sleep(ctx, min(r.c.jittered(poll), left))
		}
		free, others := r.watch(ctx, held) // once at the least: this run's own load may have taken all its patience
		held = append(others, r.inParts(ctx, free, false)...)
		if left <= 0 {
			r.inParts(ctx, held, true)
			return
		}
	}
}

// sleep returns after d, or when a key that was watched has changed.
func (r *batchRun[V]) sleep(ctx context.Context, d time.Duration) {
	if r.wake == nil {
		sleep(ctx, d)
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.wake.changed:
	case <-ctx.Done():
	}
}

// inParts is leaseAndLoad for any number of keys, one LoadMany call after the other. When the caller has left, the parts that have not begun are only loaded
// where somebody else waits for them: a call for very many keys must not keep the source busy long after nobody wants them.
func (r *batchRun[V]) inParts(ctx context.Context, slots []*slot[V], withoutLease bool) (held []*slot[V]) {
	begun := false
	for part := range slices.Chunk(slots, r.c.cfg.MaxLoadKeys) {
		if begun && r.left() {
			part = r.wanted(part)
		}
		if len(part) > 0 {
			held = append(held, r.leaseAndLoad(ctx, part, withoutLease)...)
		}
		begun = true
	}
	return held
}

// wanted drops the keys that only the caller wanted.
func (r *batchRun[V]) wanted(slots []*slot[V]) (rest []*slot[V]) {
	kept := r.led.Drop(keysOf(slots))
	for _, s := range slots {
		if len(kept) > 0 && kept[0] == s.key { // they are in the same order
			kept, rest = kept[1:], append(rest, s)
		}
	}
	return rest
}

// leaseAndLoad takes the limiter's place first, then the leases, then loads what it got, and returns what others hold.
func (r *batchRun[V]) leaseAndLoad(ctx context.Context, slots []*slot[V], withoutLease bool) (held []*slot[V]) {
	place, err := r.place(ctx, slots)
	if err != nil {
		err = r.c.explain(err, keysOf(slots)...)
		for _, s := range slots {
			r.fail(s, err)
		}
		return nil
	}
	var grants []grant[V]
	if withoutLease {
		for _, s := range slots {
			grants = append(grants, grant[V]{slot: s})
		}
	} else {
		grants, held = r.take(ctx, slots)
	}
	if len(grants) == 0 {
		place.Release()
		return held
	}
	r.led.Began()
	r.loadAndFill(ctx, grants, place)
	return held
}

// take asks for the leases, one pipeline a node, and settles the keys whose entries have come meanwhile.
func (r *batchRun[V]) take(ctx context.Context, slots []*slot[V]) (grants []grant[V], held []*slot[V]) {
	var mu sync.Mutex
	var up []*slot[V]
	for _, s := range slots {
		if r.c.owes(s) {
			s.down, s.cause = true, errOwed
		}
		if s.down {
			grants = append(grants, grant[V]{slot: s})
			continue
		}
		s.session = s.node.Session()
		up = append(up, s)
	}
	eachNode(up, nil, func(part []*slot[V]) error {
		tokens := make([]string, len(part))
		calls := make([]redisnode.Call, len(part))
		for i, s := range part {
			tokens[i] = rand.Text()
			calls[i] = wireCall(s.leaseCall(tokens[i], 0, r.mode))
		}
		r.led.Looked(keysOf(part))
		replies := part[0].session.EvalMany(ctx, calls)
		several(len(part), func(i int) bool { return isStubReply(replies[i].Reply) }, func(i int) {
			s := part[i]
			st, err := r.leased(ctx, s, tokens[i], replies[i])
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				s.down, s.cause = true, err
				grants = append(grants, grant[V]{slot: s, token: tokens[i], lost: true})
			case st.Found:
				r.finish(s, outcome[V]{entry: st.Entry, layer: LayerL2, storable: true})
			case st.Status == stampede.Granted:
				grants = append(grants, grant[V]{slot: s, token: tokens[i], floor: st.Floor})
			case st.Status == stampede.NoStore:
				grants = append(grants, grant[V]{slot: s})
			default:
				held = append(held, s)
			}
		})
		return troubleIn(replies)
	}, func(s *slot[V], failed error) {
		mu.Lock()
		defer mu.Unlock()
		s.down, s.cause = true, failed
		grants = append(grants, grant[V]{slot: s})
	})
	return grants, held
}

func (r *batchRun[V]) leased(ctx context.Context, s *slot[V], token string, reply redisnode.Result) (stampede.State[entry[V]], error) {
	if reply.Err != nil {
		r.c.counters.nodeErrors.Add(1)
		return stampede.State[entry[V]]{}, reply.Err
	}
	return s.taken(ctx, token, r.mode, reply.Reply)
}
