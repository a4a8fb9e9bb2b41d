// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import "testing"

// The model of copies and restarts: an owner and one other node, each of which may be restarted from a snapshot once, or the owner fail over to a replica that lags; a process that copies, a writer that repeats what
// its owner may have forgotten, and whoever reads. Nothing ends by time here: copies of every key live for hours. Every interleaving is walked over. What is bad:
//
//   - the writer believes a copy that is older than what its invalidation had announced when it returned;
//   - so does somebody else who has met the owner's present run, where that run has carried out the invalidation, or was restarted and not failed over to.
//
// Of times it counts only what is from before a node's start.
//
// The rests that a run of the client takes between two copies are in it: a step may come at any time, or never.
type restartGuard int

const (
	allGuards       restartGuard = iota
	noSource                     // a copy is believed whatever history of the owner's writes it was read from
	sourceAfter                  // a copy names the history that the owner has when it was read
	noCopiedAt                   // a copy is believed though it was made before its node's start
	agedAsItsRow                 // not bad but useless: it is believed only if its entry is from after its node's start
	fillAnyRun                   // a copy's fill goes to whatever run of its node is there
	ownersLeftovers              // what an owner has from before its start is copied
	ownsNothing                  // the writer believes copies while it owes the invalidation to the owner's present run
	repeatsAtOwner               // what is repeated ends at the owner
)

// restartRow is a row as it lies somewhere, 0: none; and whether it was loaded before the owner's present run began, or the one of the copy's node.
type restartRow struct {
	row                   int8
	ownerBegan, nodeBegan bool
}

// restartOwner is the owner's run and what is there.
type restartOwner struct {
	run int8
	restartRow
	record bool // there may be a copy
}

// restartPlace is the run of the copy's node and the copy there, with the history that it was read from, and whether it was made before the run began.
type restartPlace struct {
	run int8
	restartRow
	source int8
	began  bool
	lease  bool
}

type restartWorld struct {
	row, told, since int8 // the newest; the newest whose invalidation has returned; and by which run of the owner it was carried out
	owner            restartOwner
	place            restartPlace
	ownerDisk        restartOwner // the snapshots, or what the owner's replica has; run 0: none
	disk             restartPlace
	promoted         bool // the owner's present run was a replica
	copier           struct {
		step, run, source int8
		restartRow
		began bool
	}
	writer struct {
		step, made, run, knows int8
		bound, owes            bool
	}
}

// ownerBack is the owner's new run with what was kept of it. What a replica holds is not older than its run.
func (w *restartWorld) ownerBack(replica bool) {
	run := w.owner.run + 1
	w.owner = w.ownerDisk
	w.owner.run, w.promoted = run, replica
	for _, r := range w.rows() {
		r.ownerBegan = !replica
	}
}

// placeBack is that of the copy's node.
func (w *restartWorld) placeBack() {
	run := w.place.run + 1
	w.place = w.disk
	w.place.run, w.place.began, w.copier.began = run, true, true
	for _, r := range w.rows() {
		r.nodeBegan = true
	}
}

func (w *restartWorld) rows() []*restartRow {
	return []*restartRow{&w.owner.restartRow, &w.place.restartRow, &w.ownerDisk.restartRow, &w.disk.restartRow, &w.copier.restartRow}
}

func (w restartWorld) next(away restartGuard) (all []restartWorld) {
	step := func(f func(n *restartWorld)) { n := w; f(&n); all = append(all, n) }
	if w.owner.row < w.row {
		step(func(n *restartWorld) { n.owner.restartRow = restartRow{row: n.row} })
	}
	if w.ownerDisk.run == 0 {
		step(func(n *restartWorld) { n.ownerDisk = n.owner })
	}
	if w.disk.run == 0 {
		step(func(n *restartWorld) { n.disk = n.place })
	}
	if w.owner.run == 1 {
		step(func(n *restartWorld) { n.ownerBack(false) })
		step(func(n *restartWorld) { n.ownerBack(true) })
	}
	if w.place.run == 1 {
		step(func(n *restartWorld) { n.placeBack() })
	}
	w.copies(away, step)
	w.writes(away, step)
	return all
}

// copies are the steps of who makes a copy.
func (w *restartWorld) copies(away restartGuard, step func(func(*restartWorld))) {
	switch at := w.copier; at.step {
	case 0: // the lease
		if !w.place.lease {
			step(func(n *restartWorld) { n.place.lease = true; n.copier.step, n.copier.run = 1, n.place.run })
		}
	case 1: // which history the owner has
		step(func(n *restartWorld) { n.copier.step, n.copier.source = 2, n.owner.run })
	case 2: // read the owner, and note that there may be a copy
		step(func(n *restartWorld) {
			o := &n.owner
			if leftover := o.ownerBegan && away != ownersLeftovers; o.run != at.source || o.row == 0 || leftover {
				n.copier, n.place.lease = restartWorld{}.copier, n.place.lease && n.place.run != at.run
				return
			}
			o.record = true
			n.copier.step, n.copier.restartRow = 3, o.restartRow
		})
	case 3: // make it
		step(func(n *restartWorld) {
			if n.copier.step, n.copier.began = 4, false; away == sourceAfter {
				n.copier.source = n.owner.run
			}
		})
	case 4: // fill
		step(func(n *restartWorld) {
			if p := &n.place; p.lease && (p.run == at.run || away == fillAnyRun) {
				p.restartRow, p.source, p.began, p.lease = at.restartRow, at.source, at.began, false
			}
			n.copier = restartWorld{}.copier
		})
	}
}

// writes are the steps of the writer, and of what it repeats once it has met the owner's new run.
func (w *restartWorld) writes(away restartGuard, step func(func(*restartWorld))) {
	void := func(n *restartWorld) {
		if n.writer.bound {
			n.place = restartPlace{run: n.place.run}
		}
	}
	owner := func(n *restartWorld) {
		n.owner.restartRow = restartRow{}
		n.writer.bound, n.writer.run = n.owner.record, n.owner.run
	}
	at := w.writer
	if at.knows != w.owner.run && at.step != 1 {
		step(func(n *restartWorld) { n.writer.knows, n.writer.owes = n.owner.run, true })
	}
	switch at.step {
	case 0:
		if w.row < 2 {
			step(func(n *restartWorld) { n.row++; n.writer.step, n.writer.made = 1, n.row })
		}
		if at.owes {
			step(func(n *restartWorld) { owner(n); n.writer.step = 4 })
		}
	case 1: // over a connection to the run that is there, which the writer has met by then
		step(func(n *restartWorld) {
			n.writer.owes = n.writer.owes || n.writer.knows != n.owner.run
			n.writer.knows = n.owner.run
			owner(n)
			n.writer.step = 2
		})
	case 2:
		step(func(n *restartWorld) { void(n); n.writer.step = 3 })
	case 3:
		step(func(n *restartWorld) { n.told, n.since, n.writer.step = at.made, at.run, 0 })
	case 4:
		step(func(n *restartWorld) {
			if away != repeatsAtOwner {
				void(n)
			}
			n.writer.step = 0
			if at.run == n.owner.run { // else the run that has it is gone, and it is owed still
				n.writer.owes, n.since = false, at.run
			}
		})
	}
}

// believed says whether somebody who knows the owner by a history believes the copy. Over a connection to its node's present run, whose start is known.
func (w *restartWorld) believed(knows int8, away restartGuard) bool {
	p, before := &w.place, w.place.began
	if away == agedAsItsRow {
		before = p.nodeBegan
	}
	return p.row > 0 && (p.source == knows || away == noSource) && (!before || away == noCopiedAt)
}

func (w *restartWorld) bad(away restartGuard) bool {
	if w.place.row >= w.told {
		return false
	}
	writer := w.believed(w.writer.knows, away) && (!w.writer.owes || away == ownsNothing)
	others := w.believed(w.owner.run, away) && (w.since == w.owner.run || !w.promoted)
	return writer || others
}

func newRestartWorld() (w restartWorld) {
	w.row, w.told, w.since = 1, 1, 1
	w.owner = restartOwner{run: 1, restartRow: restartRow{row: 1}}
	w.place.run, w.writer.knows = 1, 1
	return w
}

// TestEveryInterleavingOfCopiesAndRestarts: with all guards nobody believes an old copy; without any of them somebody does.
func TestEveryInterleavingOfCopiesAndRestarts(t *testing.T) {
	for away, name := range map[restartGuard]string{
		allGuards: "",
		noSource:  "the history that a copy names", sourceAfter: "naming it before the owner is read", noCopiedAt: "when a copy was made", fillAnyRun: "a fill to the lease's run alone",
		ownersLeftovers: "leaving alone what the owner has from before its start", ownsNothing: "reading no copy of what is owed", repeatsAtOwner: "repeating the walk to its end",
	} {
		states, steps := walkOver(newRestartWorld(), func(w restartWorld) []restartWorld { return w.next(away) }, func(w restartWorld) bool { return w.bad(away) })
		t.Logf("%d: %d states, %d steps", away, states, len(steps))
		switch {
		case name == "" && steps != nil:
			t.Errorf("%d: a bad state, the last step first:", away)
			for _, w := range steps {
				t.Errorf("%+v", w)
			}
		case name == "" && states < 50_000:
			t.Errorf("%d: %d states: most of what can happen did not", away, states)
		case name != "" && steps == nil:
			t.Errorf("without %s: no bad state in %d", name, states)
		}
	}
}

// TestCopiesAfterARestartAreBelieved: a copy that was made after its node's restart, of a row that is older than that, is believed, or the node would have none for as long as its rows live.
func TestCopiesAfterARestartAreBelieved(t *testing.T) {
	for away, want := range map[restartGuard]bool{allGuards: true, agedAsItsRow: false} {
		_, steps := walkOver(newRestartWorld(), func(w restartWorld) []restartWorld { return w.next(away) }, func(w restartWorld) bool {
			return w.place.run == 2 && w.place.nodeBegan && w.believed(w.owner.run, away)
		})
		if (steps != nil) != want {
			t.Errorf("%d: believed: %t, want %t", away, steps != nil, want)
		}
	}
}
