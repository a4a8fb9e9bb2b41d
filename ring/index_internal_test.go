// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"testing"
)

// The index must order and find points as a plain sort and a binary search
// do, however they are spread over its buckets.
func TestIndexAgainstSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 1))
	spreads := []func() uint64{
		rng.Uint64,
		func() uint64 { return rng.Uint64() >> 54 },
		func() uint64 { return ^(rng.Uint64() >> 54) },
		func() uint64 { return rng.Uint64() << 60 },
		func() uint64 { return math.MaxUint64 },
		func() uint64 { return 0 },
	}
	for round := range 600 {
		draw := spreads[round%len(spreads)]
		n := 1 + rng.IntN(1<<(round%12))
		hashes, owners := make([]uint64, n), make([]uint16, n)
		for i := range hashes {
			hashes[i], owners[i] = draw(), uint16(i/3)
		}
		x := newIndex(hashes, owners)
		check(t, &x, hashes, owners)
		for range 50 {
			h := draw() + uint64(rng.IntN(3)) - 1
			want := sort.Search(n, func(i int) bool { return x.hashes[i] >= h })
			if got := x.first(h); got != want || x.owner(h) != x.owners[want] {
				t.Fatalf("round %d, %d points: first(%#x) = %d and owner = %d, want %d and %d",
					round, n, h, got, x.owner(h), want, x.owners[want])
			}
		}
	}
}

// A cell takes a byte as long as that can name every node, and mixed besides; either way it says what the points say.
func TestIndexWidth(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 2))
	for _, nodes := range []int{1, 254, 255, 256, 257, 1000} {
		cfg := Config{Points: 16}
		for i := range nodes {
			cfg.Nodes = append(cfg.Nodes, Node{ID: fmt.Sprintf("cache-%04d", i)})
		}
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		x := &r.index
		if narrow := x.narrow != nil; narrow != (nodes <= 255) || narrow == (x.cells != nil) {
			t.Errorf("%d nodes: %d cells of a byte, %d of two", nodes, len(x.narrow), len(x.cells))
		}
		check(t, x, slices.Clone(x.hashes[:x.len()]), slices.Clone(x.owners[:x.len()]))
		seen := make(map[int]bool)
		for range 100 * nodes {
			key := strconv.FormatUint(rng.Uint64(), 36)
			got, want := r.OwnerIndex(key), int(x.owners[x.first(r.Position(key))])
			if got != want {
				t.Fatalf("%d nodes: %s belongs to node %d, want %d", nodes, key, got, want)
			}
			seen[got] = true
		}
		if len(seen) != nodes {
			t.Errorf("%d nodes: %d of them own a key", nodes, len(seen))
		}
	}
}

// check fails unless x holds exactly these points, in order, with a sentinel
// and with buckets that begin where they should.
func check(t *testing.T, x *index, hashes []uint64, owners []uint16) {
	t.Helper()
	order := make([]int, len(hashes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if hashes[i] < hashes[j] {
			return -1
		} else if hashes[i] > hashes[j] {
			return 1
		}
		return int(owners[i]) - int(owners[j])
	})
	for at, i := range order {
		if x.hashes[at] != hashes[i] || x.owners[at] != owners[i] {
			t.Fatalf("point %d of %d is %#x of node %d, want %#x of node %d",
				at, len(order), x.hashes[at], x.owners[at], hashes[i], owners[i])
		}
	}
	if n := x.len(); n != len(hashes) || x.hashes[n] != math.MaxUint64 || x.owners[n] != x.owners[0] {
		t.Fatalf("%d points and the sentinel %#x of node %d, want %d and the highest position of node %d",
			n, x.hashes[n], x.owners[n], len(hashes), x.owners[0])
	}
	for b := range len(x.starts) - 1 {
		begin := uint64(b) << x.shift
		if want := sort.Search(x.len(), func(i int) bool { return x.hashes[i] >= begin }); int(x.starts[b]) != want {
			t.Fatalf("bucket %d starts at point %d, want %d", b, x.starts[b], want)
		}
	}
	for c := range uint64(max(len(x.cells), len(x.narrow))) {
		start := c << x.cellShift
		got := x.cell(start)
		end := start + (1<<x.cellShift - 1)
		from := x.first(start)
		to := from
		for to < x.len() && x.hashes[to] <= end {
			to++
		}
		whole := !slices.ContainsFunc(x.owners[from:to+1], func(o uint16) bool { return o != x.owners[from] })
		if whole != (got != mixed) || whole && got != x.owners[from] {
			t.Fatalf("cell %d of points %d to %d says %d, first of them is of node %d", c, from, to, got, x.owners[from])
		}
	}
}
