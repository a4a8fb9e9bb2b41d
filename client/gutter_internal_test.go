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

// TestGutterBeforeTheOutage: a process finds an owner down while another finds it well, and keeps an old row in the gutter. The other one writes, and then finds the owner
// down too: it must not read there what is older than its own write.
func TestGutterBeforeTheOutage(t *testing.T) {
	var nodes []ring.Node
	var servers []*miniredis.Miniredis
	for i := range 3 {
		servers = append(servers, miniredis.RunT(t))
		nodes = append(nodes, ring.Node{ID: "n" + strconv.Itoa(i), Addr: servers[i].Addr()})
	}
	var row atomic.Int64
	row.Store(1)
	load := func(context.Context, string) (int64, error) { return row.Load(), nil }
	process := func() (*Client, *Cache[int64]) {
		cl, err := New(t.Context(), Config{Nodes: nodes, Gutter: true, OperationTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = cl.Close(ctx) // says what is owed
		})
		c, err := NewCache(cl, CacheConfig[int64]{Name: "x", TTL: time.Hour, Load: load, L1: L1Off})
		if err != nil {
			t.Fatal(err)
		}
		return cl, c
	}
	get := func(c *Cache[int64], want int64) {
		t.Helper()
		if v, err := c.Get(t.Context(), "k"); err != nil || v != want {
			t.Errorf("reads %d, %v, want %d", v, err, want)
		}
	}
	p, pc := process()
	q, qc := process()
	owner := pc.slot("k").owner

	long := time.Now().Add(-time.Minute)
	p.absences.begin(owner, long) // it has trusted the gutter for a while
	get(pc, 1)
	row.Store(2)
	if err := qc.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	get(pc, 1) // ten seconds are what the gutter may be late by
	q.absences.begin(owner, time.Now())
	get(qc, 2)

	row.Store(3) // it knows of the outage by now, though the owner answers
	if err := qc.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	get(pc, 3)
	q.absences.end(owner, time.Now()) // and it does for a while after it
	row.Store(4)
	if err := qc.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	get(pc, 4)

	q.absences[owner].Store(nil)
	servers[owner].Close() // and this one has noticed nothing when it writes
	row.Store(5)
	if err := qc.Invalidate(t.Context(), "k"); !NodesOnly(err) {
		t.Fatal(err)
	}
	get(pc, 5)
}
