// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/ring"
)

// fuzzNodes makes nodes of fuzzed text: IDs between commas, each with a weight
// and a rack that follow from its place. Empty and repeated IDs are left out.
func fuzzNodes(ids string) []ring.Node {
	var nodes []ring.Node
	seen := map[string]bool{"": true}
	for i, id := range strings.Split(ids, ",") {
		if !seen[id] && len(nodes) < 20 {
			seen[id] = true
			nodes = append(nodes, ring.Node{ID: id, Weight: float64(i%4) / 2, Rack: strings.Repeat("r", i%3)})
		}
	}
	return nodes
}

// The order in which nodes are given is irrelevant, also to the fallback order.
func FuzzNodeOrder(f *testing.F) {
	f.Add("a,b,c,d", uint64(1), "key")
	f.Add("10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379", uint64(2), "user:1")
	f.Fuzz(func(t *testing.T, ids string, seed uint64, key string) {
		nodes := fuzzNodes(ids)
		if len(nodes) == 0 {
			return
		}
		a := mustNew(t, ring.Config{Nodes: nodes, Points: 16})
		b := mustNew(t, ring.Config{Nodes: shuffled(rand.New(rand.NewPCG(seed, 0)), nodes), Points: 16})
		if x, y := walkIDs(a, key), walkIDs(b, key); !slices.Equal(x, y) {
			t.Errorf("%q: Walk(%q) = %q in one order and %q in another", ids, key, x, y)
		}
		if a.OwnerIndex(key) != b.OwnerIndex(key) {
			t.Errorf("%q: owner of %q is %d in one order and %d in another", ids, key, a.OwnerIndex(key), b.OwnerIndex(key))
		}
		if m := ring.Diff(a, b); m.Total != 0 || len(m.List) != 0 {
			t.Errorf("%q: another order moves %+v", ids, m.List)
		}
	})
}

// However points collide, order is irrelevant and the twin agrees. The hash
// keeps the bits of mask, and sets those of base.
func FuzzCollidingPoints(f *testing.F) {
	f.Add("a,b,c,d", uint64(1), "key", uint64(1023), uint64(0))
	f.Add("x,y", uint64(3), "", uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, ids string, seed uint64, key string, mask, base uint64) {
		nodes := fuzzNodes(ids)
		if len(nodes) == 0 {
			return
		}
		cfg := ring.Config{Nodes: nodes, Points: 16, Hash: func(s string) uint64 { return xxh64(s)&mask | base }}
		want := newTwin(cfg).walk(key)
		for range 3 {
			r := mustNew(t, cfg)
			if got := walkIDs(r, key); !slices.Equal(got, want) || r.Owner(key).ID != want[0] {
				t.Fatalf("%q: Walk(%q) = %q and Owner %q, want %q", ids, key, got, r.Owner(key).ID, want)
			}
			cfg.Nodes = shuffled(rand.New(rand.NewPCG(seed, 0)), cfg.Nodes)
		}
	})
}
