// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

const (
	// linear is the largest number of points of a bucket that are searched
	// (and, when built, sorted) one by one. Good hashes put one point into a
	// bucket, and hardly ever more than linear.
	linear = 8

	// cellsLog is how much finer cells are than buckets, as a power of two:
	// at most one cell in eight is mixed. With 2 instead of 3, lookups took 4 ns
	// more; with 4, they took 0 to 3 ns less for twice the memory.
	cellsLog = 3

	// maxCellsLog keeps cells within 1 MB, or 2 MB, which a core's cache can still hold.
	maxCellsLog = 20

	// mixed marks a cell of several owners, and narrowMixed one that takes a byte. Neither is a node's number.
	mixed       = MaxNodes
	narrowMixed = math.MaxUint8
)

// index finds the first point at or above a position, and the position's
// owner, in two steps:
//
//   - The top bits of the position choose a cell. Most cells lie between two
//     points, so that one node owns them whole; they name it. The answer
//     takes one look, and the branch to it is predicted well.
//   - Somewhat fewer top bits choose a bucket, which knows its first point;
//     from there it is one or two steps, against the 13 to 17 jumps of a
//     binary search over the same points. Poor hashes fill few buckets, in
//     which the search is binary.
//
// Without the cells a lookup took 22 ns instead of 14 for 8 nodes and 26 instead
// of 18 for 100, 7 of them for the hash (the best of many short runs on a busy
// 2-core Xeon): a processor often guesses the number of steps wrong.
//
// hashes and owners have one element more than there are points: a sentinel
// that repeats the lowest point's owner at the highest position. It is the
// wrap-around, so that no loop has to test for the end.
type index struct {
	hashes []uint64 // ascending, equal ones by ascending owner; then MaxUint64
	owners []uint16 // owners[i] is the node of hashes[i]; then owners[0]

	starts []uint32 // starts[b] is the first point in bucket b or above
	shift  uint     // position >> shift is the bucket

	cellShift uint     // position >> cellShift is the cell
	cells     []uint16 // the owner of all of the cell, or mixed; nil where there are
	narrow    []uint8  // the same for up to 255 nodes, in half as much of the processor's cache
}

// newIndex sorts n >= 1 points, given in ascending order of owners, into an
// index. There are n to 2n buckets, so one pass that deals the points into
// their buckets does nearly all of the sorting.
func newIndex(hashes []uint64, owners []uint16) index {
	n := len(hashes)
	log := max(1, bits.Len(uint(n-1)))
	x := index{
		hashes: make([]uint64, n+1),
		owners: make([]uint16, n+1),
		starts: make([]uint32, 1<<log+1),
		shift:  uint(64 - log),
	}
	for _, h := range hashes {
		x.starts[h>>x.shift]++
	}
	end := uint32(0)
	for b := range x.starts {
		end += x.starts[b]
		x.starts[b] = end
	}
	// Each start is now its bucket's end, and moves down to its begin as the
	// bucket fills from behind. Last to first, so that equal points keep
	// their order.
	for i := n - 1; i >= 0; i-- {
		b := hashes[i] >> x.shift
		x.starts[b]--
		x.hashes[x.starts[b]], x.owners[x.starts[b]] = hashes[i], owners[i]
	}
	for b := range len(x.starts) - 1 {
		x.sort(int(x.starts[b]), int(x.starts[b+1]))
	}
	x.hashes[n], x.owners[n] = math.MaxUint64, x.owners[0]
	log = min(log+cellsLog, maxCellsLog)
	x.cellShift = uint(64 - log)
	if slices.Max(owners) < narrowMixed {
		x.narrow = divide[uint8](&x, make([]uint8, 1<<log), narrowMixed)
	} else {
		x.cells = divide[uint16](&x, make([]uint16, 1<<log), mixed)
	}
	return x
}

// divide fills the cells, going up the points once.
func divide[T uint8 | uint16](x *index, cells []T, mixed T) []T {
	next := 0 // the lowest cell not filled yet
	for i := range x.len() {
		c := int(x.hashes[i] >> x.cellShift)
		for ; next <= c; next++ {
			cells[next] = T(x.owners[i])
		}
		// The point ends within c, and the rest belongs to the one after.
		if x.owners[i+1] != x.owners[i] {
			cells[c] = mixed
		}
	}
	for ; next < len(cells); next++ {
		cells[next] = T(x.owners[0])
	}
	return cells
}

// len returns the number of points.
func (x *index) len() int {
	return len(x.hashes) - 1
}

// first returns the lowest point at or above h, and len() if there is none:
// the sentinel, which stands for point 0.
func (x *index) first(h uint64) int {
	b := h >> (x.shift & 63)
	lo, hi := int(x.starts[b]), int(x.starts[b+1])
	for hi-lo > linear {
		mid := int(uint(lo+hi) >> 1)
		if x.hashes[mid] < h {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	// Ends at hi at the latest: that point is at or above h, or in a later
	// bucket, or the sentinel.
	for x.hashes[lo] < h {
		lo++
	}
	return lo
}

// owner returns the number of the node that owns position h.
func (x *index) owner(h uint64) uint16 {
	if n := x.cell(h); n != mixed {
		return n
	}
	return x.owners[x.first(h)]
}

// cell returns what the cell of h says.
func (x *index) cell(h uint64) uint16 {
	c := h >> (x.cellShift & 63)
	if c >= uint64(len(x.narrow)) {
		return x.cells[c]
	}
	if n := x.narrow[c]; n != narrowMixed {
		return uint16(n)
	}
	return mixed
}

// sort puts points lo to hi-1, one bucket, in order of hash and then of owner.
func (x *index) sort(lo, hi int) {
	if hi-lo > linear {
		x.sortMany(lo, hi)
		return
	}
	for i := lo + 1; i < hi; i++ {
		for j := i; j > lo && x.hashes[j] < x.hashes[j-1]; j-- {
			x.hashes[j], x.hashes[j-1] = x.hashes[j-1], x.hashes[j]
			x.owners[j], x.owners[j-1] = x.owners[j-1], x.owners[j]
		}
	}
}

// sortMany is sort for buckets that a poor hash has filled.
func (x *index) sortMany(lo, hi int) {
	type point struct {
		hash  uint64
		owner uint16
	}
	points := make([]point, hi-lo)
	for i := range points {
		points[i] = point{x.hashes[lo+i], x.owners[lo+i]}
	}
	slices.SortFunc(points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.owner, b.owner))
	})
	for i, p := range points {
		x.hashes[lo+i], x.owners[lo+i] = p.hash, p.owner
	}
}
