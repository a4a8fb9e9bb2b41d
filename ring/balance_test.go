// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-shelf/shelf/ring"
)

// keySets are 100,000 keys each, as services make them; made once, only read.
var keySets = sync.OnceValue(func() map[string][]string {
	const keys = 100_000
	rng := rand.New(rand.NewPCG(28, 0))
	sets := make(map[string][]string)
	prefix := strings.Repeat("catalogue/", 6)
	for i := range keys {
		sets["UUIDs"] = append(sets["UUIDs"], uuid(rng))
		sets["user:N"] = append(sets["user:N"], fmt.Sprintf("user:%d", i+1))
		sets["common prefix"] = append(sets["common prefix"], fmt.Sprintf("%s%d", prefix, i))
	}
	return sets
})

// counts is how many of keys each node owns, in the order of Nodes.
func counts(r *ring.Ring, keys []string) []float64 {
	n := make([]float64, r.Len())
	for _, key := range keys {
		n[r.OwnerIndex(key)]++
	}
	return n
}

// shares is each node's exact share of the circle, in the order of Nodes:
// what a ring of one stranger would hand over.
func shares(tb testing.TB, r *ring.Ring) []float64 {
	tb.Helper()
	stranger := mustNew(tb, ring.Config{Nodes: named("a stranger"), Points: 1})
	moves := ring.Diff(stranger, r).List
	if len(moves) != r.Len() {
		tb.Fatalf("%d of %d nodes own a share", len(moves), r.Len())
	}
	out := make([]float64, len(moves))
	for i, m := range moves {
		out[i] = m.Share
	}
	return out
}

// With default settings, similar names and ordinary keys no node of equal
// weight may get far more or less than its part: max/mean at most 1.25,
// min/mean at least 0.75.
func TestRB28_EqualNodesShareEqually(t *testing.T) {
	for name, nodes := range map[string][]ring.Node{
		"two":   named("1.1.1.1", "2.2.2.2"),
		"three": named("192.168.0.11:11211", "192.168.0.12:11211", "192.168.0.13:11211"),
		"ten":   numbered(10),
	} {
		r := mustNew(t, ring.Config{Nodes: nodes})
		for set, keys := range keySets() {
			mean := float64(len(keys)) / float64(len(nodes))
			n := counts(r, keys)
			if high, low := slices.Max(n)/mean, slices.Min(n)/mean; high > 1.25 || low < 0.75 {
				t.Errorf("%s nodes, %s: max/mean = %.3f, min/mean = %.3f, want at most 1.25 and at least 0.75", name, set, high, low)
			}
		}
	}
}

// Weights far apart: each node within 25 % of its part, the tiny one within a
// hundredth of all and not without keys; and every weight above 0 gets a
// point, however small.
func TestRB28_WeightsFarApart(t *testing.T) {
	weights := []float64{1024, 1024, 5}
	nodes := numbered(3)
	sum := 0.0
	for i, w := range weights {
		nodes[i].Weight = w
		sum += w
	}
	r := mustNew(t, ring.Config{Nodes: nodes})
	for set, keys := range keySets() {
		for i, n := range counts(r, keys) {
			got, want := n/float64(len(keys)), weights[i]/sum
			slack := 0.25 * want
			if weights[i] == 5 {
				slack = 0.01
			}
			if n == 0 || math.Abs(got-want) > slack {
				t.Errorf("%s: weight %v has %.4f of the keys, want %.4f +- %.4f", set, weights[i], got, want, slack)
			}
		}
	}
	for i, got := range shares(t, r) {
		if want := weights[i] / sum; math.Abs(got-want) > 0.05*want {
			t.Errorf("weight %v has %.5f of the circle, want %.5f +- 5 %%", weights[i], got, want)
		}
	}
	for _, w := range []float64{math.SmallestNonzeroFloat64, 1e-9, 0.0004} {
		shares(t, mustNew(t, ring.Config{Nodes: []ring.Node{{ID: "big", Weight: 100}, {ID: "tiny", Weight: w}}}))
	}
}

// An 11th node takes an 11th of the keys, give or take 30 %, and nothing moves
// between the ten.
func TestRB28_EleventhNode(t *testing.T) {
	ten := mustNew(t, ring.Config{Nodes: numbered(10)})
	eleven := mustNew(t, ring.Config{Nodes: numbered(11)})
	for set, keys := range keySets() {
		moved := 0.0
		for _, key := range keys {
			from, to := ten.Owner(key).ID, eleven.Owner(key).ID
			if from != to && to != "node-10" {
				t.Fatalf("%s: %s moved from %s to %s, not to the new node", set, key, from, to)
			}
			if from != to {
				moved++
			}
		}
		if part := moved / float64(len(keys)) * 11; part < 0.7 || part > 1.3 {
			t.Errorf("%s: %v of %d keys moved, %.2f of an 11th", set, moved, len(keys), part)
		}
	}
}

// By default, the shares of eight equal nodes spread by about 3 %: measured
// exactly, on 40 sets of names. The bounds are the figures that the package
// promises; names are fixed, so the test does not flicker.
func TestFairByDefault(t *testing.T) {
	const nodes = 8
	for _, tt := range []struct {
		points                     int
		median, worst, lowest, top float64 // coefficients of variation; shares over mean
	}{
		{0, 0.032, 0.05, 0.89, 1.11}, // the default, 1,024
		{128, 0.09, 0.15, 0.70, 1.35},
	} {
		var spreads []float64
		lowest, top := 1.0, 1.0
		for set := range 40 {
			names := make([]string, nodes)
			for i := range names {
				names[i] = fmt.Sprintf("set-%d.cache-%d", set, i)
			}
			square := 0.0
			for _, s := range shares(t, mustNew(t, ring.Config{Nodes: named(names...), Points: tt.points})) {
				square += (s*nodes - 1) * (s*nodes - 1) / nodes
				lowest, top = min(lowest, s*nodes), max(top, s*nodes)
			}
			spreads = append(spreads, math.Sqrt(square))
		}
		slices.Sort(spreads)
		median, worst := spreads[len(spreads)/2], spreads[len(spreads)-1]
		t.Logf("%d points (0 is the default): spread %.4f median, %.4f worst; shares %.3f to %.3f of the mean", tt.points, median, worst, lowest, top)
		if median > tt.median || worst > tt.worst || lowest < tt.lowest || top > tt.top {
			t.Errorf("%d points: want a spread of at most %v median, %v worst, shares from %v to %v", tt.points, tt.median, tt.worst, tt.lowest, tt.top)
		}
	}
}
