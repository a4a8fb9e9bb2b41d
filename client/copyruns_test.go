// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// TestACopyThatIsAskedForMeanwhile: a copy's lease goes with an invalidation while it is being made; the fill after that asks for it once more, and has it.
func TestACopyThatIsAskedForMeanwhile(t *testing.T) {
	p := newGatedPair(t, func(c *client.CacheConfig[string]) { c.HotCopies, c.Copies = 0, 2 })
	eventually(t, "the first copy is made", func() bool { return p.reader.Copying() == 0 })
	node, name := p.reader.CopyAt("k", 1)
	invalidate := func() {
		t.Helper()
		if err := p.reader.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	invalidate()
	owner, _ := p.writer.Where("k")
	p.gate.arm(owner, "~s:x:k:v0") // which the read for a copy has
	p.writer.at(t, "k", 0)         // a miss: it fills, and copies
	<-p.gate.arrived
	p.src.set("k", "2")
	invalidate() // the copy's lease goes
	if r := p.writer.at(t, "k", 0); r.Value != "2" || r.Layer != client.LayerSource {
		t.Fatalf("the scene is not set: %+v", r)
	}
	p.gate.open()
	eventually(t, "nothing more is copied", func() bool { return p.writer.Copying() == 0 })
	if _, there := p.nodes.ByID(node).Get(name); !there {
		t.Error("no copy is there: who asked for it while it was being made was forgotten")
	}
}

// TestACopyThatGoesWhileItsRunRests: after a softened copy was made nobody makes it again for up to a second; but one that was voided meanwhile is brought back at once.
func TestACopyThatGoesWhileItsRunRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, down := softened(t)
		c.split(2, "k")
		filled := c.Stats().CopiesFilled
		c.at(t, "k", 1)
		eventually(t, "the softened copy is made anew", func() bool { return c.Stats().CopiesFilled > filled })
		if c.Copying() == 0 {
			t.Fatal("the scene is not set: nothing rests")
		}
		down.Store(false)
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		node, _ := c.CopyAt("k", 1)
		began := time.Now()
		for c.at(t, "k", 1).Node != node {
			time.Sleep(10 * time.Millisecond)
			c.split(2, "k")
			if time.Since(began) > 300*time.Millisecond {
				t.Fatal("the copy is not there 300 ms after it was voided")
			}
		}
	})
}

// TestACopyThatTakesLongerThanItsLease: a body that is on its way for longer than the copy's lease lives is no copy, and is not sent again and again: the next attempt waits for as long.
func TestACopyThatTakesLongerThanItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 2)
		cfg := nodes.Config()
		cfg.OperationTimeout = 20 * time.Second
		gate := new(cmdGate)
		src := newSource(map[string]string{"k": strings.Repeat("x", 200_000)})
		c := newChosen(t, gate.through(cfg), src.load, nil)
		c.at(t, "k", 0)
		c.split(2, "k")
		node, name := c.CopyAt("k", 1)
		gate.arm(node, "~cb:x:k:v0~")
		c.at(t, "k", 1)
		<-gate.arrived
		time.Sleep(6 * time.Second)
		gate.open()
		for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
			c.split(2, "k")
			c.at(t, "k", 1)
			if _, there := nodes.ByID(node).Get(name); there {
				t.Fatalf("copied %v after an attempt that took 6 s for nothing", time.Since(began))
			}
		}
		for began := time.Now(); c.at(t, "k", 1).Node != node; time.Sleep(50 * time.Millisecond) {
			c.split(2, "k")
			if time.Since(began) > 20*time.Second {
				t.Fatal("it is never tried again")
			}
		}
	})
}
