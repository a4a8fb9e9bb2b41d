// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
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
	place, err := r.c.client.limiter.Acquire(ctx)
	if err != nil {
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
			calls[i] = wireCall(s.leaseCall(tokens[i], r.mode))
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
				s.down = true
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
		s.down = true
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
		for _, g := range grants {
			r.fail(g.slot, err)
		}
		return
	}
	r.loadAgain(ctx, grants, loaded)
	var fills, others []grant[V]
	for _, g := range grants {
		l := loaded[g.key]
		if g.mayFill() && !l.Unstorable && !below(l, g.floor) {
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
func (r *batchRun[V]) loadMany(ctx context.Context, grants []grant[V], place *stampede.Place) (map[string]stampede.Loaded[entry[V]], error) {
	keys := make([]string, len(grants))
	for i, g := range grants {
		keys[i] = g.key
	}
	return stampede.Call(place.With(ctx), r.c.client.guard, r.c.cfg.LoadTimeout, func(ctx context.Context) (map[string]stampede.Loaded[entry[V]], error) {
		ctx, scope := scoped(ctx, r.c, keys)
		defer scope.over.Store(true)
		began := time.Now()
		r.c.counters.loads.Add(1)
		rows, err := r.c.loadRows(ctx, keys)
		if err != nil {
			return nil, err
		}
		loaded := make(map[string]stampede.Loaded[entry[V]], len(grants))
		for _, g := range grants {
			v, ok := rows[g.key]
			loaded[g.key] = r.c.loaded(g.key, v, !ok, scope, g.node, began)
		}
		return loaded, nil
	}, place.Release)
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
				r.unfilled(s, loaded[s.key].Entry)
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
				o.down = true
			} else if verdict, err := s.filled(reply.Reply); err == nil {
				o.refused, o.filled, o.stale = verdict == stampede.LeaseLost, verdict == stampede.Stored, verdict == stampede.Older
				leases[s.key].used = true
			}
			r.finish(s, o)
		}
		return troubleIn(replies)
	}, func(s *slot[V], _ error) { r.unfilled(s, loaded[s.key].Entry) })
}

// unfilled settles a key whose node did not answer when its value was to be stored.
func (r *batchRun[V]) unfilled(s *slot[V], e entry[V]) {
	r.c.counters.fillErrors.Add(1)
	e.wire, e.body = nil, nil
	r.finish(s, outcome[V]{entry: e, layer: LayerSource, storable: true, down: true})
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

// watch reads entry and lease of the keys that others hold, settles those whose entry is there, and tells free from held.
func (r *batchRun[V]) watch(ctx context.Context, slots []*slot[V]) (free, held []*slot[V]) {
	r.wake.drop()
	names := make([]string, 0, 2*len(slots))
	for _, s := range slots {
		names = append(names, s.names.Data, s.names.Lease)
	}
	r.wake = r.c.client.wakes.add(names...)
	var mu sync.Mutex
	eachNode(slots, nil, func(part []*slot[V]) error {
		names := make([]string, 0, 2*len(part)+1)
		for _, s := range part {
			names = append(names, s.names.Data, s.names.Lease)
		}
		names = append(names, r.c.names.of.Generation)
		r.led.Looked(keysOf(part))
		vals, _, err := watch(ctx, part[0].node, names)
		if err != nil {
			r.c.counters.nodeErrors.Add(1)
		}
		several(len(part), func(i int) bool { return err == nil && isStub(vals[2*i]) }, func(i int) {
			s, err := part[i], err
			var st stampede.State[entry[V]]
			if err == nil {
				st, err = s.watched(ctx, vals[2*i], vals[2*i+1], invalidation.ParseGeneration(vals[len(names)-1]))
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				s.fails(err)
				free = append(free, s)
			case st.Found:
				r.finish(s, outcome[V]{entry: st.Entry, layer: LayerL2, storable: true})
			case st.Status == stampede.Held:
				held = append(held, s)
			default:
				free = append(free, s)
			}
		})
		return err
	}, func(s *slot[V], failed error) {
		mu.Lock()
		defer mu.Unlock()
		s.fails(failed)
		free = append(free, s)
	})
	return free, held
}

func (r *batchRun[V]) finish(s *slot[V], o outcome[V]) { r.led.Finish(s.key, o, nil) }

func (r *batchRun[V]) fail(s *slot[V], err error) { r.led.Finish(s.key, outcome[V]{}, err) }

// eachNode calls f for the slots of each node, the nodes in parallel, in parts of at most maxScripts slots and about maxPipeline bytes (size
// tells what one needs; nil: next to nothing). Slots of one node whose leases were granted by different runs of its server are different nodes
// here. When f says that the node did not answer, the node's remaining slots go to rest, unasked: nobody waits for the same node twice.
func eachNode[V any](slots []*slot[V], size func(*slot[V]) int, f func(part []*slot[V]) (failed error), rest func(s *slot[V], failed error)) {
	type place struct {
		owner   int
		session *redisnode.Session
	}
	groups := make(map[place][]*slot[V])
	for _, s := range slots {
		p := place{s.owner, s.session}
		groups[p] = append(groups[p], s)
	}
	var wg sync.WaitGroup
	for _, group := range groups {
		wg.Go(func() {
			for len(group) > 0 {
				n := partOf(group, size)
				failed := f(group[:n])
				group = group[n:]
				for failed != nil && len(group) > 0 {
					rest(group[0], failed)
					group = group[1:]
				}
			}
		})
	}
	wg.Wait()
}

// partOf is how many slots go into one pipeline; at least one.
func partOf[V any](slots []*slot[V], size func(*slot[V]) int) (n int) {
	for bytes := 0; n < min(len(slots), maxScripts); n++ {
		if size != nil {
			bytes += size(slots[n])
		}
		if n > 0 && bytes > maxPipeline {
			break
		}
	}
	return n
}

// troubleIn is the first of the results that says that the node did not answer.
func troubleIn(results []redisnode.Result) error {
	for _, r := range results {
		if redisnode.IsTrouble(r.Err) {
			return r.Err
		}
	}
	return nil
}

func keysOf[V any](slots []*slot[V]) []string {
	keys := make([]string, len(slots))
	for i, s := range slots {
		keys[i] = s.key
	}
	return keys
}
