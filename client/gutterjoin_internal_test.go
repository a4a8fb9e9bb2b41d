// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/go-shelf/shelf/ring"
)

// gutterPair is two processes on three nodes, P and Q. P has found the owner of "k" down for a while, and Q finds it well.
type gutterPair struct {
	p, q  *Cache[int64]
	owner int
	row   atomic.Int64
	held  chan struct{} // while not nil, a load of "k" waits for its end before it returns what it has read
	loads atomic.Int64
}

func newGutterPair(t *testing.T, many bool) *gutterPair {
	t.Helper()
	g := new(gutterPair)
	g.row.Store(1)
	var nodes []ring.Node
	for i := range 3 {
		nodes = append(nodes, ring.Node{ID: "n" + strconv.Itoa(i), Addr: miniredis.RunT(t).Addr()})
	}
	load := func(context.Context, string) (int64, error) {
		row := g.row.Load()
		if g.loads.Add(1); g.held != nil {
			<-g.held
		}
		return row, nil
	}
	process := func() *Cache[int64] {
		cl, err := New(t.Context(), Config{Nodes: nodes, Gutter: true, OperationTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close(context.Background()) })
		cfg := CacheConfig[int64]{Name: "x", TTL: time.Hour, Load: load, LoadTimeout: time.Minute, L1: L1Off}
		if many {
			cfg.LoadMany = func(ctx context.Context, keys []string) (map[string]int64, error) {
				v, err := load(ctx, keys[0])
				return map[string]int64{keys[0]: v}, err
			}
		}
		c, err := NewCache(cl, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	g.p, g.q = process(), process()
	g.owner = g.p.slot("k").owner
	g.p.client.absences.begin(g.owner, time.Now().Add(-time.Minute))
	return g
}

// TestGutterLoadIsNotTheOwners: a load in the gutter is under way when the owner is back. Its lease is not the owner's, so it proves nothing to a reader who finds the
// owner well: what was invalidated there meanwhile, by a process that never found it down, is not what that reader gets.
func TestGutterLoadIsNotTheOwners(t *testing.T) {
	for name, read := range map[string]func(c *Cache[int64]) (int64, error){
		"Get": func(c *Cache[int64]) (int64, error) { return c.Get(context.Background(), "k") },
		"GetMany": func(c *Cache[int64]) (int64, error) {
			m, err := c.GetMany(context.Background(), []string{"k"})
			return m["k"], err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGutterPair(t, name == "GetMany")
			g.held = make(chan struct{})
			early := make(chan int64, 1)
			go func() { v, _ := read(g.p); early <- v }()
			await(t, func() bool { return g.loads.Load() == 1 })
			g.row.Store(2)
			if err := g.q.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			g.p.client.absences.end(g.owner, time.Now())
			late := make(chan int64, 1)
			go func() { v, _ := read(g.p); late <- v }()
			await(t, func() bool { return g.p.counters.waiting.Load() == 2 })
			time.Sleep(20 * time.Millisecond) // it joins the load right after it is counted; if it does not, there is nothing to see
			close(g.held)
			if v := <-early; v != 1 {
				t.Errorf("who came before the write reads %d", v)
			}
			if v := <-late; v != 2 {
				t.Errorf("who came after the invalidation, and finds the owner well, reads %d", v)
			}
		})
	}
}

// TestWriteThroughVoidsTheGutter: a process that has found the owner down lately writes through it. Who still finds it down gets the new row from the gutter, as after a
// Write.
func TestWriteThroughVoidsTheGutter(t *testing.T) {
	g := newGutterPair(t, false)
	if v, err := g.p.Get(t.Context(), "k"); v != 1 || err != nil {
		t.Fatal(v, err)
	}
	g.q.client.absences.begin(g.owner, time.Now().Add(-time.Minute))
	g.q.client.absences.end(g.owner, time.Now())
	if _, err := g.q.WriteThrough(t.Context(), "k", func(context.Context) (int64, error) { g.row.Store(2); return 2, nil }); err != nil {
		t.Fatal(err)
	}
	if v, err := g.p.Get(t.Context(), "k"); v != 2 || err != nil {
		t.Errorf("reads %d, %v", v, err)
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 10 s")
		}
	}
}
