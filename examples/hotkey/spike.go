// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/client"
)

const (
	slot    = 50 * time.Millisecond
	rows    = 2000
	hotPart = 0.8 // of the reads, in the spike
	readers = 8   // goroutines a process, each as fast as it can
)

// course is how long everything takes, and what is asked of it.
type course struct {
	calm, lasts time.Duration // before the spike, when all keys are alike; and the spike
	relief      time.Duration // within which the busiest node is to be relieved
	uneven      float64       // at most so many times the mean, with copies
	bots        int64         // keys that the first bot asks for
}

// The short course is for machines that are busy with other things.
var (
	longCourse  = course{calm: 1500 * time.Millisecond, lasts: 4 * time.Second, relief: time.Second, uneven: 1.25, bots: 100_000}
	shortCourse = course{calm: 500 * time.Millisecond, lasts: 2500 * time.Millisecond, relief: 1500 * time.Millisecond, uneven: 1.5, bots: 10_000}
)

func (c *course) slots() int { return int((c.calm + c.lasts) / slot) }

// spike is one run: who answered how many reads, in slots of time.
type spike struct {
	*course
	name string
	set  func(*client.CacheConfig[string])

	byNode [][nodeCount]atomic.Int64
	all    []atomic.Int64 // L1's included
	failed int64
}

func (s *spike) run(ctx context.Context, nodes *cluster) (err error) {
	s.byNode, s.all = make([][nodeCount]atomic.Int64, s.slots()), make([]atomic.Int64, s.slots())
	cfg := client.CacheConfig[string]{
		Name: "product-" + s.name, TTL: 10 * time.Minute,
		Load: func(_ context.Context, key string) (string, error) { return "product " + key, nil },
	}
	s.set(&cfg)
	caches, end, err := nodes.caches(ctx, processes, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if e := end(); err == nil {
			err = e
		}
	}()
	keys := make([]string, rows)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	if _, err := caches[0].GetMany(ctx, keys); err != nil { // everything is on the nodes
		return err
	}
	var wg sync.WaitGroup
	var failed atomic.Int64
	start := time.Now()
	for _, c := range caches {
		for range readers {
			wg.Go(func() { failed.Add(s.read(ctx, c, keys, start)) })
		}
	}
	wg.Wait()
	s.failed = failed.Load()
	relief, ok := s.relief()
	relieved := "never relieved"
	if ok {
		relieved = fmt.Sprint("relieved after ", relief)
	}
	fmt.Printf("%-8s %6.0f reads a second in the spike; the busiest node answers %3.0f %% of them, %s\n", s.name, s.rate(), 100*s.steady(), relieved)
	return nil
}

// read reads until the run is over, and says how many reads failed.
func (s *spike) read(ctx context.Context, c *client.Cache[string], keys []string, start time.Time) (failed int64) {
	for {
		at := time.Since(start)
		if at >= s.calm+s.lasts {
			return failed
		}
		key := keys[rand.IntN(len(keys))]
		if at >= s.calm && rand.Float64() < hotPart {
			key = keys[0]
		}
		r, err := c.Lookup(ctx, key)
		if err != nil {
			failed++
			continue
		}
		i := int(time.Since(start) / slot)
		if i >= s.slots() {
			continue
		}
		s.all[i].Add(1)
		if node := -1; r.Layer == client.LayerL2 {
			if _, err := fmt.Sscanf(r.Node, "node-%d", &node); err == nil {
				s.byNode[i][node].Add(1)
			}
		}
	}
}

// share is the busiest node's share of all reads in some slots.
func (s *spike) share(from, to int) float64 {
	var all int64
	var nodes [nodeCount]int64
	for i := from; i < to; i++ {
		all += s.all[i].Load()
		for n := range nodes {
			nodes[n] += s.byNode[i][n].Load()
		}
	}
	most := int64(0)
	for _, n := range nodes {
		most = max(most, n)
	}
	if all == 0 {
		return 0
	}
	return float64(most) / float64(all)
}

// steady is the busiest node's share in the second half of the spike.
func (s *spike) steady() float64 { return s.share(int((s.calm+s.lasts/2)/slot), s.slots()) }

// rate is the reads a second in that time.
func (s *spike) rate() float64 {
	all := int64(0)
	for i := int((s.calm + s.lasts/2) / slot); i < s.slots(); i++ {
		all += s.all[i].Load()
	}
	return float64(all) / (s.lasts / 2).Seconds()
}

// relief is the time from the spike's start until a half second begins in which, as in its first slot, the busiest node answers at most 1.5 times a node's even share. false: none does.
func (s *spike) relief() (after time.Duration, ok bool) {
	const window = int(500 * time.Millisecond / slot)
	first := int(s.calm / slot)
	for i := first; i+window <= s.slots(); i++ {
		if max(s.share(i, i+1), s.share(i, i+window)) <= 1.5*evenly {
			return time.Duration(i-first) * slot, true
		}
	}
	return s.lasts, false
}
