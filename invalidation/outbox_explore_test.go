// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"testing"

	"github.com/go-shelf/shelf/invalidation"
)

// outboxWorld is a database row, its copy on a node with a lease, and the outbox of the process
// that writes.
type outboxWorld struct {
	o       *invalidation.Outbox
	db      int
	copy    int // 0: none
	leased  bool
	loaded  int
	granted bool
	attempt []invalidation.Pending
	now     int
}

func (w *outboxWorld) void() { w.copy, w.leased = 0, false }

// The steps of those who take part, each in its order. The first write has failed to reach the node
// already.
func outboxPrograms() [][]func(*testing.T, *outboxWorld) {
	type step = func(*testing.T, *outboxWorld)
	return [][]step{
		{ // a writer whose invalidation does not reach the node
			func(_ *testing.T, w *outboxWorld) { w.db++ },
			func(t *testing.T, w *outboxWorld) { putFailed(t, w.o, "k", 0, 0, at(w.now)) },
		},
		{ // the loop that repeats
			func(_ *testing.T, w *outboxWorld) { w.attempt = w.o.Due(at(w.now), 9) },
			func(_ *testing.T, w *outboxWorld) {
				if w.attempt != nil {
					w.void()
				}
			},
			func(_ *testing.T, w *outboxWorld) {
				for _, p := range w.attempt {
					w.o.Done(p)
				}
			},
		},
		{ // a reader in another process, which does not know of the outbox
			func(_ *testing.T, w *outboxWorld) {
				if w.granted = w.copy == 0; w.granted {
					w.leased = true
				}
			},
			func(_ *testing.T, w *outboxWorld) { w.loaded = w.db },
			func(_ *testing.T, w *outboxWorld) {
				if w.granted && w.leased {
					w.copy, w.leased = w.loaded, false
				}
			},
		},
	}
}

// Every order of the steps ends without an old copy once the outbox is empty; and while there is an
// old copy after its invalidation has failed, the writer's process knows not to read it.
func TestOutboxEveryOrder(t *testing.T) {
	orders := 0
	var walk func(order []int, left [3]int)
	walk = func(order []int, left [3]int) {
		if left == [3]int{} {
			orders++
			runOutboxOrder(t, order)
			return
		}
		for i, n := range left {
			if n > 0 {
				next := left
				next[i]--
				walk(append(order[:len(order):len(order)], i), next)
			}
		}
	}
	walk(nil, [3]int{2, 3, 3})
	if orders != 560 {
		t.Errorf("%d orders, want 8!/(2!3!3!) = 560", orders)
	}
}

func runOutboxOrder(t *testing.T, order []int) {
	for _, copied := range []int{0, 1} { // the first write made version 2 of version 1
		w := &outboxWorld{o: newOutbox(t, invalidation.OutboxConfig{}), db: 2, copy: copied}
		putFailed(t, w.o, "k", 0, 0, at(0))
		programs := outboxPrograms()
		told := 2 // the newest version whose Invalidate has returned
		for _, who := range order {
			w.now += 1000
			programs[who][0](t, w)
			programs[who] = programs[who][1:]
			if who == 0 && len(programs[0]) == 0 {
				told = w.db
			}
			if w.copy != 0 && w.copy < told && !w.o.Has("k") {
				t.Fatalf("order %v: version %d can be read after the invalidation for %d returned", order, w.copy, told)
			}
		}
		for {
			w.now += 20_000
			batch := w.o.Due(at(w.now), 9)
			if batch == nil {
				break
			}
			w.void()
			for _, p := range batch {
				w.o.Done(p)
			}
		}
		if w.o.Has("k") || (w.copy != 0 && w.copy != w.db) {
			t.Fatalf("order %v: ends with copy %d of row %d, pending %v", order, w.copy, w.db, w.o.Has("k"))
		}
	}
}
