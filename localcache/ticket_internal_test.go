// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"fmt"
	"testing"
	"time"
)

// Each row is an order of calls on one key and how its last Commit must end.
func TestTicketOrders(t *testing.T) {
	const ttl = time.Minute
	now := time.Now()
	end := now.Add(ttl)
	tests := []struct {
		name string
		run  func(c *Cache[string]) bool
		want bool
		left string // value that Get must find afterwards; "" for a miss
	}{
		{"begin, commit", func(c *Cache[string]) bool {
			return c.Commit(c.Begin("k"), "v", 1, end, now)
		}, true, "v"},
		{"invalidated between begin and commit", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Invalidate("k")
			return c.Commit(a, "old", 1, end, now)
		}, false, ""},
		{"cleared between begin and commit", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Clear()
			return c.Commit(a, "old", 1, end, now)
		}, false, ""},
		{"invalidated before begin", func(c *Cache[string]) bool {
			c.Invalidate("k")
			return c.Commit(c.Begin("k"), "v", 1, end, now)
		}, true, "v"},
		{"another key invalidated", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Invalidate("other")
			return c.Commit(a, "v", 1, end, now)
		}, true, "v"},
		{"a later begin does not make an old ticket good again", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Invalidate("k")
			c.Begin("k")
			return c.Commit(a, "old", 1, end, now)
		}, false, ""},
		{"the refusal of an old ticket leaves the new one good", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Invalidate("k")
			b := c.Begin("k")
			c.Commit(a, "old", 1, end, now)
			return c.Commit(b, "new", 1, end, now)
		}, true, "new"},
		{"an old ticket after the new one has filled", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Invalidate("k")
			c.Commit(c.Begin("k"), "new", 1, end, now)
			return c.Commit(a, "old", 1, end, now)
		}, false, "new"},
		{"cancelling an old ticket leaves the new one good", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Invalidate("k")
			b := c.Begin("k")
			c.Cancel(a)
			return c.Commit(b, "new", 1, end, now)
		}, true, "new"},
		{"invalidation voids every holder", func(c *Cache[string]) bool {
			a, b := c.Begin("k"), c.Begin("k")
			c.Invalidate("k")
			return c.Commit(a, "old", 1, end, now) || c.Commit(b, "old", 1, end, now)
		}, false, ""},
		{"one holder cancels, the other fills", func(c *Cache[string]) bool {
			a, b := c.Begin("k"), c.Begin("k")
			c.Cancel(a)
			return c.Commit(b, "v", 1, end, now)
		}, true, "v"},
		{"the first holder to answer fills", func(c *Cache[string]) bool {
			a, b := c.Begin("k"), c.Begin("k")
			c.Commit(b, "quick", 1, end, now)
			return c.Commit(a, "slow", 1, end, now)
		}, false, "quick"},
		{"cancel after commit does not touch a later ticket", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Commit(a, "v", 1, end, now)
			b := c.Begin("k")
			c.Cancel(a)
			return c.Commit(b, "w", 1, end, now)
		}, true, "w"},
		{"cancel after a commit refused for its size does not touch a later ticket", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Commit(a, "big", 1<<40, end, now)
			b := c.Begin("k")
			c.Cancel(a)
			return c.Commit(b, "w", 1, end, now)
		}, true, "w"},
		{"commit after cancel", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Cancel(a)
			return c.Commit(a, "v", 1, end, now)
		}, false, ""},
		{"commit twice", func(c *Cache[string]) bool {
			a := c.Begin("k")
			c.Commit(a, "v", 1, end, now)
			return c.Commit(a, "w", 1, end, now)
		}, false, "v"},
		{"the zero ticket", func(c *Cache[string]) bool {
			return c.Commit(Ticket{}, "v", 1, end, now)
		}, false, ""},
		{"the zero ticket while the empty key is open", func(c *Cache[string]) bool {
			c.Begin("")
			return c.Commit(Ticket{}, "v", 1, end, now)
		}, false, ""},
		{"over on arrival", func(c *Cache[string]) bool {
			return c.Commit(c.Begin("k"), "v", 1, now, now)
		}, false, ""},
		{"negative size", func(c *Cache[string]) bool {
			return c.Commit(c.Begin("k"), "v", -1, end, now)
		}, false, ""},
		{"absurd size", func(c *Cache[string]) bool {
			return c.Commit(c.Begin("k"), "v", 1<<63-1, end, now)
		}, false, ""},
		{"a refused value leaves the old entry", func(c *Cache[string]) bool {
			c.Commit(c.Begin("k"), "v", 1, end, now)
			return c.Commit(c.Begin("k"), "big", 1<<40, end, now)
		}, false, "v"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c, err := New[string](Config{})
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.run(c); got != tc.want {
				t.Errorf("last Commit = %v, want %v", got, tc.want)
			}
			check(t, c)
			if v, ok := c.Get("k", now); v != tc.left || ok != (tc.left != "") {
				t.Errorf("Get = %q, %v; want %q", v, ok, tc.left)
			}
		})
	}
}

// world is one key in a source, a cache in front of it, and actors that each have a list of steps to take in order.
type world struct {
	cache  *Cache[int]
	source int
}

type actor []func(w *world)

func reader() actor {
	var t Ticket
	var v int
	return actor{
		func(w *world) { t = w.cache.Begin("k") },
		func(w *world) { v = w.source },
		func(w *world) { now := time.Now(); w.cache.Commit(t, v, 1, now.Add(time.Hour), now) },
	}
}

// lateReader takes its ticket after it has read: the mistake that tickets cannot help against.
func lateReader() actor {
	var v int
	return actor{
		func(w *world) { v = w.source },
		func(w *world) {
			now := time.Now()
			w.cache.Commit(w.cache.Begin("k"), v, 1, now.Add(time.Hour), now)
		},
	}
}

func quitter() actor {
	var t Ticket
	return actor{
		func(w *world) { t = w.cache.Begin("k") },
		func(w *world) { w.cache.Cancel(t) },
	}
}

func writer() actor {
	return actor{
		func(w *world) { w.source++ },
		func(w *world) { w.cache.Invalidate("k") },
	}
}

func clearer() actor {
	return actor{
		func(w *world) { w.source++ },
		func(w *world) { w.cache.Clear() },
	}
}

// orders calls f with every order in which actors with so many steps can take them: a list of actors' indices.
func orders(left []int, prefix []int, f func([]int)) {
	done := true
	for i := range left {
		if left[i] == 0 {
			continue
		}
		done = false
		left[i]--
		orders(left, append(prefix, i), f)
		left[i]++
	}
	if done {
		f(prefix)
	}
}

// explore runs every order and returns how many there are and in how many the cache ends with an old value, with the
// first such order.
func explore(t testing.TB, makers []func() actor) (total, bad int, first string) {
	t.Helper()
	left := make([]int, len(makers))
	for i, m := range makers {
		left[i] = len(m())
	}
	orders(left, nil, func(order []int) {
		total++
		w := &world{}
		var err error
		if w.cache, err = New[int](Config{Shards: 1}); err != nil {
			t.Fatal(err)
		}
		actors := make([]actor, len(makers))
		for i, m := range makers {
			actors[i] = m()
		}
		next := make([]int, len(makers))
		for _, i := range order {
			actors[i][next[i]](w)
			next[i]++
		}
		check(t, w.cache)
		if v, ok := w.cache.Get("k", time.Now()); ok && v != w.source {
			if bad++; first == "" {
				first = fmt.Sprint(order)
			}
		}
		if open := w.cache.Stats().Open; open != 0 {
			t.Fatalf("order %v: %d keys open though every ticket was ended", order, open)
		}
	})
	return total, bad, first
}

// In every order in which two readers, two writers (or a loss of the connection) and one who gives up can take their
// steps, the cache ends empty or with the newest value. The last row shows that the exploration can find the fault
// that tickets exist for.
func TestEveryOrder(t *testing.T) {
	type list = []func() actor
	for _, tc := range []struct {
		name   string
		actors list
		faulty bool
	}{
		{"two readers, two writers", list{reader, reader, writer, writer}, false},
		{"two readers, a quitter, a writer", list{reader, reader, quitter, writer}, false},
		{"two readers, a writer, a clear", list{reader, reader, writer, clearer}, false},
		{"ticket taken after the read", list{lateReader, writer}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			total, bad, first := explore(t, tc.actors)
			t.Logf("%d orders, %d end with an old value", total, bad)
			if (bad > 0) != tc.faulty {
				t.Errorf("%d of %d orders end with an old value, the first is %s", bad, total, first)
			}
		})
	}
}

// Tickets that nobody ends are bounded a shard, and do not keep others from filling.
func TestLostTickets(t *testing.T) {
	c, err := New[int](Config{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 5 * maxOpen {
		c.Begin(fmt.Sprint("lost", i))
		c.Begin("lost often")
	}
	check(t, c)
	if open := c.Stats().Open; open != 2*maxOpen {
		t.Errorf("%d keys open, want %d", open, 2*maxOpen)
	}
	if c.Stats().Displaced == 0 {
		t.Error("displaced keys were not counted")
	}
	for i := range 100 {
		if tk := c.Begin(fmt.Sprint("new", i)); !c.Commit(tk, i, 8, now.Add(time.Minute), now) {
			t.Fatalf("fill %d refused", i)
		}
	}
	c.Clear()
	if st := c.Stats(); st.Open != 0 || st.Entries != 0 || st.Bytes != 0 {
		t.Errorf("after Clear: %+v", st)
	}
}
