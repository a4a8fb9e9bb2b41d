// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"sync"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/stalecheck"
)

// The phases of a run, as the checker knows them.
const (
	healthy = "healthy"
	struck  = "struck"
	mended  = "mended"
)

const (
	// pushSilence is how long a copy may outlive another process's invalidation where the node's pushes have fallen silent, as the README has it.
	pushSilence = time.Second
	tellEvery   = 100 * time.Millisecond
)

// rules are the promises of freshness that every drill checks, for every read.
func (w *world) rules() []stalecheck.Rule {
	is := func(l stalecheck.Layer) func(*stalecheck.Read, string) bool {
		return func(r *stalecheck.Read, _ string) bool { return r.Layer == l && !r.Marked && r.Class != replica }
	}
	rules := []stalecheck.Rule{
		{Name: "from a node", Covers: is(stalecheck.L2)},
		{Name: "from a load", Covers: func(r *stalecheck.Read, _ string) bool {
			return r.Layer == stalecheck.Source && !r.Marked && r.Class != unreached
		}},
		// A process that gets no answer from the owner cannot tell that a load which has begun is too old for who joins it now.
		{Name: "from a load, node lost", Bound: client.DefaultLoadTimeout, Covers: func(r *stalecheck.Read, _ string) bool {
			return r.Layer == stalecheck.Source && !r.Marked && r.Class == unreached
		}},
		{Name: "own copy", Bound: pushSilence, Covers: is(stalecheck.L1)},
		{Name: "own writes", Since: stalecheck.OwnConfirmed},
	}
	if w.stale > 0 {
		rules = append(rules, stalecheck.Rule{Name: "past its time", Bound: w.ttl + w.stale, Covers: func(r *stalecheck.Read, _ string) bool { return r.Marked }})
	}
	if w.replicas > 0 {
		rules = append(rules, stalecheck.Rule{Name: "from a replica", Bound: client.DefaultReplicaMaxLag, Covers: func(r *stalecheck.Read, _ string) bool { return r.Class == replica }})
	}
	return rules
}

// The classes of answers: of a replica, and those during which commands of the process to a node have failed or were not sent.
const (
	replica   = 1
	unreached = 2
)

// startChecker makes the checker, and tells it of the rows at the start.
func (w *world) startChecker() (err error) {
	n := len(w.processes)
	if w.checker, err = stalecheck.New(stalecheck.Config{Processes: n + 1, Rules: w.rules(), FailedCountsAsOwn: true}); err != nil {
		return err
	}
	b := stalecheck.Batch{Upto: stalecheck.Forever}
	now := stalecheck.Now()
	for _, id := range w.ids {
		row, _ := w.db.Peek(id)
		b.Writes = append(b.Writes, stalecheck.Write{Key: id, Version: row.Version, Value: uint64(row.PriceCents), Began: now, Committed: now})
	}
	w.checker.Phase(healthy, now)
	return w.checker.Add(n, b)
}

// tell hands what was recorded to the checker, every tenth of a second, until ctx ends.
func (w *world) tell(ctx context.Context) error {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		if err := w.tellOnce(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w.tellOnce()
		}
	}
}

func (w *world) tellOnce() error {
	for _, p := range w.processes {
		p.settle()
		if err := w.checker.Add(p.n, p.rec.Take()); err != nil {
			return err
		}
	}
	return nil
}

// owed are the invalidations that failed. The client repeats them by itself; when it owes nothing any more, all that had failed before that are through.
type owed struct {
	mu   sync.Mutex
	list []stalecheck.Invalidation
}

func (o *owed) add(list ...stalecheck.Invalidation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, list...)
}

func (o *owed) take() []stalecheck.Invalidation {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.list = nil
	return list
}

// settle records what is through, if the client owes nothing. What fails between the two looks is put back: it may not be among what was worked off.
func (p *process) settle() {
	list := p.owed.take()
	if len(list) == 0 {
		return
	}
	if p.client.Stats().Owed > 0 {
		p.owed.add(list...)
		return
	}
	now := stalecheck.Now()
	for _, inv := range list {
		inv.Failed, inv.Returned = false, now
		p.rec.Invalidation(inv)
	}
}
