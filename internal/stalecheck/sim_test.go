// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck_test

import (
	"iter"
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

	tasks   []func() (struct{}, bool)
	batches [simProcs]stalecheck.Batch
}

// pause ends a step.
type pause func(struct{}) bool

func (s *sim) start(task func(p pause)) {
	next, _ := iter.Pull(iter.Seq[struct{}](func(yield func(struct{}) bool) { task(yield) }))
	s.tasks = append(s.tasks, next)
}

// run runs so many steps. Each process has a few readers; a write comes now and then.
func simulate(seed uint64, b broken, steps int) *sim {
	s := &sim{broken: b, rand: rand.New(rand.NewPCG(seed, 1)), now: time.Second}
	for k := range s.source {
		s.source[k] = []simRow{{version: 1, at: s.now}}
		s.batches[0].Writes = append(s.batches[0].Writes, stalecheck.Write{Key: simKey(k), Version: 1, Value: simValue(k, 1), Began: s.now, Committed: s.now})
	}
	for range steps {
		s.now += time.Duration(1 + s.rand.IntN(int(2*time.Millisecond)))
		switch {
		case s.rand.IntN(150) == 0:
			s.start(func(p pause) { s.write(p, s.rand.IntN(simProcs), s.rand.IntN(simKeys)) })
		case len(s.tasks) < 8:
			s.start(func(p pause) { s.read(p, s.rand.IntN(simProcs), s.rand.IntN(simKeys)) })
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
	if _, more := s.tasks[i](); !more {
		s.tasks[i] = s.tasks[len(s.tasks)-1]
		s.tasks = s.tasks[:len(s.tasks)-1]
	}
}

func (s *sim) read(yield pause, p, k int) {
	rec := stalecheck.Read{Key: simKey(k), Began: s.now}
	defer func() {
		rec.Ended = s.now
		s.batches[p].Reads = append(s.batches[p].Reads, rec)
	}()
	yield(struct{}{})
	if c := s.l1[p][k]; c != nil && s.now < c.dies {
		s.saw(&rec, k, c.row, stalecheck.L1)
		return
	}
	ticket, asked := s.tickets[p][k], s.now
	yield(struct{}{})
	n := &s.node[k]
	if n.entry != nil && (s.broken.ttl || s.now < n.entry.at+simTTL) {
		row := *n.entry
		if p < simPush {
			n.tracked[p] = true
		}
		s.saw(&rec, k, row, stalecheck.L2)
		if s.broken.alien && s.rand.IntN(100) == 0 {
			rec.Value++
		}
		yield(struct{}{})
		s.commit(p, k, ticket, row, asked)
		return
	}
	s.miss(yield, &rec, k)
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
func (s *sim) miss(yield pause, rec *stalecheck.Read, k int) {
	n := &s.node[k]
	s.tokens++
	token, floor := s.tokens, n.mark
	if n.lease == 0 {
		n.lease = token
	}
	yield(struct{}{})
	began := s.now
	row := s.load(k)
	if row.version < floor {
		yield(struct{}{})
		began = s.now
		row = s.load(k)
		rec.Marked = row.version < floor
	}
	row.at = began
	s.saw(rec, k, row, stalecheck.Source)
	yield(struct{}{})
	if (n.lease == token || s.broken.lease) && row.version >= n.mark {
		n.entry, n.lease = &row, 0
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

func (s *sim) write(yield pause, p, k int) {
	w := stalecheck.Write{Key: simKey(k), Began: s.now}
	inv := stalecheck.Invalidation{Keys: []string{simKey(k)}}
	if s.broken.order {
		s.invalidate(yield, p, k, 0, &inv)
	}
	yield(struct{}{})
	last := s.source[k][len(s.source[k])-1]
	row := simRow{version: last.version + 1, absent: k%2 == 1 && !last.absent, at: s.now}
	s.source[k] = append(s.source[k], row)
	yield(struct{}{})
	w.Version, w.Value, w.Absent, w.Committed = row.version, simValue(k, row.version), row.absent, s.now
	s.batches[p].Writes = append(s.batches[p].Writes, w)
	if s.broken.order {
		inv.Began, inv.Returned = s.now, s.now
	} else {
		s.invalidate(yield, p, k, row.version, &inv)
	}
	s.batches[p].Invalidations = append(s.batches[p].Invalidations, inv)
}

// invalidate walks node, pushes, own L1.
func (s *sim) invalidate(yield pause, p, k int, version uint64, inv *stalecheck.Invalidation) {
	inv.Began = s.now
	if s.broken.lagging {
		inv.UpTo = version // for a write that crosses this one, nothing keeps a lagging row out yet
	}
	defer func() { inv.Returned = s.now }()
	yield(struct{}{})
	if s.broken.unconfirmed && s.rand.IntN(4) > 0 {
		inv.Failed = true
		return
	}
	n := &s.node[k]
	if n.entry == nil || !n.entry.absent || !s.broken.negative {
		n.entry = nil
	}
	n.lease = 0
	if !s.broken.version {
		n.mark = max(n.mark, version)
	}
	if !s.broken.push {
		for q := range n.tracked {
			if n.tracked[q] {
				n.tracked[q] = false
				s.start(func(yield pause) { yield(struct{}{}); s.drop(q, k) })
			}
		}
	}
	yield(struct{}{})
	if !s.broken.ownL1 {
		s.drop(p, k)
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
