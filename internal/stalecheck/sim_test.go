// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck_test

import (
	"math/rand/v2"
	"time"

	"github.com/go-shelf/shelf/internal/stalecheck"
)

// broken says which guard of the simulated cache is missing. The zero value is a cache as it should be.
type broken struct {
	lease       bool // a fill does not look whether its lease is still there
	ticket      bool // L1 takes a value although an invalidation came between
	ownL1       bool // an invalidation forgets the own L1
	push        bool // pushes are lost, and nobody notices the silence
	blindTTL    bool // where nobody pushes, copies live on
	ttl         bool // entries do not expire
	negative    bool // an invalidation spares entries of absent rows
	order       bool // the invalidation comes before the database write
	version     bool // loads come from a replica that lags behind, and rows have no versions
	alien       bool // sometimes the node gives another key's row
	unconfirmed bool // no guard: some invalidations fail, honestly
	lagging     bool // no guard either: the source lags behind, and versions notice it
}

const (
	simPush  = 2               // processes 0 and 1 are told of changes
	simProcs = 3               // process 2 is not
	simKeys  = 6               // of the odd ones rows come and go
	simTTL   = 8 * time.Second // of entries
	simBlind = 2 * time.Second // of L1 copies that nobody pushes
	simLag   = 100 * time.Millisecond
)

// simRules are the promises of the client, in the simulation's times.
func simRules() []stalecheck.Rule {
	return []stalecheck.Rule{
		{Name: "P1", Covers: func(r *stalecheck.Read, _ string) bool { return r.Layer != stalecheck.L1 && !r.Marked }},
		{Name: "P2", Since: stalecheck.OwnConfirmed, Covers: func(r *stalecheck.Read, _ string) bool { return !r.Marked }},
		{Name: "P3 push", Bound: time.Second, Covers: func(r *stalecheck.Read, _ string) bool { return r.Layer == stalecheck.L1 && r.Process() < simPush }},
		{Name: "P3 blind", Bound: simBlind, Covers: func(r *stalecheck.Read, _ string) bool { return r.Layer == stalecheck.L1 && r.Process() >= simPush }},
		{Name: "TTL", Since: stalecheck.Committed, Bound: simTTL, Covers: func(r *stalecheck.Read, _ string) bool { return !r.Marked }},
	}
}

type simRow struct {
	version uint64
	absent  bool
	at      time.Duration // when it was committed, or, of an entry, when its load began
}

type simNode struct {
	entry   *simRow
	lease   int
	mark    uint64
	tracked [simPush]bool
}

type simCopy struct {
	row  simRow
	dies time.Duration
}

// sim is a cache of one node and three processes. It runs its tasks step by step, in an order that the seed gives, and each step takes up to 2 ms.
type sim struct {
	broken broken
	rand   *rand.Rand
	now    time.Duration
	tokens int

	source  [simKeys][]simRow
	node    [simKeys]simNode
	l1      [simProcs][simKeys]*simCopy
	tickets [simProcs][simKeys]int // moves on with each invalidation: voids what was taken before

	tasks   []step
	batches [simProcs]stalecheck.Batch
}

// step is a part of a task: what happens in one moment. It returns the next, or nil at the end.
type step func() step

// simulate runs so many steps. Each process has a few readers; a write comes now and then.
func simulate(seed uint64, b broken, steps int) *sim {
	s := &sim{broken: b, rand: rand.New(rand.NewPCG(seed, 1)), now: time.Second}
	for k := range s.source {
		s.source[k] = []simRow{{version: 1, at: s.now}}
		s.batches[0].Writes = append(s.batches[0].Writes, stalecheck.Write{Key: simKey(k), Version: 1, Value: simValue(k, 1), Began: s.now, Committed: s.now})
	}
	for range steps {
		s.now += time.Duration(1 + s.rand.IntN(int(2*time.Millisecond)))
		switch {
		case s.rand.IntN(60) == 0:
			s.tasks = append(s.tasks, s.write(s.rand.IntN(simProcs), min(s.rand.IntN(simKeys), s.rand.IntN(simKeys)))) // some often, some seldom
		case len(s.tasks) < 16:
			s.tasks = append(s.tasks, s.read(s.rand.IntN(simProcs), s.rand.IntN(simKeys)))
		}
		s.step(s.rand.IntN(len(s.tasks)))
	}
	for len(s.tasks) > 0 {
		s.now++
		s.step(len(s.tasks) - 1)
	}
	return s
}

func (s *sim) step(i int) {
	next := s.tasks[i]() // which may start tasks
	if s.tasks[i] = next; next == nil {
		s.tasks[i] = s.tasks[len(s.tasks)-1]
		s.tasks = s.tasks[:len(s.tasks)-1]
	}
}

// read is L1, then the node, then a miss.
func (s *sim) read(p, k int) step {
	var rec stalecheck.Read
	var row simRow
	var ticket int
	var asked time.Duration
	end := func() step {
		rec.Ended = s.now
		s.batches[p].Reads = append(s.batches[p].Reads, rec)
		return nil
	}
	commit := func() step {
		s.commit(p, k, ticket, row, asked)
		return end()
	}
	ask := func() step {
		n := &s.node[k]
		if n.entry == nil || !s.broken.ttl && s.now >= n.entry.at+simTTL {
			return s.miss(&rec, k, end)()
		}
		row = *n.entry
		if p < simPush {
			n.tracked[p] = true
		}
		s.saw(&rec, k, row, stalecheck.L2)
		if s.broken.alien && s.rand.IntN(100) == 0 {
			rec.Value++
		}
		return commit
	}
	local := func() step {
		if c := s.l1[p][k]; c != nil && s.now < c.dies {
			s.saw(&rec, k, c.row, stalecheck.L1)
			return end()
		}
		ticket, asked = s.tickets[p][k], s.now
		return ask
	}
	return func() step {
		rec = stalecheck.Read{Key: simKey(k), Began: s.now}
		return local
	}
}

// commit puts a value into L1 under a ticket.
func (s *sim) commit(p, k, ticket int, row simRow, asked time.Duration) {
	if s.tickets[p][k] != ticket && !s.broken.ticket {
		return
	}
	dies := asked + time.Minute
	if p >= simPush && !s.broken.blindTTL {
		dies = asked + simBlind
	}
	if !s.broken.ttl {
		dies = min(dies, row.at+simTTL)
	}
	s.l1[p][k] = &simCopy{row, dies}
}

// miss is lease, load, fill.
func (s *sim) miss(rec *stalecheck.Read, k int, end step) step {
	n := &s.node[k]
	var token int
	var floor uint64
	var row simRow
	fill := func() step {
		if (n.lease == token || s.broken.lease) && row.version >= n.mark {
			n.entry, n.lease = &row, 0
		}
		return end()
	}
	load := func() step {
		row = s.load(k)
		row.at = s.now
		s.saw(rec, k, row, stalecheck.Source)
		return fill
	}
	again := func() step {
		next := load()
		rec.Marked = row.version < floor
		return next
	}
	first := func() step {
		if next := load(); row.version >= floor {
			return next
		}
		return again
	}
	return func() step {
		s.tokens++
		token, floor = s.tokens, n.mark
		if n.lease == 0 {
			n.lease = token
		}
		return first
	}
}

// load reads the source as it is, or as it was a moment ago.
func (s *sim) load(k int) simRow {
	rows := s.source[k]
	if s.broken.version || s.broken.lagging {
		for len(rows) > 1 && rows[len(rows)-1].at > s.now-simLag {
			rows = rows[:len(rows)-1]
		}
	}
	return rows[len(rows)-1]
}

// write is the database, then the invalidation.
func (s *sim) write(p, k int) step {
	w := stalecheck.Write{Key: simKey(k)}
	inv := stalecheck.Invalidation{Keys: []string{simKey(k)}}
	var row simRow
	record := func() step {
		s.batches[p].Invalidations = append(s.batches[p].Invalidations, inv)
		return nil
	}
	committed := func() step {
		w.Version, w.Value, w.Absent, w.Committed = row.version, simValue(k, row.version), row.absent, s.now
		s.batches[p].Writes = append(s.batches[p].Writes, w)
		if s.broken.order {
			inv.Began, inv.Returned = s.now, s.now
			return record()
		}
		return s.invalidate(p, k, row.version, &inv, record)()
	}
	commit := func() step {
		last := s.source[k][len(s.source[k])-1]
		row = simRow{version: last.version + 1, absent: k%2 == 1 && !last.absent, at: s.now}
		s.source[k] = append(s.source[k], row)
		return committed
	}
	return func() step {
		w.Began = s.now
		if s.broken.order {
			return s.invalidate(p, k, 0, &inv, commit)
		}
		return commit
	}
}

// invalidate walks node, pushes, own L1.
func (s *sim) invalidate(p, k int, version uint64, inv *stalecheck.Invalidation, then step) step {
	end := func() step {
		inv.Returned = s.now
		return then()
	}
	own := func() step {
		if !s.broken.ownL1 {
			s.drop(p, k)
		}
		return end()
	}
	node := func() step {
		if s.broken.unconfirmed && s.rand.IntN(10) > 0 {
			inv.Failed = true
			return end()
		}
		s.remove(k, version)
		return own
	}
	return func() step {
		inv.Began = s.now
		if s.broken.lagging {
			inv.UpTo = version // for a write that crosses this one, nothing keeps a lagging row out yet
		}
		return node
	}
}

// remove is what an invalidation does on the node.
func (s *sim) remove(k int, version uint64) {
	n := &s.node[k]
	if n.entry == nil || !n.entry.absent || !s.broken.negative {
		n.entry = nil
	}
	n.lease = 0
	if !s.broken.version {
		n.mark = max(n.mark, version)
	}
	if s.broken.push {
		return
	}
	for q := range n.tracked {
		if n.tracked[q] {
			n.tracked[q] = false
			s.tasks = append(s.tasks, func() step { return func() step { s.drop(q, k); return nil } })
		}
	}
}

func (s *sim) drop(p, k int) {
	s.l1[p][k] = nil
	s.tickets[p][k]++
}

func (s *sim) saw(r *stalecheck.Read, k int, row simRow, l stalecheck.Layer) {
	r.Version, r.Value, r.Absent, r.Layer = row.version, simValue(k, row.version), row.absent, l
	if row.absent {
		r.Version, r.Value = 0, 0
	}
}

func simKey(k int) string { return string(rune('a' + k)) }

func simValue(k int, version uint64) uint64 { return uint64(k+1)<<32 | version }
