// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/go-shelf/shelf/ring"
)

// twin is the ring in its simplest form: every point of every node in no
// order, and a look at all of them for each key. It repeats the rules of
// placement in its own words and shares no code with the package.
type twin struct {
	nodes  []ring.Node
	points []twinPoint
	hash   func(string) uint64
}

type twinPoint struct {
	at   uint64
	node int // position in nodes, which are in no order
}

func newTwin(cfg ring.Config) *twin {
	tw := &twin{nodes: slices.Clone(cfg.Nodes), hash: cfg.Hash}
	if tw.hash == nil {
		tw.hash = xxhash.Sum64String
	}
	for n, node := range tw.nodes {
		for i := range twinPoints(cfg, node) {
			tw.points = append(tw.points, twinPoint{tw.hash(fmt.Sprintf("%s#%d", node.ID, i)), n})
		}
	}
	return tw
}

// twinPoints is the number of points of node.
func twinPoints(cfg ring.Config, node ring.Node) int {
	weight, points := node.Weight, cfg.Points
	if weight == 0 {
		weight = 1
	}
	if points == 0 {
		points = 1024
	}
	n := int(weight*float64(points) + 0.5)
	if n < 1 {
		n = 1
	}
	return n
}

// ringOrder sorts the nodes by the way from h up to their nearest point, and
// then by ID.
func (tw *twin) ringOrder(h uint64) []ring.Node {
	type reach struct {
		way  uint64
		node ring.Node
	}
	reaches := make([]reach, len(tw.nodes))
	for n, node := range tw.nodes {
		reaches[n] = reach{^uint64(0), node}
	}
	for _, p := range tw.points {
		// Subtraction of uint64s is the way up, also past position 0.
		reaches[p.node].way = min(reaches[p.node].way, p.at-h)
	}
	slices.SortFunc(reaches, func(a, b reach) int {
		return cmp.Or(cmp.Compare(a.way, b.way), strings.Compare(a.node.ID, b.node.ID))
	})
	nodes := make([]ring.Node, 0, len(reaches))
	for _, r := range reaches {
		nodes = append(nodes, r.node)
	}
	return nodes
}

// ownerAt is the ID of the owner of position h.
func (tw *twin) ownerAt(h uint64) string {
	return tw.ringOrder(h)[0].ID
}

// walk is the IDs of all nodes, the first of each rack before the others.
func (tw *twin) walk(key string) []string {
	var firsts, others []string
	racks := make(map[string]bool)
	for _, n := range tw.ringOrder(tw.hash(key)) {
		if n.Rack != "" && racks[n.Rack] {
			others = append(others, n.ID)
			continue
		}
		racks[n.Rack] = true
		firsts = append(firsts, n.ID)
	}
	return append(firsts, others...)
}

// mustNew is ring.New for configurations that are good.
func mustNew(tb testing.TB, cfg ring.Config) *ring.Ring {
	tb.Helper()
	r, err := ring.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// walkIDs is the IDs that r.Walk yields.
func walkIDs(r *ring.Ring, key string) []string {
	var ids []string
	for n := range r.Walk(key) {
		ids = append(ids, n.ID)
	}
	return ids
}

// named makes nodes with these IDs.
func named(ids ...string) []ring.Node {
	nodes := make([]ring.Node, len(ids))
	for i, id := range ids {
		nodes[i].ID = id
	}
	return nodes
}

// numbered makes n nodes: node-0, node-1, ...
func numbered(n int) []ring.Node {
	nodes := make([]ring.Node, n)
	for i := range nodes {
		nodes[i].ID = fmt.Sprintf("node-%d", i)
	}
	return nodes
}

// shuffled returns the nodes in another order.
func shuffled(rng *rand.Rand, nodes []ring.Node) []ring.Node {
	nodes = slices.Clone(nodes)
	rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes
}

// poor wraps XXH64 into hashes that make points collide and crowd.
var poor = []struct {
	name string
	hash func(string) uint64
}{
	{"1,024 values at the bottom", func(s string) uint64 { return xxhash.Sum64String(s) % 1024 }},
	{"1,024 values at the top", func(s string) uint64 { return ^(xxhash.Sum64String(s) % 1024) }},
	{"1,024 values evenly", func(s string) uint64 { return xxhash.Sum64String(s) << 54 }},
	{"both ends", func(s string) uint64 { return bits.RotateLeft64(xxhash.Sum64String(s)%8, -2) - 1 }},
	{"32 bits", func(s string) uint64 { return xxhash.Sum64String(s) >> 32 }},
	{"one value", func(string) uint64 { return 42 }},
	{"the highest value", func(string) uint64 { return ^uint64(0) }},
}

// xxh64 is XXH64 with seed 0 written from its specification, so that the
// golden vectors do not rest on the library that the package uses.
func xxh64(s string) uint64 {
	const (
		p1 = 0x9E3779B185EBCA87
		p2 = 0xC2B2AE3D27D4EB4F
		p3 = 0x165667B19E3779F9
		p4 = 0x85EBCA77C2B2AE63
		p5 = 0x27D4EB2F165667C5
	)
	read := func(b []byte, n int) (v uint64) { // little endian
		for i := range n {
			v |= uint64(b[i]) << (8 * i)
		}
		return v
	}
	round := func(acc, lane uint64) uint64 { return bits.RotateLeft64(acc+lane*p2, 31) * p1 }

	b := []byte(s)
	acc := uint64(p5)
	if len(b) >= 32 {
		zero := uint64(0) // keeps the compiler from refusing sums that wrap
		v := [4]uint64{zero + p1 + p2, p2, 0, zero - p1}
		for ; len(b) >= 32; b = b[32:] {
			for i := range v {
				v[i] = round(v[i], read(b[8*i:], 8))
			}
		}
		acc = bits.RotateLeft64(v[0], 1) + bits.RotateLeft64(v[1], 7) + bits.RotateLeft64(v[2], 12) + bits.RotateLeft64(v[3], 18)
		for i := range v {
			acc = (acc^round(0, v[i]))*p1 + p4
		}
	}
	acc += uint64(len(s))
	for ; len(b) >= 8; b = b[8:] {
		acc = bits.RotateLeft64(acc^round(0, read(b, 8)), 27)*p1 + p4
	}
	if len(b) >= 4 {
		acc = bits.RotateLeft64(acc^read(b, 4)*p1, 23)*p2 + p3
		b = b[4:]
	}
	for _, c := range b {
		acc = bits.RotateLeft64(acc^uint64(c)*p5, 11) * p1
	}
	acc = (acc ^ acc>>33) * p2
	acc = (acc ^ acc>>29) * p3
	return acc ^ acc>>32
}
