// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"cmp"
	"context"

	"github.com/go-shelf/shelf/stampede"
)

// warmRun is the lease, load and fill of one load of Warm. It differs from a batchRun in what it does not do: it waits for nobody's lease, and
// loads nothing that it could not store.
type warmRun[V any] struct {
	batchRun[V]
	place *stampede.Place // held from before the leases until the end
}

// loadUnit loads some keys that are missing, and counts what became of them. The run goes on when ctx ends, and is not waited for then: what it
// has asked the source for is stored.
func (w *warming[V]) loadUnit(ctx context.Context, unit []*slot[V], place *stampede.Place) {
	byKey := make(map[string]*slot[V], len(unit))
	for _, s := range unit {
		byKey[s.key] = s
	}
	led, others, err := w.c.warms.Lead(ctx, keysOf(unit))
	if err != nil { // the call is over, or the cache
		place.Release()
		return
	}
	if len(led.Keys()) == 0 {
		place.Release()
	} else {
		run := &warmRun[V]{batchRun[V]{c: w.c, led: led}, place}
		if w.Refresh {
			run.mode = stampede.Refresh
		}
		for _, k := range led.Keys() {
			own := *byKey[k] // the run works on it when this call has left, perhaps
			run.todo = append(run.todo, &own)
		}
		led.Go(ctx, run.run)
	}
	for range others { // another Warm of this process is at them
		w.count(&w.result.Busy)
	}
	well, failed := len(others), 0
	for _, k := range led.Keys() {
		res, err := led.Wait(k).Get(ctx)
		switch {
		case err != nil && w.over(ctx):
			return
		case w.became(byKey[k], &res.Value, err):
			well++
		default:
			failed++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.source.note(well, failed)
}

// became counts what a key came to; false: it failed.
func (w *warming[V]) became(s *slot[V], o *outcome[V], err error) bool {
	switch {
	case err != nil:
		w.fails(s.key, err)
		return false
	case o.filled:
		if o.entry.negative {
			w.count(&w.result.Absent)
		}
		w.count(&w.result.Loaded)
	case o.layer == LayerNone:
		w.count(&w.result.Busy)
	case o.layer == LayerL2:
		w.count(&w.result.Present)
	case o.down:
		w.unreached(s, cmp.Or(o.cause, errDown))
		return false
	default:
		w.count(&w.result.Unstored)
	}
	return true
}

// run takes the leases and loads what it got under the place that the call has taken. Loads that it comes to begin with a share of that place, and so
// never queue for one.
func (r *warmRun[V]) run(ctx context.Context) {
	defer r.place.Release()
	ctx = r.place.With(ctx)
	grants, held := r.take(ctx, r.todo)
	for _, s := range held {
		r.finish(s, outcome[V]{layer: LayerNone}) // somebody loads it, and stores it
	}
	var fillable []grant[V]
	lost := make(map[string]*lease[V])
	for _, g := range grants {
		switch {
		case g.mayFill():
			fillable = append(fillable, g)
		case g.down:
			if g.token != "" {
				lost[g.key] = &lease[V]{grant: g}
			}
			r.finish(g.slot, outcome[V]{layer: LayerSource, down: true, cause: g.cause})
		default: // a marker says that the value cannot be stored
			r.finish(g.slot, outcome[V]{layer: LayerSource})
		}
	}
	if len(fillable) > 0 {
		share, _ := r.c.client.limiter.TryAcquire(ctx) // of the place that ctx holds: it is there
		r.led.Began()
		r.loadAndFill(ctx, fillable, share)
	}
	r.releaseAll(ctx, lost) // the node may have granted them and not been heard
}
