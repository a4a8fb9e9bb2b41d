// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// warming is one call of Warm: batch after batch it looks at the nodes, loads what is missing, and tells. Only the loads of one batch run at
// the same time, so that Done has no gaps.
type warming[V any] struct {
	WarmOptions
	c     *Cache[V]
	unit  int           // keys of one load
	below int           // places among the loads that may be taken, by anybody, before this takes one more
	turns chan struct{} // one for each load of this call under way
	looks *rate.Limiter // of keys
	loads *rate.Limiter // of keys

	slots []*slot[V]          // the present batch, each key once
	seen  map[string]struct{} // the same
	size  int                 // keys of the sequence in the batch
	last  string

	mu     sync.Mutex // guards what follows: nodes answer, and loads end, in parallel
	result WarmResult
	nodes  backoff
	source backoff

	told  time.Time // of the last measurement of speed
	keys  int       // dealt with since
	speed float64
}

func newWarming[V any](c *Cache[V], o WarmOptions) *warming[V] {
	places := c.client.cfg.MaxLoads
	w := &warming[V]{
		WarmOptions: o, c: c, unit: 1, below: max(1, places-places/4), turns: make(chan struct{}, max(1, int(o.Share*float64(places)))),
		seen: make(map[string]struct{}, o.Batch), told: time.Now(),
	}
	if c.cfg.LoadMany != nil {
		w.unit = min(max(1, int(o.Rate/warmBursts)), c.cfg.MaxLoadKeys, o.Batch)
	}
	w.looks = rate.NewLimiter(rate.Limit(warmLooks*o.Rate), o.Batch)
	w.loads = rate.NewLimiter(rate.Limit(o.Rate), w.unit)
	return w
}

// add takes the next key of the sequence into the batch.
func (w *warming[V]) add(key string) {
	w.size++
	w.last = key
	if err := checkKey(key); err != nil {
		w.fails(key, err)
		return
	}
	if _, twice := w.seen[key]; twice {
		w.result.Present++
		return
	}
	w.seen[key] = struct{}{}
	w.slots = append(w.slots, w.c.slot(key))
}

// over says that the call ends. A closed cache is asked itself: ctx hears of it a moment later, and what fails because the cache is closed is no
// failure of the key.
func (w *warming[V]) over(ctx context.Context) bool { return ctx.Err() != nil || w.c.closed.Load() }

// batch deals with the keys of a batch. It is done when the call has not ended meanwhile.
func (w *warming[V]) batch(ctx context.Context) {
	if w.size == 0 || w.over(ctx) {
		return
	}
	missing := w.look(ctx)
	w.load(ctx, missing)
	if w.over(ctx) {
		return
	}
	w.result.Done += int64(w.size)
	w.result.Last = w.last
	w.tell(time.Now())
	w.slots, w.size = nil, 0
	clear(w.seen)
}

// look asks the nodes for the batch's entries, all nodes at once, and returns what is to be loaded, in the order of the sequence: neighbours there may
// be neighbours in the source. The keys of a node that does not answer have
// failed: what is loaded for them could not be stored.
func (w *warming[V]) look(ctx context.Context) []*slot[V] {
	w.pause(ctx, &w.nodes)
	sleep(ctx, w.looks.ReserveN(time.Now(), len(w.slots)).Delay())
	groups := make(map[int][]*slot[V])
	for _, s := range w.slots {
		groups[s.owner] = append(groups[s.owner], s)
	}
	answered, lost := 0, 0
	wanted := make(map[*slot[V]]struct{})
	var nodes sync.WaitGroup
	for _, group := range groups {
		nodes.Go(func() {
			found, err := w.lookAt(ctx, group)
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, s := range found {
				wanted[s] = struct{}{}
			}
			if err == nil {
				answered++
			} else if !w.over(ctx) {
				lost++
			}
		})
	}
	nodes.Wait()
	w.nodes.note(answered, lost)
	return slices.DeleteFunc(w.slots, func(s *slot[V]) bool {
		_, is := wanted[s]
		return !is
	})
}

// lookAt is one node's part of look. After a command that failed the node is not asked again in this batch.
func (w *warming[V]) lookAt(ctx context.Context, group []*slot[V]) (missing []*slot[V], failed error) {
	lost := new(trouble)
	for _, s := range group {
		s.trouble = lost
	}
	for len(group) > 0 && !w.over(ctx) {
		part := group[:min(len(group), group[0].node.BatchKeys(maxKeys))]
		group = group[len(part):]
		names := make([]string, len(part)+1)
		for i, s := range part {
			names[i] = s.names.Data
		}
		names[len(part)] = w.c.names.of.Generation
		var vals [][]byte
		if failed == nil {
			if vals, failed = part[0].node.MGet(ctx, names); failed != nil && !w.over(ctx) {
				w.c.counters.nodeErrors.Add(1)
			}
		}
		for i, s := range part {
			err := failed
			f := absent
			if err == nil && w.c.owes(s) {
				err = errOwed
			}
			if err == nil {
				var e entry[V]
				f, err = s.look(ctx, vals[i], invalidation.ParseGeneration(vals[len(part)]), &e)
			}
			switch {
			case err != nil && w.over(ctx):
			case err != nil:
				w.unreached(s, err)
			case w.Refresh || (f != fresh && f != softened):
				missing = append(missing, s)
			default:
				w.count(&w.result.Present)
			}
		}
	}
	return missing, cmp.Or(failed, lost.met())
}

// load loads keys, a unit at a time, several units at once where there are places, and returns when all are through or ctx has ended.
func (w *warming[V]) load(ctx context.Context, slots []*slot[V]) {
	var units sync.WaitGroup
	defer units.Wait()
	for unit := range slices.Chunk(slots, w.unit) {
		select {
		case w.turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		w.pause(ctx, &w.source) // not before the turn: the load that made room may have failed
		sleep(ctx, w.loads.ReserveN(time.Now(), len(unit)).Delay())
		place := w.place(ctx)
		if place == nil {
			<-w.turns
			return
		}
		units.Go(func() {
			defer func() { <-w.turns }()
			w.loadUnit(ctx, unit, place)
		})
	}
}

// place takes a place among the loads when one is to spare; nil when ctx has ended. It looks again and again instead of queueing: in the queue it would
// be in front of users who come later.
func (w *warming[V]) place(ctx context.Context) *stampede.Place {
	for poll := pollMin; !w.over(ctx); poll = min(2*poll, pollMax/2) {
		if place, ok := w.c.client.limiter.TryAcquireBelow(w.below); ok {
			return place
		}
		sleep(ctx, w.c.jittered(poll))
	}
	return nil
}

func (w *warming[V]) count(n *int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

func (w *warming[V]) fails(key string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Failed++
	if len(w.result.Failures) < maxFailures {
		w.result.Failures = append(w.result.Failures, &KeyError{key, err})
	}
}

// unreached is fails for a key whose node did not answer.
func (w *warming[V]) unreached(s *slot[V], err error) {
	w.fails(s.key, &NodeError{Node: s.nodeID(), Cache: w.c.cfg.Name, Op: "warm", Keys: []string{s.key}, Err: err})
}

// tell measures the speed and calls Progress.
func (w *warming[V]) tell(now time.Time) {
	w.keys += w.size
	if dt := now.Sub(w.told).Seconds(); dt > 0 {
		speed := float64(w.keys) / dt
		if w.speed > 0 {
			old := math.Exp(-dt / 15) // after 30 s a seventh is left of what was
			speed = old*w.speed + (1-old)*speed
		}
		w.told, w.keys, w.speed = now, 0, speed
	}
	if w.Progress == nil {
		return
	}
	p := WarmProgress{WarmResult: w.result, Total: w.Total, Speed: w.speed}
	p.Failures = slices.Clip(p.Failures) // who appends to it must not write into ours
	if left := float64(p.Total - p.Done); left > 0 && w.speed > 0 {
		p.Left = time.Duration(min(left/w.speed, MaxTTL.Seconds()) * float64(time.Second))
	}
	w.Progress(p)
}

// backoff is the pause that failures have earned.
type backoff struct {
	in    int // steps in a row in which nothing went well
	pause time.Duration
}

const (
	warmPauseMin = 100 * time.Millisecond
	warmPauseMax = 10 * time.Second
)

// note takes in how a step went: how much of it went well, and how much failed. A failure beside successes earns the shortest pause, since the
// rest can go on.
func (b *backoff) note(well, failed int) {
	switch {
	case well > 0:
		b.in, b.pause = 0, 0
		if failed > 0 {
			b.pause = warmPauseMin
		}
	case failed > 0:
		b.pause = min(warmPauseMin<<min(b.in, 10), warmPauseMax)
		b.in++
	}
}

// pause serves the pause that is due.
func (w *warming[V]) pause(ctx context.Context, b *backoff) {
	w.mu.Lock()
	due := b.pause
	b.pause = 0
	w.mu.Unlock()
	sleep(ctx, w.c.jittered(due))
}
