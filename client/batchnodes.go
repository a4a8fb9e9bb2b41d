// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"slices"
	"sync"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// watch reads entry and lease of the keys that others hold, settles those whose entry is there, and tells free from held.
func (r *batchRun[V]) watch(ctx context.Context, slots []*slot[V]) (free, held []*slot[V]) {
	r.wake.drop()
	slots = slices.DeleteFunc(slots, func(s *slot[V]) bool {
		if r.c.owes(s) {
			s.down = true
			free = append(free, s)
		}
		return s.down
	})
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

func (r *batchRun[V]) finish(s *slot[V], o outcome[V]) {
	o.gutter = s.gutter
	r.led.Finish(s.key, o, nil)
}

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
