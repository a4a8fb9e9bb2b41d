// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

// One node's load far above its peers' is what a hot key looks like from outside, or a ring that fits the keys badly: EventLoad. Every node is asked for its load every loadEvery, by
// each process. It is what the server itself has measured, so it includes the other processes and whoever else uses it. Bytes count as for hot keys: 4 KiB as
// one command more. Loads are compared by weight: a node of weight 2 may have twice as much.
const (
	loadEvery = 2 * time.Second
	loadKnown = 3 * loadEvery // for how long a load is known
	loadTimes = 2             // readings in a row that say the same; a reading is the mean of 1.6 s
	loadHigh  = 2.0           // times the mean of the others, by weight
	loadEven  = 1.5           // below so many times it is over
	loadFloor = 10_000        // a tenth of what a node serves; below that nobody suffers
	loadKeys  = 5             // that are named
)

// nodeLoad is what is known of one node's load.
type nodeLoad struct {
	asked time.Time // when it was to be asked next
	load  float64   // commands a second, and 4 KiB a second
	at    time.Time // of load; zero: not known
	times int       // readings in a row that say other than high
	high  bool
}

// loads watches the nodes' loads.
type loads struct {
	nodes   []*redisnode.Node
	weights []float64
	tell    func(node int, high bool, load, peers float64)
	calls   sync.WaitGroup

	mu    sync.Mutex
	known []nodeLoad
}

func newLoads(c *Client) *loads {
	l := &loads{nodes: c.nodes, known: make([]nodeLoad, len(c.nodes)), tell: c.tellLoad}
	for i, n := range c.ring.Nodes() {
		l.weights = append(l.weights, n.Weight)
		l.known[i].asked = time.Now().Add(rand.N(loadEvery))
	}
	return l
}

// look begins to ask the nodes whose turn it is.
func (l *loads) look(ctx context.Context, now time.Time) {
	if len(l.nodes) < 2 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.known {
		if k := &l.known[i]; !now.Before(k.asked) {
			k.asked = now.Add(loadEvery)
			l.calls.Go(func() { l.ask(ctx, i) })
		}
	}
}

func (l *loads) ask(ctx context.Context, node int) {
	said, err := l.nodes[node].Load(ctx)
	if err != nil {
		return // what was known ends by itself
	}
	load := said.Commands + said.Sent/largeRead
	l.mu.Lock()
	changed, peers := l.take(node, load, time.Now())
	high := l.known[node].high
	l.mu.Unlock()
	if changed {
		l.tell(node, high, load, peers)
	}
}

// take takes in a node's load; true: it is far above the others' now, or not any more.
func (l *loads) take(node int, load float64, now time.Time) (changed bool, peers float64) {
	k := &l.known[node]
	k.load, k.at = load, now
	peers, ok := l.peers(node, now)
	times := loadHigh
	if k.high {
		times = loadEven
	}
	high := ok && load >= times*peers && (load >= loadFloor || k.high && load >= loadFloor/2)
	if high == k.high {
		k.times = 0
		return false, peers
	}
	if k.times++; k.times < loadTimes {
		return false, peers
	}
	k.high, k.times = high, 0
	return true, peers
}

// peers is what a node would have if it were as busy as the mean of those others whose load is known; false: there are none.
func (l *loads) peers(node int, now time.Time) (float64, bool) {
	load, weight := 0.0, 0.0
	for i := range l.known {
		if k := &l.known[i]; i != node && !k.at.IsZero() && now.Sub(k.at) < loadKnown {
			load, weight = load+k.load, weight+l.weights[i]
		}
	}
	if weight == 0 {
		return 0, false
	}
	return load / weight * l.weights[node], true
}

// of is a node's load, for Stats; 0: not known.
func (l *loads) of(node int) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := &l.known[node]; !k.at.IsZero() && time.Since(k.at) < loadKnown {
		return k.load
	}
	return 0
}

// tellLoad tells that a node's load is far above its peers', or is not any more.
func (c *Client) tellLoad(node int, high bool, load, peers float64) {
	n := c.placed(node)
	e := Event{Kind: EventLoad, Node: n.ID, From: loadWord(!high), To: loadWord(high), Load: load, Peers: peers}
	of := []any{"node", n.ID, "addr", n.Addr, "load", int64(math.Round(load)), "others", int64(math.Round(peers))}
	if !high {
		c.cfg.Logger.Info("shelf: node's load is no longer far above the others'", of...)
	} else {
		e.Keys = c.heat.asked(node)
		c.cfg.Logger.Warn("shelf: node's load is far above the others'", append(of, "keys", entryNames(e.Keys))...)
	}
	c.tell(e)
}

func loadWord(high bool) string {
	if high {
		return "high"
	}
	return "even"
}

func entryNames(keys []KeyRate) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Key
	}
	return names
}

// asked is what this process asks a node for most, by the names of the entries.
func (h *heat) asked(node int) []KeyRate {
	h.mu.Lock()
	defer h.mu.Unlock()
	var top []KeyRate
	now := time.Now()
	for _, w := range h.caches {
		for _, r := range w.asked.List(nil, w.hotRate/heatFloor, now) {
			k := w.keys[r.Key]
			if k == nil || k.node != node {
				continue
			}
			r.Key = w.names.data(r.Key)
			top = append(top, k.rated(KeyRate{KeyRate: r}, now))
		}
	}
	slices.SortFunc(top, func(a, b KeyRate) int { return cmp.Compare(b.Rate, a.Rate) })
	return top[:min(len(top), loadKeys)]
}
