// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// gutterScene is a process with a gutter, on three nodes, that has found the owner of "k" down.
type gutterScene struct {
	nodes  *clienttest.Nodes
	owner  *clienttest.Node
	cl     *client.Client
	c      *client.Cache[string]
	src    *source
	states chan client.Event
}

func newGutterScene(t *testing.T) *gutterScene {
	t.Helper()
	g := &gutterScene{nodes: clienttest.Start(t, 3), src: newSource(map[string]string{"k": "1"}), states: make(chan client.Event, 100)}
	cfg := g.nodes.Config()
	cfg.Gutter = true
	cfg.OnEvent = func(e client.Event) { g.states <- e }
	g.cl = open(t, cfg)
	g.c = newCache(t, g.cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: g.src.load, L1: client.L1Off, NoEarlyRefresh: true})
	want(t, g.c, "k", "1", client.LayerSource)
	owner, _ := g.c.Where("k")
	g.owner = g.nodes.ByID(owner)
	g.owner.Down()
	g.await(t, "down")
	time.Sleep(time.Second) // what the stand-in gets is not from before the outage
	return g
}

func (g *gutterScene) await(t *testing.T, state string) {
	t.Helper()
	for {
		select {
		case e := <-g.states:
			if e.Kind == client.EventState && e.To == state {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("the node is not seen %s", state)
		}
	}
}

// TestGutter: while a key's owner is down its entry lives on the next node, for 10 s at most; invalidations void it there; once the owner is back it alone is asked.
func TestGutter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGutterScene(t)
		for range 10 {
			if v, err := g.c.Get(t.Context(), "k"); err != nil || v != "1" {
				t.Fatal(v, err)
			}
		}
		if n := g.src.count("k"); n != 2 {
			t.Errorf("%d loads, want 2: the one from before the outage and one into the gutter", n)
		}
		r, err := g.c.Lookup(t.Context(), "k")
		if owner, _ := g.c.Where("k"); err != nil || r.Layer != client.LayerL2 || r.Node == owner || r.Node == "" {
			t.Errorf("read from %+v, %v: want the stand-in", r, err)
		}
		if m, err := g.c.GetMany(t.Context(), []string{"k"}); err != nil || m["k"] != "1" || g.src.count("k") != 2 {
			t.Errorf("GetMany: %v, %v, %d loads", m, err, g.src.count("k"))
		}

		err = g.c.Write(t.Context(), "k", func(context.Context) error { g.src.set("k", "2"); return nil })
		if !client.NodesOnly(err) || !slices.Equal(client.UnreachedKeys(err), []string{"k"}) {
			t.Fatalf("a write while the owner is down says %v", err)
		}
		want(t, g.c, "k", "2", client.LayerSource)
		want(t, g.c, "k", "2", client.LayerL2)

		loads := g.src.count("k")
		time.Sleep(11 * time.Second)
		want(t, g.c, "k", "2", client.LayerSource) // 10 s are over
		if n := g.src.count("k"); n != loads+1 {
			t.Errorf("%d loads after ten seconds, want %d", n, loads+1)
		}

		g.owner.Up()
		g.await(t, "up")
		paid(t, g.cl)
		want(t, g.c, "k", "2", client.LayerSource)
		owner, _ := g.c.Where("k")
		if r, err := g.c.Lookup(t.Context(), "k"); err != nil || r.Node != owner {
			t.Errorf("after the outage it is read from %+v, %v", r, err)
		}
		if s := g.c.Stats(); s.Gutter < 10 {
			t.Errorf("%d reads in the gutter", s.Gutter)
		}
	})
}

// TestGutterOfTheStandInDown: where the stand-in is down too, there is no gutter, and the loader is asked; an invalidation is owed to both.
func TestGutterOfTheStandInDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGutterScene(t)
		want(t, g.c, "k", "1", client.LayerSource)
		r, err := g.c.Lookup(t.Context(), "k")
		if err != nil || r.Layer != client.LayerL2 {
			t.Fatal(r, err)
		}
		standIn := g.nodes.ByID(r.Node)
		standIn.Down()
		err = g.c.Write(t.Context(), "k", func(context.Context) error { g.src.set("k", "2"); return nil })
		if !client.NodesOnly(err) {
			t.Fatal(err)
		}
		if s := g.cl.Stats(); s.Owed != 2 {
			t.Errorf("%d owed, want 2: to the owner and to the stand-in", s.Owed)
		}
		standIn.Up()
		for range 3 { // whether or not it has been noticed by now
			if v, err := g.c.Get(t.Context(), "k"); err != nil || v != "2" {
				t.Fatal(v, err)
			}
		}
		g.owner.Up()
		g.await(t, "up")
		paid(t, g.cl)
		want(t, g.c, "k", "2", client.LayerSource)
	})
}

// TestGutterInL1: a hot key whose owner is down is not read from the stand-in each time; its copy in the process goes with an invalidation, and never outlives the ten seconds.
func TestGutterInL1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGutterScene(t)
		c := newCache(t, g.cl, client.CacheConfig[string]{Name: "y", TTL: time.Hour, Load: g.src.load, L1: client.L1All, NoEarlyRefresh: true, L1BlindTTL: 30 * time.Second, L1TTL: time.Minute})
		key := g.keyOf(c)
		g.src.set(key, "1")
		for range 100 {
			if v, err := c.Get(t.Context(), key); err != nil || v != "1" {
				t.Fatal(v, err)
			}
		}
		if s := c.Stats(); s.L2Hits > 1 || s.Loads != 1 || s.L1Hits < 98 {
			t.Errorf("100 reads: %d from L1, %d from the stand-in, %d loads", s.L1Hits, s.L2Hits, s.Loads)
		}
		g.src.set(key, "2")
		if err := c.Invalidate(t.Context(), key); !client.NodesOnly(err) {
			t.Fatal(err)
		}
		want(t, c, key, "2", client.LayerSource)
		want(t, c, key, "2", client.LayerL1)
		g.src.set(key, "3") // by somebody who does not find the owner down
		time.Sleep(11 * time.Second)
		want(t, c, key, "3", client.LayerSource)
	})
}

// keyOf is a key of a cache whose owner is down.
func (g *gutterScene) keyOf(c *client.Cache[string]) string {
	for i := 0; ; i++ {
		if owner, _ := c.Where(strconv.Itoa(i)); owner == g.owner.ID() {
			return strconv.Itoa(i)
		}
	}
}

// TestGutterVoidsFills: a load into the gutter that began before the write is not stored after it.
func TestGutterVoidsFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGutterScene(t)
		gate := newGated(map[string]string{"k": "1"})
		c := newCache(t, g.cl, client.CacheConfig[string]{Name: "y", TTL: time.Hour, Load: gate.load, L1: client.L1Off, NoEarlyRefresh: true})
		key := g.keyOf(c)
		gate.set(key, "1")
		read := inBackground(t, c, key)
		<-gate.held
		gate.set(key, "2")
		if err := c.Invalidate(t.Context(), key); !client.NodesOnly(err) {
			t.Fatal(err)
		}
		close(gate.release)
		if _, err := read(); err != nil {
			t.Fatal(err)
		}
		want(t, c, key, "2", client.LayerSource)
		want(t, c, key, "2", client.LayerL2)
	})
}
