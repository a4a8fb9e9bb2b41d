// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/ring"
)

func TestDiffByHand(t *testing.T) {
	at := readable(map[string]uint64{"a#0": 100, "b#0": 200, "c#0": 150, "d#0": math.MaxUint64})
	of := func(ids ...string) *ring.Ring {
		return mustNew(t, ring.Config{Nodes: named(ids...), Points: 1, Hash: at})
	}
	const circle = 1 << 64
	for _, tt := range []struct {
		name     string
		from, to *ring.Ring
		want     []ring.Range
	}{
		{"nothing", of("a", "b"), of("b", "a"), nil},
		{"everything", of("a"), of("b"), []ring.Range{{0, math.MaxUint64, "a", "b"}}},
		{"c joins", of("a", "b"), of("a", "b", "c"), []ring.Range{{101, 150, "b", "c"}}},
		{"c leaves", of("a", "b", "c"), of("a", "b"), []ring.Range{{101, 150, "c", "b"}}},
		// a's stretch wraps, so it comes in two; b's joins c's at 150.
		{"a leaves", of("a", "b"), of("b"), []ring.Range{{0, 100, "a", "b"}, {201, math.MaxUint64, "a", "b"}}},
		{"d at the top", of("a", "b"), of("a", "b", "d"), []ring.Range{{201, math.MaxUint64, "a", "d"}}},
		{"two for one", of("a", "b"), of("a", "c"), []ring.Range{{101, 150, "b", "c"}, {151, 200, "b", "a"}}},
		{"all new", of("a", "b"), of("c", "d"), []ring.Range{
			{0, 100, "a", "c"}, {101, 150, "b", "c"}, {151, 200, "b", "d"}, {201, math.MaxUint64, "a", "d"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := ring.Diff(tt.from, tt.to)
			for range 2 { // ranges can be ranged over again
				if got := slices.Collect(m.Ranges()); !slices.Equal(got, tt.want) {
					t.Errorf("Ranges = %v, want %v", got, tt.want)
				}
			}
			total := 0.0
			for _, r := range tt.want {
				total += (float64(r.End-r.Start) + 1) / circle
			}
			if m.Total != total {
				t.Errorf("Total = %v, want %v", m.Total, total)
			}
			for range m.Ranges() {
				break // must not go on
			}
		})
	}
}

// The zero Moves is that nothing moves.
func TestZeroMoves(t *testing.T) {
	var m ring.Moves
	for r := range m.Ranges() {
		t.Errorf("zero Moves has the range %v", r)
	}
}

// The ranges of random pairs of rings, at their ends and beside them, must say
// what the twins say; they must be as few as they can be; and shares must add
// up to them.
func TestDiffAgainstTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(27, 1))
	for range 400 {
		a, b := randomConfig(rng), randomConfig(rng)
		b.Hash = a.Hash
		from, to := newTwin(a), newTwin(b)
		m := ring.Diff(mustNew(t, a), mustNew(t, b))
		ranges := slices.Collect(m.Ranges())
		checkRanges(t, m, ranges)

		edges := []uint64{0, math.MaxUint64, rng.Uint64()}
		for _, p := range slices.Concat(from.points, to.points) {
			edges = append(edges, p.at-1, p.at, p.at+1)
		}
		for _, h := range edges {
			want := ring.Range{From: from.ownerAt(h), To: to.ownerAt(h)}
			if want.From == want.To {
				want = ring.Range{}
			}
			got := rangeAt(ranges, h)
			if got.From != want.From || got.To != want.To {
				t.Fatalf("%+v\n%+v\n%#x moves from %q to %q, want %q to %q", a, b, h, got.From, got.To, want.From, want.To)
			}
		}
	}
}

// checkRanges fails unless ranges ascend, are as few as can be, and make m's list.
func checkRanges(t *testing.T, m ring.Moves, ranges []ring.Range) {
	t.Helper()
	sums := make(map[[2]string]float64)
	total := 0.0
	for i, r := range ranges {
		if r.Start > r.End || r.From == r.To {
			t.Fatalf("range %+v is none", r)
		}
		if i > 0 {
			last := ranges[i-1]
			if last.End >= r.Start || last.End+1 == r.Start && last.From == r.From && last.To == r.To {
				t.Fatalf("range %+v follows %+v", r, last)
			}
		}
		share := (float64(r.End-r.Start) + 1) / (1 << 64)
		sums[[2]string{r.From, r.To}] += share
		total += share
	}
	const rounding = 1e-12
	if len(m.List) != len(sums) || math.Abs(m.Total-total) > rounding || m.Total > 1 {
		t.Fatalf("%d moves and a total of %v, want %d and %v", len(m.List), m.Total, len(sums), total)
	}
	for i, move := range m.List {
		if want := sums[[2]string{move.From, move.To}]; math.Abs(move.Share-want) > rounding || move.Share <= 0 {
			t.Fatalf("%+v, want the share %v", move, want)
		}
		if i > 0 && strings.Compare(m.List[i-1].From+"\x00"+m.List[i-1].To, move.From+"\x00"+move.To) >= 0 {
			t.Fatalf("%+v follows %+v", move, m.List[i-1])
		}
	}
}

// rangeAt is the range that holds h, or the zero Range.
func rangeAt(ranges []ring.Range, h uint64) ring.Range {
	i, _ := slices.BinarySearchFunc(ranges, h, func(r ring.Range, h uint64) int {
		if r.End < h {
			return -1
		}
		return 1
	})
	if i < len(ranges) && ranges[i].Start <= h {
		return ranges[i]
	}
	return ring.Range{}
}

// What Diff computes, 100,000 keys must show: their ranges exactly, and shares
// as near as so many draws come (4 standard deviations).
func TestDiffAgainstKeys(t *testing.T) {
	const keys = 100_000
	nodes := numbered(8)
	changed := append(slices.Clone(nodes[1:]), ring.Node{ID: "new", Weight: 2})
	changed[0].Weight = 0.5
	from, to := mustNew(t, ring.Config{Nodes: nodes}), mustNew(t, ring.Config{Nodes: changed})
	m := ring.Diff(from, to)
	ranges := slices.Collect(m.Ranges())

	seen := make(map[[2]string]float64)
	moved := 0.0
	for i := range keys {
		key := fmt.Sprintf("user:%d", i)
		f, t2 := from.Owner(key).ID, to.Owner(key).ID
		r := rangeAt(ranges, from.Position(key))
		if f == t2 {
			f, t2 = "", ""
		} else {
			seen[[2]string{f, t2}]++
			moved++
		}
		if r.From != f || r.To != t2 {
			t.Fatalf("%s moves from %q to %q, its range says %q to %q", key, f, t2, r.From, r.To)
		}
	}
	near := func(share, count float64) bool {
		return math.Abs(count-share*keys) <= 4*math.Sqrt(share*keys)+1
	}
	if !near(m.Total, moved) {
		t.Errorf("Total = %v, but %v of %v keys moved", m.Total, moved, keys)
	}
	for _, move := range m.List {
		if count := seen[[2]string{move.From, move.To}]; !near(move.Share, count) {
			t.Errorf("%+v, but %v of %v keys moved so", move, count, keys)
		}
	}
}
