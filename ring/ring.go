// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package ring decides which node holds a key, and which nodes come next.
//
// A ring is a circle of 2^64 positions. Every node throws a number of points
// on it, as many as its weight asks for; a key has one position, and belongs
// to the node of the first point at or after it, going up and around. When a
// node joins, it takes the stretches in front of its own points and nothing
// else moves; when it leaves, each stretch falls to the next point. This is
// consistent hashing (Karger et al., "Consistent Hashing and Random Trees",
// STOC 1997) with virtual nodes (Stoica et al., "Chord", SIGCOMM 2001).
//
// Two processes with different rings write and invalidate different copies of
// one key, so a [Ring] promises more than the papers do:
//
//   - It has no history. The same nodes in any order, after any changes, give
//     the same ring in every process, on every platform and in every version
//     of this package. hash.go fixes the bytes; golden vectors guard them.
//   - A node is its ID, never its address. A promoted replica or a moved
//     host keeps its keys.
//   - Weights are absolute. A node's points depend on its own ID and weight
//     and on [Config.Points], so another node's arrival or weight never moves
//     them.
//   - It never changes. A new membership is a new ring, and [Diff] says
//     exactly which shares and ranges of the circle move between the two.
//
// [Ring.Owner] and [Ring.OwnerIndex] answer the common question in a few
// nanoseconds. [Ring.Walk] gives the fallback order: all nodes, one from every
// rack before the second from any.
package ring

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

const (
	// DefaultPoints is the number of points of a node with weight 1 when
	// [Config.Points] is 0. The spread of the shares of equal nodes is about
	// 1/sqrt(points): 3 % here, 8 % with the textbook's 128.
	DefaultPoints = 1024

	// MaxPoints bounds the points of all nodes together. A ring of this size
	// takes 61 MB, and 42 MB more while it is built.
	MaxPoints = 4 << 20

	// MaxWeight bounds [Node.Weight]. A greater weight would not fit under
	// MaxPoints even with one point per weight 1.
	MaxWeight = MaxPoints

	// MaxNodes bounds the number of nodes, so that two bytes can name one.
	MaxNodes = 1<<16 - 1
)

// Node is one member of the ring.
type Node struct {
	// ID is the node's identity on the ring: any bytes, not empty, unique.
	// All of the node's points follow from it, so renaming a node moves all
	// of its keys.
	ID string

	// Addr is the primary's host:port. The ring carries it and does not look
	// at it.
	Addr string

	// Replicas are the addresses of the primary's replicas, carried like Addr.
	Replicas []string

	// Rack is the failure domain, which only [Ring.Walk] looks at. Nodes
	// without a rack ("") count as one rack each: nothing says that they can
	// fail together, and a list that names no rack at all is then walked in
	// plain ring order.
	Rack string

	// Weight is the node's share relative to the others. 0 means 1, and is
	// returned as 1 by the ring's methods. The node gets Weight x
	// Config.Points points, rounded to the nearest (halves up), at least
	// one. Negative, not finite, or above MaxWeight is an error.
	Weight float64
}

// clone copies what a caller could otherwise change under the ring.
func (n Node) clone() Node {
	n.Replicas = slices.Clone(n.Replicas)
	return n
}

// Config describes a ring. Points and Hash are part of the placement: all
// processes that share nodes must use the same.
type Config struct {
	// Nodes are the members, at least one and at most MaxNodes. Their order
	// does not matter.
	Nodes []Node

	// Points is the number of points of a node with weight 1. 0 means
	// DefaultPoints; negative, or above MaxPoints, is an error, and so are
	// more than MaxPoints points of all nodes together.
	Points int

	// Hash places keys and points. nil means XXH64 with seed 0. It must be a
	// pure function and safe for concurrent use. A poor one (few different
	// values, only 32 bits) makes an uneven and slower ring, never a wrong
	// one; tests use that.
	Hash func(string) uint64
}

// Ring is an immutable placement of keys on nodes. All methods are safe for
// concurrent use. [New] makes rings; the zero Ring has no nodes, and asking it
// or a nil one for an owner panics.
//
// A ring takes 14 to 18 bytes for each point and 8 to 16 more, these up to
// 1 MB, for fast lookups: 0.18 MB for 8 nodes of weight 1, 2.6 MB for 100. With
// more than 255 nodes these are twice as many, and up to 2 MB.
type Ring struct {
	nodes  []Node // sorted by ID; a node's number is its place here
	racks  []uint16
	nracks int // how many different numbers racks holds
	place  placement
	index  index
}

// New builds the ring of cfg's nodes. It keeps nothing of cfg but Hash: the
// nodes are copied. Errors name the field, its value and the rule that it
// breaks. The cost is linear in the number of points with a good hash, about
// 70 ns each: 7 ms for 100 nodes of weight 1.
func New(cfg Config) (*Ring, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Ring{
		nodes: make([]Node, len(cfg.Nodes)),
		place: placement{hash: cfg.Hash},
	}
	total := 0
	for i, n := range cfg.Nodes {
		r.nodes[i] = n.clone()
		r.nodes[i].Weight = cmp.Or(n.Weight, 1)
		total += cfg.pointsOf(n)
	}
	slices.SortFunc(r.nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	r.numberRacks()

	// Points are made in the order of the nodes' numbers; the stable sort in
	// newIndex then leaves equal points in the order of their nodes' IDs.
	hashes, owners := make([]uint64, 0, total), make([]uint16, 0, total)
	for i, n := range r.nodes {
		hashes = r.place.appendPoints(hashes, n.ID, cfg.pointsOf(n))
		for len(owners) < len(hashes) {
			owners = append(owners, uint16(i))
		}
	}
	r.index = newIndex(hashes, owners)
	return r, nil
}

// Owner returns a copy of the node that holds key. Any bytes are a key, the
// empty string too. It allocates only to copy Replicas.
func (r *Ring) Owner(key string) Node {
	return r.nodes[r.OwnerIndex(key)].clone()
}

// OwnerIndex returns the owner's position in [Ring.Nodes], for callers that
// keep something for each node in a slice. It does not allocate, and costs a
// hash of key and a few nanoseconds.
func (r *Ring) OwnerIndex(key string) int {
	if r.place.hash != nil {
		return int(r.index.owner(r.place.hash(key)))
	}
	// position and owner, spelled out: neither can be inlined, and their calls are a tenth of the time.
	h := xxhash.Sum64String(key)
	if n := r.index.cell(h); n != mixed {
		return int(n)
	}
	return int(r.index.owners[r.index.first(h)])
}

// Position returns the position of key on the circle, by which
// [Moves.Ranges] can be asked about it.
func (r *Ring) Position(key string) uint64 {
	return r.place.position(key)
}

// Nodes returns a copy of the nodes, sorted by ID (byte by byte).
func (r *Ring) Nodes() []Node {
	nodes := make([]Node, len(r.nodes))
	for i, n := range r.nodes {
		nodes[i] = n.clone()
	}
	return nodes
}

// Len returns the number of nodes.
func (r *Ring) Len() int {
	return len(r.nodes)
}

// numberRacks gives every rack a small number, so that Walk can keep the
// racks that it has seen in a bit set.
func (r *Ring) numberRacks() {
	r.racks = make([]uint16, len(r.nodes))
	numbers := make(map[string]uint16)
	for i, n := range r.nodes {
		number, known := numbers[n.Rack]
		if !known || n.Rack == "" {
			number = uint16(r.nracks)
			numbers[n.Rack] = number
			r.nracks++
		}
		r.racks[i] = number
	}
}

// pointsOf returns how many points n gets. For a valid configuration the
// product is at most 2^44, so that float64 holds it well enough to round it
// the same way everywhere.
func (c Config) pointsOf(n Node) int {
	points := float64(cmp.Or(c.Points, DefaultPoints))
	return int(max(1, math.Round(cmp.Or(n.Weight, 1)*points)))
}

// validate reports the first field that breaks its rule.
func (c Config) validate() error {
	switch {
	case c.Points < 0:
		return fmt.Errorf("ring: Points is %d: must not be negative", c.Points)
	case c.Points > MaxPoints:
		return fmt.Errorf("ring: Points is %d: must be at most %d", c.Points, MaxPoints)
	case len(c.Nodes) == 0:
		return errors.New("ring: Nodes is empty: must have at least one node")
	case len(c.Nodes) > MaxNodes:
		return fmt.Errorf("ring: Nodes has %d nodes: must have at most %d", len(c.Nodes), MaxNodes)
	}
	first, total := make(map[string]int, len(c.Nodes)), 0
	for i, n := range c.Nodes {
		if err := n.validate(i); err != nil {
			return err
		}
		if j, dup := first[n.ID]; dup {
			return fmt.Errorf("ring: Nodes[%d].ID is %q: must be unique, but Nodes[%d] has it too", i, n.ID, j)
		}
		first[n.ID] = i
		// Compared before it is added: on 32-bit platforms the sum of
		// two large products would not fit an int.
		p := cmp.Or(n.Weight, 1) * float64(cmp.Or(c.Points, DefaultPoints))
		if p > MaxPoints || total+c.pointsOf(n) > MaxPoints {
			return fmt.Errorf("ring: Nodes[%d].Weight is %v: brings the ring above %d points in all (weight x Points, summed)",
				i, n.Weight, MaxPoints)
		}
		total += c.pointsOf(n)
	}
	return nil
}

// validate checks the i-th node by itself.
func (n Node) validate(i int) error {
	switch {
	case n.ID == "":
		return fmt.Errorf("ring: Nodes[%d].ID is empty: must not be", i)
	case math.IsNaN(n.Weight) || math.IsInf(n.Weight, 0):
		return fmt.Errorf("ring: Nodes[%d].Weight is %v: must be a finite number", i, n.Weight)
	case n.Weight < 0:
		return fmt.Errorf("ring: Nodes[%d].Weight is %v: must not be negative", i, n.Weight)
	case n.Weight > MaxWeight:
		return fmt.Errorf("ring: Nodes[%d].Weight is %v: must be at most %d", i, n.Weight, MaxWeight)
	}
	return nil
}
