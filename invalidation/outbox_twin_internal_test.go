// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// outboxTwin is the outbox without regard to cost: the entries in one slice, searched every time.
// Its order within a node is that of the last time that an entry was queued.
type outboxTwin struct {
	config  OutboxConfig
	entries []*twinEntry // by first Put
	nodes   map[int]*twinNode
	queued  int // the number of the last queueing
	batches int
}

type twinEntry struct {
	p        Pending
	put      time.Time
	queuedAs int
	batch    *twinBatch // that its attempt is in
	again    bool
}

type twinNode struct {
	failures, lastBatch int
	next                time.Time
	out                 *twinBatch
}

type twinBatch struct {
	node      int
	left      int
	good, bad bool
	last      time.Time
	draw      float64
	woken     bool
}

var twinNames = func() (names [50]string) {
	for i := range names {
		names[i] = fmt.Sprint("k", i)
	}
	return names
}()

func (w *outboxTwin) find(name string) *twinEntry {
	i := slices.IndexFunc(w.entries, func(e *twinEntry) bool { return e.p.Name == name })
	if i < 0 {
		return nil
	}
	return w.entries[i]
}

func (w *outboxTwin) queue(e *twinEntry) {
	w.queued++
	e.queuedAs = w.queued
	if w.nodes[e.p.Node] == nil {
		w.nodes[e.p.Node] = &twinNode{failures: 1, next: e.put.Add(w.config.MinBackoff)}
	}
}

// tidy forgets the nodes without keys.
func (w *outboxTwin) tidy() {
	for id, n := range w.nodes {
		if n.out == nil && len(w.waiting(id)) == 0 {
			delete(w.nodes, id)
		}
	}
}

// waiting are a node's keys without an attempt, by the order of the queue.
func (w *outboxTwin) waiting(id int) []*twinEntry {
	var out []*twinEntry
	for _, e := range w.entries {
		if e.p.Node == id && e.batch == nil {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *twinEntry) int { return a.queuedAs - b.queuedAs })
	return out
}

func (w *outboxTwin) put(name string, node int, version uint64, now time.Time) bool {
	e := w.find(name)
	if e == nil {
		if len(w.entries) >= w.config.Max {
			return false
		}
		e = &twinEntry{p: Pending{Name: name, Node: node, Version: version, Since: now}, put: now}
		w.entries = append(w.entries, e)
		w.queue(e)
		return true
	}
	e.p.Version, e.put, e.again = max(e.p.Version, version), now, e.batch != nil
	if e.p.Node != node {
		e.p.Node = node
		if e.batch == nil {
			w.queue(e)
		}
	}
	w.tidy()
	return true
}

func (w *outboxTwin) due(now time.Time, most int) []*twinEntry {
	best := -1
	for id := range 10 {
		n := w.nodes[id]
		if n == nil || n.out != nil || n.next.After(now) || len(w.waiting(id)) == 0 {
			continue
		}
		if best < 0 || n.lastBatch < w.nodes[best].lastBatch {
			best = id
		}
	}
	if best < 0 || most <= 0 {
		return nil
	}
	n := w.nodes[best]
	if n.failures > 0 {
		most = min(most, 16)
	}
	batch := w.waiting(best)
	batch = batch[:min(most, len(batch))]
	w.batches++
	n.lastBatch = w.batches
	n.out = &twinBatch{node: best, left: len(batch)}
	for _, e := range batch {
		e.batch = n.out
	}
	return batch
}

func (w *outboxTwin) report(e *twinEntry, good bool, now time.Time, draw float64) {
	b := e.batch
	e.batch = nil
	b.left--
	if good {
		b.good = true
	} else {
		b.bad, b.draw = true, draw
		if now.After(b.last) {
			b.last = now
		}
	}
	if good && !e.again {
		w.entries = slices.DeleteFunc(w.entries, func(o *twinEntry) bool { return o == e })
	} else {
		w.queue(e)
	}
	e.again = false
	if b.left == 0 {
		w.decide(b)
	}
	w.tidy()
}

func (w *outboxTwin) decide(b *twinBatch) {
	n := w.nodes[b.node]
	n.out = nil
	if b.good {
		n.failures = 0
	}
	if !b.bad {
		return
	}
	n.failures++
	wait := min(w.config.MaxBackoff, w.config.MinBackoff<<min(n.failures-1, 30))
	if b.woken {
		wait = 0
	}
	n.next = b.last.Add(wait/2 + time.Duration(b.draw*float64(wait-wait/2)))
}

func (w *outboxTwin) wake(id int, now time.Time) {
	n := w.nodes[id]
	if n == nil {
		return
	}
	if n.out != nil {
		n.out.woken = true
	}
	if n.next.After(now) {
		n.next = now
	}
}

func (w *outboxTwin) nextDue() (at time.Time, ok bool) {
	for id, n := range w.nodes {
		if n.out == nil && len(w.waiting(id)) > 0 && (!ok || n.next.Before(at)) {
			at, ok = n.next, true
		}
	}
	return at, ok
}

// outboxPair are the two, the attempts under way in both, and what the test has walked through.
type outboxPair struct {
	t    *testing.T
	rng  *rand.Rand
	o    *Outbox
	w    *outboxTwin
	out  []Pending
	outW []*twinEntry
	now  time.Time
	seen map[string]int
}

func (p *outboxPair) step() {
	name, node := twinNames[p.rng.IntN(len(twinNames))], p.rng.IntN(4)
	p.now = p.now.Add(time.Duration(p.rng.IntN(40)) * time.Millisecond)
	switch op := p.rng.IntN(100); {
	case op < 40:
		version := p.rng.Uint64N(5)
		err, ok := p.o.Put(name, node, version, p.now), p.w.put(name, node, version, p.now)
		if (err == nil) != ok || (err != nil && !errors.Is(err, ErrOutboxFull)) {
			p.t.Fatalf("Put(%s): %v, the twin says %v", name, err, ok)
		}
		if !ok {
			p.seen["full"]++
		}
	case op < 58:
		p.due(p.rng.IntN(30) - 1)
	case op < 95 && len(p.out) > 0:
		i := p.rng.IntN(len(p.out))
		good, draw := p.rng.IntN(3) > 0, p.rng.Float64()
		if p.outW[i].again {
			p.seen["again"]++
		}
		if good {
			p.o.Done(p.out[i])
		} else {
			p.o.Failed(p.out[i], p.now, draw)
		}
		p.w.report(p.outW[i], good, p.now, draw)
		p.out, p.outW = slices.Delete(p.out, i, i+1), slices.Delete(p.outW, i, i+1)
	case op < 97:
		p.o.Wake(node, p.now)
		p.w.wake(node, p.now)
	case op == 99 && p.rng.IntN(8) == 0:
		p.drain()
	}
}

func (p *outboxPair) due(most int) {
	got, want := p.o.Due(p.now, most), p.w.due(p.now, most)
	if len(got) != len(want) {
		p.t.Fatalf("Due(%d): %v, the twin gives %d keys", most, got, len(want))
	}
	for i, g := range got {
		g.attempt = 0
		if g != want[i].p {
			p.t.Fatalf("Due: the %dth is %+v, the twin's %+v", i, g, want[i].p)
		}
	}
	p.out, p.outW = append(p.out, got...), append(p.outW, want...)
	p.seen["attempts"] += len(got)
}

func (p *outboxPair) drain() {
	got := p.o.Drain()
	if len(got) != len(p.w.entries) {
		p.t.Fatalf("Drain gives %d keys, the twin has %d", len(got), len(p.w.entries))
	}
	for i, g := range got {
		g.attempt = 0
		if g != p.w.entries[i].p {
			p.t.Fatalf("Drain: the %dth is %+v, the twin's %+v", i, g, p.w.entries[i].p)
		}
	}
	p.w.entries, p.w.nodes = nil, map[int]*twinNode{}
	p.seen["drained"]++
	for _, old := range p.out { // reports from before
		p.o.Done(old)
		p.o.Failed(old, p.now, 0.5)
	}
	p.out, p.outW = nil, nil
}

// compare looks at everything that can be seen from outside.
func (p *outboxPair) compare() {
	for _, name := range twinNames {
		if got, want := p.o.Has(name), p.w.find(name) != nil; got != want {
			p.t.Fatalf("Has(%s) is %v, the twin says %v", name, got, want)
		}
	}
	gotAt, gotOK := p.o.Next()
	wantAt, wantOK := p.w.nextDue()
	if gotOK != wantOK || !gotAt.Equal(wantAt) {
		p.t.Fatalf("Next is %v %v, the twin's %v %v", gotAt, gotOK, wantAt, wantOK)
	}
	st := p.o.Stats()
	if st.Depth != len(p.w.entries) || st.InFlight != len(p.out) || st.Attempts != uint64(p.seen["attempts"]) || st.Full != uint64(p.seen["full"]) {
		p.t.Fatalf("stats %+v, the twin has %d keys, %d under way, %v", st, len(p.w.entries), len(p.out), p.seen)
	}
	if len(p.w.entries) > 0 && !st.Oldest.Equal(p.w.entries[0].p.Since) {
		p.t.Fatalf("oldest %v, the twin's %v", st.Oldest, p.w.entries[0].p.Since)
	}
	p.o.check(p.t)
}

// check looks for what must hold between two calls: every entry is in the order, in the names, and
// in its node's queue or under way, and nothing else is.
func (o *Outbox) check(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	names, queued, flying, out := 0, 0, 0, 0
	o.names.Range(func(_, _ any) bool { names++; return true })
	for k := o.order.first; k != nil; k = k.next {
		e := k.of
		if o.find(e.Name) != e {
			t.Fatalf("%s is in the order, not in the names", e.Name)
		}
		if e.attempt != 0 {
			flying++
		} else if n := o.nodes[e.Node]; n == nil || e.inNode.in != &n.queue {
			t.Fatalf("%s is not in the queue of node %d", e.Name, e.Node)
		}
	}
	for id, n := range o.nodes {
		queued += n.queue.len
		out += n.batch.out
		if n.queue.len == 0 && n.batch.out == 0 {
			t.Fatalf("node %d has nothing to do and is still there", id)
		}
	}
	if names != o.order.len || int(o.depth.Load()) != names || queued+flying != names || out != flying || o.inFlight != flying {
		t.Fatalf("names %d, order %d, depth %d, queued %d, under way %d, in batches %d, counted %d", names, o.order.len, o.depth.Load(), queued, flying, out, o.inFlight)
	}
}

func TestOutboxTwin(t *testing.T) {
	for seed := range uint64(4) {
		config := OutboxConfig{Max: 30, MinBackoff: 50 * time.Millisecond, MaxBackoff: 700 * time.Millisecond}
		o, err := NewOutbox(config)
		if err != nil {
			t.Fatal(err)
		}
		p := &outboxPair{t: t, rng: rand.New(rand.NewPCG(seed, 1)), o: o, w: &outboxTwin{config: config, nodes: map[int]*twinNode{}},
			now: time.Unix(1000, 0), seen: map[string]int{}}
		for range 2000 {
			p.step()
			p.compare()
		}
		for _, what := range []string{"full", "again", "attempts", "drained"} {
			if p.seen[what] == 0 {
				t.Errorf("seed %d: never came across: %s", seed, what)
			}
		}
	}
}

func TestPauseBounds(t *testing.T) {
	c := OutboxConfig{MinBackoff: 3 * time.Nanosecond, MaxBackoff: 1<<63 - 1}
	for failures := 1; failures < 200; failures++ {
		low, high := pause(c, failures, 0), pause(c, failures, 0.999999)
		if low <= 0 || high < low || high > c.MaxBackoff {
			t.Fatalf("after %d failures a pause from %d to %d ns", failures, low, high)
		}
	}
}
