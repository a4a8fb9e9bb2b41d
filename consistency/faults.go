// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
)

// calm is the phase in which nothing is broken, any more.
const calm = "calm"

// fault is something that breaks for a while. Times are those of a run of a minute or more; a shorter one has shorter ones, in proportion.
type fault struct {
	name  string
	calm  time.Duration // before it
	lasts time.Duration
	every time.Duration // between two strikes of again; 0: none

	begin, again, end func(f *fleet)
}

const second = time.Second

// faults are what breaks, in this order. Side 0 are the processes 0 and 1, side 1 the others; the last has no pushes.
var faults = []fault{
	{name: "listeners are reset", calm: 4 * second, lasts: 3 * second, every: 400 * time.Millisecond,
		again: func(f *fleet) { f.listeners(0, redistest.Traffic.Reset) }},
	{name: "listeners fall silent", calm: 2 * second, lasts: 4 * second,
		begin: func(f *fleet) { f.listeners(0, redistest.Traffic.BlackHole) },
		end:   func(f *fleet) { f.heal(0) }},
	{name: "listeners stall and go on", calm: second, lasts: 3 * second, every: 900 * time.Millisecond,
		begin: func(f *fleet) { f.listeners(0, redistest.Traffic.BlackHole) },
		again: func(f *fleet) {
			f.heal(0)
			f.listeners(0, redistest.Traffic.BlackHole)
		},
		end: func(f *fleet) { f.heal(0) }},
	{name: "tracked reads fall silent", calm: second, lasts: 3 * second,
		begin: func(f *fleet) { f.named(0, "shelf-fill", redistest.Traffic.BlackHole) },
		end:   func(f *fleet) { f.heal(0) }},
	{name: "a node is slow", calm: 2 * second, lasts: 3 * second,
		begin: func(f *fleet) {
			for _, p := range f.proxies[1] {
				p.Delay(12*time.Millisecond, 10*time.Millisecond)
			}
		},
		end: func(f *fleet) { f.heal(0); f.heal(1) }},
	{name: "a node is stopped", calm: 2 * second, lasts: second,
		begin: func(f *fleet) { f.nodes[0].Stop() },
		end:   func(f *fleet) { f.nodes[0].Cont() }},
	{name: "a node is killed", calm: 3 * second, lasts: 3 * second,
		begin: func(f *fleet) {
			for _, p := range f.proxies[2] {
				p.Refuse()
			}
			f.nodes[2].Kill()
		},
		end: func(f *fleet) {
			f.nodes[2].Restart()
			for _, p := range f.proxies[2] {
				p.Heal()
			}
		}},
	{name: "a node has a snapshot back", calm: second, lasts: 4 * second, every: 1500 * time.Millisecond,
		again: func(f *fleet) {
			if f.saved = !f.saved; f.saved {
				_ = f.nodes[0].Client().Save(context.Background()).Err() // then it comes back with an older one, or empty
			} else {
				f.nodes[0].Restart()
			}
		}},
	{name: "half the fleet is cut off", calm: 2 * second, lasts: 3 * second, // and late commands arrive
		begin: func(f *fleet) { f.proxies[1][0].BlackHole() },
		end:   func(f *fleet) { f.proxies[1][0].Heal() }},
	{name: "answers are lost", calm: 2 * second, lasts: 3 * second, every: 700 * time.Millisecond,
		begin: func(f *fleet) { f.proxies[0][1].ToClient().BlackHole() },
		again: func(f *fleet) {
			f.proxies[0][1].Reset()
			f.proxies[0][1].Heal()
			f.proxies[0][1].ToClient().BlackHole()
		},
		end: func(f *fleet) { f.proxies[0][1].Reset(); f.proxies[0][1].Heal() }},
	{name: "connections are reset", calm: 2 * second, lasts: 3 * second, every: 300 * time.Millisecond,
		again: func(f *fleet) {
			for i := range f.proxies {
				f.proxies[i][i%sides].Reset()
			}
		}},
}

// strike waits out the calm before a fault, and the fault. It always ends it.
func (t *fault) strike(ctx context.Context, f *fleet, pace float64) error {
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) * pace) }
	f.phase(calm)
	pause(ctx, scaled(t.calm))
	if ctx.Err() != nil {
		return nil
	}
	f.phase(t.name)
	if t.begin != nil {
		t.begin(f)
	}
	if t.end != nil {
		defer t.end(f)
	}
	over, cancel := context.WithTimeout(ctx, scaled(t.lasts))
	defer cancel()
	for over.Err() == nil {
		if t.again == nil {
			<-over.Done()
			break
		}
		t.again(f)
		pause(over, scaled(t.every))
	}
	return f.failed()
}

// listeners does something to the connections over which the processes of a side are told of changes, those to come included.
func (f *fleet) listeners(side int, do func(redistest.Traffic)) { f.named(side, "shelf-listener", do) }

// named does it to the connections of a name.
func (f *fleet) named(side int, name string, do func(redistest.Traffic)) {
	for i := range f.proxies {
		do(f.proxies[i][side].Only(func(c *redistest.ProxyConn) bool { return c.Sent("CLIENT", "SETNAME", name) }))
	}
}

func (f *fleet) heal(side int) {
	for i := range f.proxies {
		f.proxies[i][side].Heal()
	}
}
