// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring

import "iter"

// Walk yields copies of all nodes, each once, in the order in which they
// should stand in for one another on key:
//
//  1. the owner;
//  2. going up the ring from the owner's point, each node whose rack has not
//     come yet (a node without a rack is a rack of its own);
//  3. the nodes that were passed over, in ring order.
//
// So the first k nodes lie in k different racks where there are that many. The
// order depends on the key and the nodes alone, as the owner does. Where no
// two nodes share a rack, a node that leaves just drops out of it.
//
// The sequence may be ranged over many times, also at once. It is lazy: it
// looks at points until the loop stops. The whole walk of n nodes of equal
// weight looks at about n ln n points; a node of very little weight may take
// as many looks as the ring has points.
func (r *Ring) Walk(key string) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		r.walk(r.place.position(key), func(n uint16) bool {
			return yield(r.nodes[n].clone())
		})
	}
}

// WalkIndex is Walk that yields the nodes' indexes in Nodes, without copies.
func (r *Ring) WalkIndex(key string) iter.Seq[int] {
	return func(yield func(int) bool) {
		r.walk(r.place.position(key), func(n uint16) bool { return yield(int(n)) })
	}
}

// walk yields the numbers of the nodes in Walk's order. Every node has a
// point, so one trip round the ring, over both loops, meets all of them.
func (r *Ring) walk(h uint64, yield func(uint16) bool) {
	nodes, racks := newBitset(len(r.nodes)), newBitset(r.nracks)
	var passed []uint16 // nodes met whose rack had come
	at := r.index.first(h)
	for left := r.nracks; left > 0; at = r.next(at) {
		n := r.index.owners[at]
		if !nodes.add(n) {
			continue
		}
		if !racks.add(r.racks[n]) {
			passed = append(passed, n)
			continue
		}
		left--
		if !yield(n) {
			return
		}
	}
	for _, n := range passed {
		if !yield(n) {
			return
		}
	}
	for left := len(r.nodes) - r.nracks - len(passed); left > 0; at = r.next(at) {
		if n := r.index.owners[at]; nodes.add(n) {
			left--
			if !yield(n) {
				return
			}
		}
	}
}

// next returns the point after at. The sentinel stands for point 0, so what
// follows it is point 1.
func (r *Ring) next(at int) int {
	if at++; at >= r.index.len() {
		at -= r.index.len()
	}
	return at
}

// bitset is a set of small numbers.
type bitset []uint64

func newBitset(n int) bitset {
	return make(bitset, (n+63)/64)
}

// add puts n in and reports whether it was not there yet.
func (s bitset) add(n uint16) bool {
	word, bit := &s[n/64], uint64(1)<<(n%64)
	added := *word&bit == 0
	*word |= bit
	return added
}
