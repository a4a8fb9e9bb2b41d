// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-shelf/shelf/ring"
)

// randomConfig draws a small ring: few points, so that nodes meet; weights
// from next to nothing up; racks, some empty; and every second time a poor hash.
func randomConfig(rng *rand.Rand) ring.Config {
	cfg := ring.Config{Points: 1 + rng.IntN(12)}
	for i := range 1 + rng.IntN(10) {
		n := ring.Node{ID: fmt.Sprintf("n%d", i), Weight: []float64{0, 1, 0.001, 0.5, 2.25, 7}[rng.IntN(6)]}
		if rack := rng.IntN(5); rack > 0 {
			n.Rack = fmt.Sprintf("rack-%d", rack)
		}
		cfg.Nodes = append(cfg.Nodes, n)
	}
	if rng.IntN(2) == 0 {
		cfg.Hash = poor[rng.IntN(len(poor))].hash
	}
	return cfg
}

// 50,000 random cases: one key on one of 2,500 rings, asked for its owner and
// its walk.
func TestAgainstTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(26, 28))
	for range 2500 {
		cfg := randomConfig(rng)
		r, tw := mustNew(t, cfg), newTwin(cfg)
		for range 20 {
			key := fmt.Sprintf("key-%d", rng.Uint32())
			want, got := tw.walk(key), walkIDs(r, key)
			if !slices.Equal(got, want) || r.Owner(key).ID != want[0] || r.Nodes()[r.OwnerIndex(key)].ID != want[0] {
				t.Fatalf("%+v\nkey %s (at %#x): Owner = %s, Walk = %v; want %v",
					cfg, key, r.Position(key), r.Owner(key).ID, got, want)
			}
		}
	}
}

// Rings of some thousand points, where a lookup meets full and empty buckets.
func TestLargeRingsAgainstTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(26, 29))
	hashes := append(poor, poor[0])
	hashes[len(hashes)-1].name, hashes[len(hashes)-1].hash = "good", nil
	for _, h := range hashes {
		cfg := ring.Config{Nodes: numbered(6), Hash: h.hash}
		for i := range cfg.Nodes {
			cfg.Nodes[i].Rack, cfg.Nodes[i].Weight = fmt.Sprint(i%2), float64(i)/4
		}
		r, tw := mustNew(t, cfg), newTwin(cfg)
		for range 200 {
			key := fmt.Sprintf("key-%d", rng.Uint32())
			if got, want := walkIDs(r, key), tw.walk(key); !slices.Equal(got, want) {
				t.Fatalf("hash of %s: Walk(%s) = %v, want %v", h.name, key, got, want)
			}
		}
	}
}
