// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// The node's own clock: it is far from the process's, or somebody sets it while entries are there.

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// clockNode is an embedded node whose clock is off by an offset. It only moves with pass and set.
type clockNode struct {
	*clienttest.Node
	config client.Config
	offset time.Duration
}

func startClockNode(t *testing.T, offset time.Duration) *clockNode {
	t.Helper()
	nodes := clienttest.Start(t, 1)
	n := &clockNode{Node: nodes.Node(0), config: nodes.Config()}
	n.set(offset)
	return n
}

// set sets the node's clock to the true time plus offset.
func (n *clockNode) set(offset time.Duration) {
	n.offset = offset
	n.SetTime(time.Now().Add(offset))
}

// pass lets time pass, on the node's clock too.
func (n *clockNode) pass(d time.Duration) {
	const step = 50 * time.Millisecond
	for ; d > 0; d -= step {
		time.Sleep(min(d, step))
		n.set(n.offset)
	}
}

// TestSetBeforeTheFirstContact: an entry that is Set by a process which has not met its node yet carries the node's time, not the process's own.
func TestSetBeforeTheFirstContact(t *testing.T) {
	for _, offset := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := startClockNode(t, offset)
				cfg := client.CacheConfig[string]{Name: "session", TTL: time.Minute, Truth: true, L1: client.L1Off}
				node.Down()
				writer := newCache(t, open(t, node.config), cfg)
				var ne *client.NodeError
				if err := writer.Set(t.Context(), "k", "lost"); !errors.As(err, &ne) || ne.Op != "set" || len(ne.Keys) != 1 {
					t.Errorf("Set while the node is down: %v", err)
				}
				node.Up() // and before the next health check the process writes
				if err := writer.SetMany(t.Context(), map[string]string{"k": "v", "l": "v"}); err != nil {
					t.Fatal(err)
				}
				reader := newCache(t, open(t, node.config), cfg)
				for name, c := range map[string]*client.Cache[string]{"writer": writer, "reader": reader} {
					if r, err := c.Lookup(t.Context(), "k"); err != nil || r.Value != "v" || r.Age > time.Second {
						t.Errorf("the %s finds %+v, %v", name, r, err)
					}
				}
				node.pass(time.Minute)
				if _, err := reader.Get(t.Context(), "k"); !errors.Is(err, client.ErrNotFound) {
					t.Errorf("past its TTL: %v", err)
				}
			})
		})
	}
}

// TestNodeClockIsSet: a second after somebody sets the node's clock its clients know. Set forward, entries are as much older, and go early. Set back,
// those from before seem to be of the future and are loaded again, at once and once; only what was older than the step stays, and lives longer by
// the step. New entries are right in any case.
func TestNodeClockIsSet(t *testing.T) {
	const ttl = 20 * time.Minute
	for _, tc := range []struct {
		name  string
		step  time.Duration
		old   time.Duration // age of the entry at the step
		layer client.Layer  // where it comes from afterwards
		age   time.Duration // which it then has
	}{
		{"forward", 5 * time.Minute, time.Minute, client.LayerL2, 6 * time.Minute},
		{"forward past its TTL", 5 * time.Minute, 16 * time.Minute, client.LayerSource, 0},
		{"back before it was made", -5 * time.Minute, time.Minute, client.LayerSource, 0},
		{"back to when it was younger", -5 * time.Minute, 6 * time.Minute, client.LayerL2, time.Minute},
		{"back by less than a client's error may be", -4 * time.Second, time.Second, client.LayerL2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := startClockNode(t, time.Hour)
				src := newSource(map[string]string{"k": "1"})
				cfg := client.CacheConfig[string]{Name: "x", TTL: ttl, SoftTTL: ttl, NoJitter: true, NoEarlyRefresh: true, Load: src.load, L1: client.L1Off}
				caches := []*client.Cache[string]{newCache(t, open(t, node.config), cfg), newCache(t, open(t, node.config), cfg)}
				want(t, caches[0], "k", "1", client.LayerSource)
				node.pass(tc.old)
				node.Slow(10 * time.Millisecond) // from now on it is asked less exactly than before; what it said before must be forgotten all the same
				node.set(time.Hour + tc.step)
				const beat = 1100 * time.Millisecond // of the health checks
				node.pass(beat)
				for i, c := range caches {
					layer, age := tc.layer, tc.age
					if i > 0 {
						layer = client.LayerL2 // the first has stored it again
					}
					r, err := c.Lookup(t.Context(), "k")
					if err != nil || r.Layer != layer || r.Age < age || r.Age > age+2*beat {
						t.Errorf("process %d: %v from %v, %v; want about %v from %v", i, r.Age, r.Layer, err, age, layer)
					}
				}
				if err := caches[0].Invalidate(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				want(t, caches[0], "k", "1", client.LayerSource)
				node.pass(ttl - 500*time.Millisecond)
				want(t, caches[1], "k", "1", client.LayerL2)
				node.pass(500 * time.Millisecond)
				want(t, caches[1], "k", "1", client.LayerSource)
			})
		})
	}
}
