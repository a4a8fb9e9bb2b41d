// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/invalidation"
)

// world is one state of an exploration: a database row and its replica (only their version
// matters), the shelf, two readers, two writers, and how many keys may still be evicted.
type world struct {
	row, replica uint64
	shelf        shelf
	reader       [2]actor
	writer       [2]actor
	evictions    int
}

// actor is where a reader or writer stands, and the row version in its hands.
type actor struct {
	at      int
	version uint64
}

const done = 9

// rules are what an exploration varies.
type rules struct {
	off       guards
	versioned bool                   // loads and invalidations know the row version
	lag       bool                   // loads may go to the replica
	mode      invalidation.LeaseMode // of the second reader; the first misses
	forget    bool                   // the mark may be evicted too
}

// explorer walks every interleaving and counts the ends at which the shelf holds an old value.
type explorer struct {
	rules
	seen  map[world]bool
	bad   int
	first []string // the shortest way to a bad end
	path  []string
}

func (e *explorer) header(v uint64) uint64 {
	if e.versioned {
		return v
	}
	return 0
}

func (e *explorer) entry(v uint64) string { return entryOf(e.header(v), string(rune('0'+v))) }

func (e *explorer) count() {
	e.bad++
	if e.first == nil || len(e.path) < len(e.first) {
		e.first = append([]string{}, e.path...)
	}
}

func (e *explorer) walk(w world) {
	if e.seen[w] {
		return
	}
	e.seen[w] = true
	if w.quiet() && w.shelf.Data.Val != "" && w.shelf.Data.Val != e.entry(w.row) {
		e.count()
	}
	for i := range w.reader {
		e.readerSteps(w, i)
	}
	for i := range w.writer {
		e.writerSteps(w, i)
	}
	if e.lag && w.replica < w.row {
		n := w
		n.replica = w.row
		e.step("replica catches up", n)
	}
	if w.evictions > 0 {
		e.evictionSteps(w)
	}
}

func (w world) quiet() bool {
	for i := range 2 {
		if w.writer[i].at != done || w.reader[i].at != done && w.reader[i].at != 0 {
			return false
		}
	}
	return true
}

func (e *explorer) step(what string, w world) {
	e.path = append(e.path, what)
	e.walk(w)
	e.path = e.path[:len(e.path)-1]
}

func (e *explorer) readerSteps(w world, i int) {
	n, token, name := w, string(rune('A'+i)), fmt.Sprintf("reader %c", 'A'+i)
	r := &n.reader[i]
	switch r.at {
	case 0:
		mode := invalidation.LeaseMiss
		if i == 1 {
			mode = e.mode
		}
		r.at = done
		status := n.shelf.TakeLease(token, mode, 0, 1).Status
		if status == invalidation.Granted {
			r.at = 1
		}
		e.step(fmt.Sprintf("%s asks for the lease: %v", name, status), n)
	case 1:
		r.at = 2
		r.version = w.row
		e.step(fmt.Sprintf("%s loads version %d", name, r.version), n)
		if e.lag && w.replica != w.row {
			r.version = w.replica
			e.step(fmt.Sprintf("%s loads version %d from the replica", name, r.version), n)
		}
	case 2:
		r.at = done
		given := n
		got := n.shelf.Fill(invalidation.Filling{Token: token, Value: []byte(e.entry(r.version)), Version: e.header(r.version)}, e.off)
		e.step(fmt.Sprintf("%s fills version %d: %v", name, r.version, got), n)

		given.shelf.Release(token, 0, e.off)
		other := string(rune('A' + 1 - i))
		if w.shelf.Lease.Val == "t"+other && given.shelf.Lease.Val != "t"+other {
			e.count() // it removed somebody else's lease
		}
		e.step(name+" gives up and releases", given)
	}
}

func (e *explorer) writerSteps(w world, i int) {
	n := w
	wr := &n.writer[i]
	switch wr.at {
	case 0:
		n.row++
		wr.version, wr.at = n.row, 1
		e.step(fmt.Sprintf("writer %d writes version %d", i, n.row), n)
	case 1:
		wr.at = done
		n.shelf.Invalidate(e.header(wr.version), 0, e.off)
		e.step(fmt.Sprintf("writer %d invalidates version %d", i, wr.version), n)
	}
}

func (e *explorer) evictionSteps(w world) {
	for what, evict := range map[string]func(*shelf){
		"data": func(s *shelf) { s.Data = cell{} }, "lease": func(s *shelf) { s.Lease = cell{} },
		"mark": func(s *shelf) {
			if e.forget {
				s.Mark = cell{}
			}
		},
	} {
		n := w
		n.evictions--
		evict(&n.shelf)
		e.step(what+" is evicted", n)
	}
}

func explore(r rules, starts ...world) *explorer {
	e := &explorer{rules: r, seen: map[world]bool{}}
	for _, w := range starts {
		if w.shelf.Data.Val != "" {
			w.shelf.Data.Val = e.entry(w.row)
		}
		e.walk(w)
	}
	return e
}

// TestNoInterleavingLeavesAnOldValue walks every order of two readers, two writers and an eviction
// over the twin, which does what the scripts do. With all guards no end is bad; without any one of
// them some are, which shows that the exploration would find such a bug.
func TestNoInterleavingLeavesAnOldValue(t *testing.T) {
	there := shelf{Data: cell{Val: "filled in by explore"}}
	common := []world{{row: 1, replica: 1, evictions: 1}, {row: 1, replica: 1, shelf: there, evictions: 1}}
	expired := []world{{row: 2, replica: 1, shelf: there, writer: [2]actor{{at: done}, {at: done}}}} // the mark of version 2 has run out
	for _, c := range []struct {
		name   string
		rules  rules
		starts []world
		bad    bool
	}{
		{"no versions", rules{forget: true}, common, false},
		{"no versions, refresh", rules{forget: true, mode: invalidation.LeaseRefresh}, common, false},
		{"no versions, forced lease", rules{forget: true, mode: invalidation.LeaseForce}, common, false},
		{"versions", rules{versioned: true, forget: true}, common, false},
		{"lagging replica", rules{versioned: true, lag: true}, common, false},
		{"lagging replica, refresh", rules{versioned: true, lag: true, mode: invalidation.LeaseRefresh}, common, false},
		{"lagging replica, expired mark", rules{versioned: true, lag: true, mode: invalidation.LeaseRefresh}, expired, false},

		{"fill ignores the lease", rules{off: guards{AnyLease: true}}, common, true},
		{"invalidate keeps the lease", rules{off: guards{KeepLease: true}}, common, true},
		{"release is a plain DEL", rules{off: guards{PlainDel: true}}, common, true},
		{"fill ignores the mark", rules{versioned: true, lag: true, off: guards{NoMark: true}}, common, true},
		{"the later mark wins", rules{versioned: true, lag: true, off: guards{LastMark: true}}, common, true},
		{"fill ignores what is stored", rules{versioned: true, lag: true, mode: invalidation.LeaseRefresh, off: guards{NoStored: true}}, expired, true},
		{"lagging replica without versions", rules{lag: true}, common, true}, // what versions are for
	} {
		t.Run(c.name, func(t *testing.T) {
			e := explore(c.rules, c.starts...)
			t.Logf("%d states, %d bad", len(e.seen), e.bad)
			if c.bad != (e.bad > 0) {
				t.Errorf("%d bad ends, shortest way:\n  %s", e.bad, strings.Join(e.first, "\n  "))
			}
		})
	}
}
