// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"maps"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/stampede"
)

// loadAndFill loads all grants in one LoadMany call, reads again once what is below its floor, fills, and settles every key. Leases that no fill
// has used up are given back on every way out.
func (r *batchRun[V]) loadAndFill(ctx context.Context, grants []grant[V], place *stampede.Place) {
	leases := make(map[string]*lease[V], len(grants))
	for _, g := range grants {
		if g.token != "" {
			leases[g.key] = &lease[V]{grant: g}
		}
	}
	defer r.releaseAll(ctx, leases)
	loaded, err := r.loadMany(ctx, grants, place)
	r.c.countFailure(err)
	if err != nil {
		r.releaseAll(ctx, leases) // before anybody hears of it: who tries again at once must not find them held
		err = r.c.explain(err, keysOfGrants(grants)...)
		for _, g := range grants {
			r.fail(g.slot, err)
		}
		return
	}
	r.loadAgain(ctx, grants, loaded)
	var fills, others []grant[V]
	for _, g := range grants {
		l := loaded[g.key]
		if g.mayFill() && !l.Unstorable && !below(l, g.floor) && !r.c.owes(g.slot) {
			fills = append(fills, g)
			continue
		}
		if g.token != "" {
			leases[g.key].noStore = l.Unstorable
		}
		others = append(others, g)
	}
	r.fill(ctx, fills, loaded, leases)
	r.releaseAll(ctx, leases)
	for _, g := range others {
		l := loaded[g.key]
		stale := below(l, g.floor)
		if stale {
			r.c.counters.loadsStale.Add(1)
		}
		r.finish(g.slot, outcome[V]{entry: l.Entry, layer: LayerSource, stale: stale, storable: !l.Unstorable, down: g.down})
	}
}

// lease is a granted lease on its way back.
type lease[V any] struct {
	grant[V]
	used    bool // by a fill that was answered, or given back
	noStore bool // the value cannot be stored: leave a marker, so that nobody waits for it
}

// below: a load that shows an older row than an invalidation announced, or none at all, comes from a source that lags.
func below[V any](l stampede.Loaded[entry[V]], floor uint64) bool {
	return floor > 0 && (l.Negative || l.Version < floor)
}

// loadAgain reads once more what came back older than its floor. What cannot be read again now is returned as stale.
func (r *batchRun[V]) loadAgain(ctx context.Context, grants []grant[V], loaded map[string]stampede.Loaded[entry[V]]) {
	var again []grant[V]
	for _, g := range grants {
		if below(loaded[g.key], g.floor) {
			again = append(again, g)
		}
	}
	if len(again) == 0 {
		return
	}
	place, err := r.c.client.limiter.Acquire(ctx)
	if err != nil {
		return
	}
	second, err := r.loadMany(ctx, again, place)
	if err == nil {
		maps.Copy(loaded, second)
	}
}

// loadMany is one call of the loader, under the guard: the place is given back when the loader has really ended. Keys that it does not
// return do not exist.
func (r *batchRun[V]) loadMany(ctx context.Context, grants []grant[V], place *stampede.Place) (loaded map[string]stampede.Loaded[entry[V]], err error) {
	keys := keysOfGrants(grants)
	call, err := r.c.source.begin(keys, false, time.Now())
	if err != nil {
		place.Release()
		return nil, err
	}
	defer func() { call.end(err, time.Now()) }() // one that hangs, or has panicked
	return stampede.Call(place.With(ctx), r.c.client.guard, r.c.cfg.LoadTimeout, func(ctx context.Context) (map[string]stampede.Loaded[entry[V]], error) {
		ctx, scope := scoped(ctx, r.c, keys)
		defer scope.over.Store(true)
		began := time.Now()
		r.c.counters.loads.Add(1)
		rows, err := r.c.loadRows(ctx, keys)
		if err != nil {
			call.end(whyOver(ctx, err), time.Now())
			return nil, err
		}
		loaded := make(map[string]stampede.Loaded[entry[V]], len(grants))
		for _, g := range grants {
			v, ok := rows[g.key]
			loaded[g.key] = r.c.loaded(g.key, v, !ok, scope, g.node, began, g.mayFill())
		}
		call.end(whyOver(ctx, nil), time.Now())
		return loaded, nil
	}, place.Release)
}

func keysOfGrants[V any](grants []grant[V]) []string {
	keys := make([]string, len(grants))
	for i, g := range grants {
		keys[i] = g.key
	}
	return keys
}

// fill stores, one pipeline a node and run of its server process.
func (r *batchRun[V]) fill(ctx context.Context, fills []grant[V], loaded map[string]stampede.Loaded[entry[V]], leases map[string]*lease[V]) {
	slots := make([]*slot[V], len(fills))
	for i, g := range fills {
		slots[i] = g.slot
	}
	size := func(s *slot[V]) int { return len(loaded[s.key].Entry.wire) }
	eachNode(slots, size, func(part []*slot[V]) error {
		r.led.Looked(keysOf(part))
		entryOf := func(s *slot[V]) *entry[V] { e := loaded[s.key].Entry; return &e }
		if err := stageAll(ctx, part, entryOf); err != nil {
			for _, s := range part {
				r.unfilled(s, loaded[s.key].Entry, err)
			}
			return err
		}
		calls := make([]redisnode.Call, len(part))
		for i, s := range part {
			calls[i] = wireCall(s.fillCall(leases[s.key].token, entryOf(s)))
		}
		replies := part[0].session.EvalMany(ctx, calls)
		for i, reply := range replies {
			s := part[i]
			o := outcome[V]{entry: loaded[s.key].Entry, layer: LayerSource, storable: true}
			o.entry.wire, o.entry.body, o.entry.stamp = nil, nil, s.gen.Seq
			if reply.Err != nil {
				r.c.counters.fillErrors.Add(1)
				o.down, o.cause = true, reply.Err
			} else if verdict, err := s.filled(reply.Reply); err == nil {
				o.refused, o.filled, o.stale = verdict == stampede.LeaseLost, verdict == stampede.Stored, verdict == stampede.Older
				leases[s.key].used = true
				if o.filled {
					r.c.copyFilled(s, o.entry.negative)
				}
			}
			r.finish(s, o)
		}
		return troubleIn(replies)
	}, func(s *slot[V], failed error) { r.unfilled(s, loaded[s.key].Entry, failed) })
}

// unfilled settles a key whose node did not answer when its value was to be stored.
func (r *batchRun[V]) unfilled(s *slot[V], e entry[V], cause error) {
	r.c.counters.fillErrors.Add(1)
	e.wire, e.body = nil, nil
	r.finish(s, outcome[V]{entry: e, layer: LayerSource, storable: true, down: true, cause: cause})
}

// releaseAll gives back what is left of the leases: those of loads that failed, were stale, or cannot be stored.
func (r *batchRun[V]) releaseAll(ctx context.Context, leases map[string]*lease[V]) {
	byKey := make(map[string]*lease[V])
	var slots []*slot[V]
	for k, l := range leases {
		if !l.used {
			l.used = true
			byKey[k] = l
			slots = append(slots, l.slot)
		}
	}
	eachNode(slots, nil, func(part []*slot[V]) error {
		calls := make([]redisnode.Call, len(part))
		for i, s := range part {
			calls[i] = wireCall(s.releaseCall(byKey[s.key].token, byKey[s.key].noStore))
		}
		replies := part[0].session.EvalMany(ctx, calls)
		for _, reply := range replies {
			if reply.Err != nil {
				r.c.counters.nodeErrors.Add(1)
			}
		}
		return troubleIn(replies)
	}, func(*slot[V], error) {}) // those leases end with their TTL
}
