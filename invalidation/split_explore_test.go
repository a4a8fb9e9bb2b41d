// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"cmp"
	"testing"
)

// The model of copies: one key with an owner and two further nodes, two processes that copy it there, a writer, a loader, and time. Every interleaving is walked over.
// What is bad: a node serves a copy of a row that is older than what an invalidation had announced when it returned.
//
// The owner's own protocol is explored elsewhere, so here a load is one step. Times are in ticks: what may take how long is what counts, not how long a tick is.
const (
	leaseTicks  = 2
	copyTicks   = 2
	recordTicks = 4 // more than both together
	rowsMade    = 2
)

// withoutGuard takes one guard of the protocol away.
type withoutGuard int

const (
	nothingAway      withoutGuard = iota
	noCopyLease                   // a copy is filled whether or not its lease is there
	leaseAfterRead                // the lease on the copy's node is taken after the owner was read
	recordAfterRead               // the record is written in a step after the read
	copiesFirst                   // an invalidation goes to the copies before the owner
	recordTooShort                // the record lives for less than lease and copy
	shrinksAtOnce                 // a smaller k forgets what was copied under the larger
	readsRecordAfter              // nothing wrong: the invalidation reads the record after the owner's entry went, in a step of its own
)

// place is a copy's node.
type place struct {
	row, ends        int8 // the copy, and when it ends; row 0: none
	lease, leaseEnds int8 // whose lease there is: copier+1
}

type copierAt struct {
	step, node, k int8
	row           int8 // that it has read
}

type writerAt struct {
	step  int8
	bound int8
	made  int8 // of its row
}

// record is what split.lua keeps: k is good until ends, bound until wide.
type record struct{ k, bound, wide, ends int8 }

type copyWorld struct {
	now       int8
	row, told int8 // the newest, and the newest whose invalidation has returned
	owner     int8 // the owner's entry
	record    record
	places    [2]place
	copiers   [2]copierAt
	writer    writerAt
}

// note is split.lua.
func (w *copyWorld) note(k int8, away withoutGuard) {
	life := int8(recordTicks)
	if away == recordTooShort {
		life = copyTicks
	}
	bound, wide := k, w.now+life
	if r := w.record; r.k > 0 && r.ends > w.now && away != shrinksAtOnce {
		b, ends := r.bound, r.wide
		switch {
		case ends <= w.now:
			b, ends = r.k, r.ends
		case k < r.k:
			ends = max(ends, r.ends)
		}
		if b > k {
			bound, wide = b, ends
		}
	}
	w.record = record{k, bound, wide, w.now + life}
}

func (w *copyWorld) bound() int8 {
	if w.record.ends <= w.now {
		return 0
	}
	return max(w.record.k, w.record.bound)
}

// next are all states that one step leads to.
func (w copyWorld) next(away withoutGuard, lastTick int8) (all []copyWorld) {
	step := func(f func(n *copyWorld)) { n := w; f(&n); n.sort(); all = append(all, n) }
	if w.now < lastTick {
		step(func(n *copyWorld) {
			n.now++
			for i := range n.places {
				p := &n.places[i]
				if p.row > 0 && p.ends <= n.now {
					p.row, p.ends = 0, 0
				}
				if p.lease > 0 && p.leaseEnds <= n.now {
					p.lease, p.leaseEnds = 0, 0
				}
			}
		})
	}
	if w.owner < w.row {
		step(func(n *copyWorld) { n.owner = n.row })
	}
	for c := range w.copiers {
		w.copying(c, away, step)
	}
	w.writing(away, step)
	return all
}

// copying are the steps of one copier: lease, read and note, fill. It begins anew whenever it has ended.
func (w *copyWorld) copying(c int, away withoutGuard, step func(func(*copyWorld))) {
	take := func(n *copyWorld, node int8) bool {
		p := &n.places[node]
		if p.lease > 0 {
			return false
		}
		p.lease, p.leaseEnds = int8(c)+1, n.now+leaseTicks
		return true
	}
	at := w.copiers[c]
	switch at.step {
	case 0: // lease; k is as this process has heard
		for node := range int8(2) {
			for k := node + 2; k <= 3; k++ {
				step(func(n *copyWorld) {
					if away == leaseAfterRead || take(n, node) {
						n.copiers[c] = copierAt{step: 1, node: node, k: k}
					}
				})
			}
		}
	case 1: // read the owner
		step(func(n *copyWorld) {
			if n.copiers[c].row = n.owner; n.owner == 0 {
				n.copiers[c] = copierAt{}
				return
			}
			if n.copiers[c].step = 2; away == recordAfterRead {
				return
			}
			if n.note(at.k, away); away != leaseAfterRead {
				n.copiers[c].step = 3
			}
		})
	case 2: // what is not one step any more
		step(func(n *copyWorld) {
			n.copiers[c].step = 3
			if away == recordAfterRead {
				n.note(at.k, away)
			} else if !take(n, at.node) {
				n.copiers[c] = copierAt{}
			}
		})
	case 3: // fill
		step(func(n *copyWorld) {
			p := &n.places[at.node]
			if p.lease == int8(c)+1 || away == noCopyLease {
				p.row, p.ends, p.lease, p.leaseEnds = at.row, n.now+copyTicks, 0, 0
			}
			n.copiers[c] = copierAt{}
		})
	}
}

// writing are the steps of the writer: the row, the owner, each copy that there can be, and that it says so.
func (w *copyWorld) writing(away withoutGuard, step func(func(*copyWorld))) {
	at := w.writer
	void := func(n *copyWorld, node int8) {
		if node+1 < n.writer.bound {
			n.places[node] = place{}
		}
	}
	owner := func(n *copyWorld) {
		n.owner, n.writer.bound = 0, n.bound()
	}
	order := []func(n *copyWorld){owner, func(n *copyWorld) { void(n, 0) }, func(n *copyWorld) { void(n, 1) }}
	switch away {
	case copiesFirst:
		order = []func(n *copyWorld){
			func(n *copyWorld) { n.writer.bound = n.bound(); void(n, 0) }, func(n *copyWorld) { void(n, 1) }, func(n *copyWorld) { n.owner = 0 },
		}
	case readsRecordAfter:
		order = append([]func(n *copyWorld){func(n *copyWorld) { n.owner = 0 }, func(n *copyWorld) { n.writer.bound = n.bound() }}, order[1:]...)
	}
	switch {
	case at.step == 0 && w.row < rowsMade:
		step(func(n *copyWorld) { n.row++; n.writer = writerAt{step: 1, made: n.row} })
	case at.step > 0 && int(at.step) <= len(order):
		step(func(n *copyWorld) { order[at.step-1](n); n.writer.step++ })
	case at.step > 0:
		step(func(n *copyWorld) { n.told = n.writer.made; n.writer = writerAt{} })
	}
}

// sort gives two states the same form in which only the names of the copiers differ.
func (w *copyWorld) sort() {
	a, b := w.copiers[0], w.copiers[1]
	if c := cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.node, b.node), cmp.Compare(a.k, b.k), cmp.Compare(a.row, b.row)); c <= 0 {
		return
	}
	w.copiers[0], w.copiers[1] = b, a
	for i := range w.places {
		if l := &w.places[i].lease; *l > 0 {
			*l = 3 - *l
		}
	}
}

func (w *copyWorld) bad() bool {
	for _, p := range w.places {
		if p.row > 0 && p.row < w.told {
			return true
		}
	}
	return false
}

// exploreCopies walks over all states, breadth first, and returns how many there are, and the steps to a bad one.
func exploreCopies(away withoutGuard, lastTick int8) (states int, bad []copyWorld) {
	return walkOver(copyWorld{row: 1, owner: 1}, func(w copyWorld) []copyWorld { return w.next(away, lastTick) }, func(w copyWorld) bool { return w.bad() })
}

// walkOver walks over all states that come after the first, breadth first, until one is what is looked for; then it returns the steps to it, the last first.
func walkOver[W comparable](first W, next func(W) []W, found func(W) bool) (states int, steps []W) {
	from := map[W]W{first: first}
	for queue := []W{first}; len(queue) > 0; queue = queue[1:] {
		w := queue[0]
		if found(w) {
			for ; w != first; w = from[w] {
				steps = append(steps, w)
			}
			return len(from), steps
		}
		for _, n := range next(w) {
			if _, seen := from[n]; !seen {
				from[n] = w
				queue = append(queue, n)
			}
		}
	}
	return len(from), nil
}

// TestEveryInterleavingOfCopies: none serves a row that an invalidation has announced as old; without any of the guards one does.
func TestEveryInterleavingOfCopies(t *testing.T) {
	const ticks = recordTicks // a record that was not renewed has just ended
	for _, away := range []withoutGuard{nothingAway, readsRecordAfter} {
		states, bad := exploreCopies(away, ticks)
		t.Logf("%d: %d states", away, states)
		if bad != nil {
			t.Errorf("%d: a bad state after %d steps, the last first:", away, len(bad))
			for _, w := range bad {
				t.Errorf("%+v", w)
			}
		}
		if states < 100_000 {
			t.Errorf("%d: %d states: most of what can happen did not", away, states)
		}
	}
}

func TestEveryGuardOfCopiesIsNeeded(t *testing.T) {
	for away, name := range map[withoutGuard]string{
		noCopyLease: "lease on the copy", leaseAfterRead: "lease before the read", recordAfterRead: "record in the step of the read", copiesFirst: "owner first",
		recordTooShort: "a record that outlives copies", shrinksAtOnce: "a bound that shrinks slowly",
	} {
		states, bad := exploreCopies(away, 5)
		if bad == nil {
			t.Errorf("without %s: no bad state in %d", name, states)
			continue
		}
		t.Logf("without %s: bad after %d steps", name, len(bad))
	}
}
