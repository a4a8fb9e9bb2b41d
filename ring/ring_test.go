// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/ring"
)

// readable is a hash to follow with a finger: a key is its own position
// ("150" lies at 150), and points lie where the table says.
func readable(points map[string]uint64) func(string) uint64 {
	return func(s string) uint64 {
		if at, ok := points[s]; ok {
			return at
		}
		at, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			panic("no point and no number: " + s)
		}
		return at
	}
}

const top = "18446744073709551615" // the highest position

// small is a ring to draw on paper:
//
//	0 ... 100 a ... 200 b ... 300 a ... 400 c ... top
func small(tb testing.TB) *ring.Ring {
	return mustNew(tb, ring.Config{
		Nodes:  []ring.Node{{ID: "b", Rack: "r1"}, {ID: "a", Weight: 2, Rack: "r1"}, {ID: "c", Rack: "r2"}},
		Points: 1,
		Hash:   readable(map[string]uint64{"a#0": 100, "b#0": 200, "a#1": 300, "c#0": 400}),
	})
}

func TestOwner(t *testing.T) {
	r := small(t)
	for _, tt := range []struct{ key, want string }{
		{"0", "a"},
		{"99", "a"},
		{"100", "a"}, // on a point: that point's
		{"101", "b"},
		{"200", "b"},
		{"250", "a"},
		{"301", "c"},
		{"400", "c"},
		{"401", "a"}, // past the last point: around to the first
		{top, "a"},
	} {
		if got := r.Owner(tt.key).ID; got != tt.want {
			t.Errorf("Owner(%s) = %s, want %s", tt.key, got, tt.want)
		}
		if got := r.Nodes()[r.OwnerIndex(tt.key)].ID; got != tt.want {
			t.Errorf("Nodes()[OwnerIndex(%s)] = %s, want %s", tt.key, got, tt.want)
		}
	}
}

func TestEqualPointsBelongToTheLowestID(t *testing.T) {
	at := map[string]uint64{"a#0": 10, "b#0": 500, "B#0": 500, "c#0": 500}
	for _, ids := range [][]string{{"a", "b", "c", "B"}, {"c", "B", "b", "a"}, {"b", "c", "a", "B"}} {
		r := mustNew(t, ring.Config{Nodes: named(ids...), Points: 1, Hash: readable(at)})
		if got := r.Owner("200").ID; got != "B" { // 'B' is byte 66, 'b' is 98
			t.Errorf("nodes %v: Owner(200) = %s, want B", ids, got)
		}
		if got, want := walkIDs(r, "200"), []string{"B", "b", "c", "a"}; !slices.Equal(got, want) {
			t.Errorf("nodes %v: Walk(200) = %v, want %v", ids, got, want)
		}
	}
}

func TestWalk(t *testing.T) {
	r := small(t)
	for _, tt := range []struct {
		key  string
		want []string
	}{
		{"50", []string{"a", "c", "b"}},  // b comes before c, but a has stood for rack r1
		{"150", []string{"b", "c", "a"}}, // the same with b
		{"350", []string{"c", "a", "b"}},
		{"450", []string{"a", "c", "b"}},
		{top, []string{"a", "c", "b"}},
	} {
		for range 2 { // a sequence can be ranged over again
			if got := walkIDs(r, tt.key); !slices.Equal(got, tt.want) {
				t.Errorf("Walk(%s) = %v, want %v", tt.key, got, tt.want)
			}
			var byIndex []string
			for i := range r.WalkIndex(tt.key) {
				byIndex = append(byIndex, r.Nodes()[i].ID)
			}
			if !slices.Equal(byIndex, tt.want) {
				t.Errorf("WalkIndex(%s) = %v, want %v", tt.key, byIndex, tt.want)
			}
		}
	}
}

// Without racks the walk is the ring's order; so it is if only one node has none
// or all have their own.
func TestWalkWithoutRacks(t *testing.T) {
	at := map[string]uint64{"a#0": 100, "b#0": 200, "c#0": 300}
	for _, racks := range [][3]string{{"", "", ""}, {"r1", "", ""}, {"r1", "r2", "r3"}} {
		nodes := named("a", "b", "c")
		for i := range nodes {
			nodes[i].Rack = racks[i]
		}
		r := mustNew(t, ring.Config{Nodes: nodes, Points: 1, Hash: readable(at)})
		if got, want := walkIDs(r, "150"), []string{"b", "c", "a"}; !slices.Equal(got, want) {
			t.Errorf("racks %q: Walk(150) = %v, want %v", racks, got, want)
		}
	}
}

func TestWalkStops(t *testing.T) {
	for stop := 1; stop <= 3; stop++ { // in each of the walk's three parts
		seen := 0
		for range small(t).Walk("50") {
			if seen++; seen == stop {
				break
			}
		}
		if seen != stop {
			t.Errorf("walk stopped after %d nodes went on to %d", stop, seen)
		}
	}
}

func TestWalkDropsOutWhoLeaves(t *testing.T) {
	nodes := numbered(12)
	full := mustNew(t, ring.Config{Nodes: nodes})
	without := mustNew(t, ring.Config{Nodes: nodes[1:]})
	for i := range 500 {
		key := strconv.Itoa(i)
		want := slices.DeleteFunc(walkIDs(full, key), func(id string) bool { return id == nodes[0].ID })
		if got := walkIDs(without, key); !slices.Equal(got, want) {
			t.Fatalf("Walk(%s) without %s = %v, want %v", key, nodes[0].ID, got, want)
		}
	}
}

func TestNodesAreCopies(t *testing.T) {
	given := []ring.Node{{ID: "b", Addr: "b:1", Replicas: []string{"b:2"}, Weight: 3, Rack: "r"}, {ID: "a"}}
	r := mustNew(t, ring.Config{Nodes: given})
	spoil := func(n ring.Node) {
		if len(n.Replicas) > 0 {
			n.Replicas[0] = "spoiled"
		}
	}
	given[0].Addr = "spoiled"
	spoil(given[0])
	for i, n := range r.Nodes() {
		spoil(n)
		r.Nodes()[i] = ring.Node{}
	}
	spoil(r.Owner("x"))
	for n := range r.Walk("x") {
		spoil(n)
	}

	nodes := r.Nodes()
	if r.Len() != 2 || len(nodes) != 2 || nodes[0].ID != "a" || nodes[1].ID != "b" {
		t.Fatalf("Len() = %d, Nodes() = %+v, want a and b", r.Len(), nodes)
	}
	if nodes[0].Weight != 1 || nodes[1].Weight != 3 {
		t.Errorf("weights = %v and %v, want 1 (the default) and 3", nodes[0].Weight, nodes[1].Weight)
	}
	if b := nodes[1]; b.Addr != "b:1" || b.Rack != "r" || !slices.Equal(b.Replicas, []string{"b:2"}) {
		t.Errorf("b = %+v, want what was given", b)
	}
}

func TestAddressIsNotIdentity(t *testing.T) {
	before := numbered(5)
	after := slices.Clone(before)
	for i := range after {
		after[i].Addr, after[i].Replicas = strconv.Itoa(i)+".example:6379", []string{"r"}
	}
	if m := ring.Diff(mustNew(t, ring.Config{Nodes: before}), mustNew(t, ring.Config{Nodes: after})); m.Total != 0 {
		t.Errorf("new addresses moved %v of the circle, want 0", m.Total)
	}
}

func TestNewRefuses(t *testing.T) {
	many := make([]ring.Node, ring.MaxNodes+1)
	for i := range many {
		many[i].ID = strconv.Itoa(i)
	}
	weight := func(w ...float64) []ring.Node {
		nodes := numbered(len(w))
		for i := range w {
			nodes[i].Weight = w[i]
		}
		return nodes
	}
	for _, tt := range []struct {
		name string
		cfg  ring.Config
		want string
	}{
		{"no nodes", ring.Config{}, "ring: Nodes is empty: must have at least one node"},
		{"many nodes", ring.Config{Nodes: many, Points: 1}, "ring: Nodes has 65536 nodes: must have at most 65535"},
		{"empty ID", ring.Config{Nodes: named("a", "")}, "ring: Nodes[1].ID is empty: must not be"},
		{"same ID", ring.Config{Nodes: named("a", "b", "a")}, `ring: Nodes[2].ID is "a": must be unique, but Nodes[0] has it too`},
		{"negative weight", ring.Config{Nodes: weight(1, 1, -1)}, "ring: Nodes[2].Weight is -1: must not be negative"},
		{"NaN", ring.Config{Nodes: weight(math.NaN())}, "ring: Nodes[0].Weight is NaN: must be a finite number"},
		{"infinite", ring.Config{Nodes: weight(1, math.Inf(1))}, "ring: Nodes[1].Weight is +Inf: must be a finite number"},
		{"minus infinite", ring.Config{Nodes: weight(math.Inf(-1))}, "ring: Nodes[0].Weight is -Inf: must be a finite number"},
		{"great weight", ring.Config{Nodes: weight(ring.MaxWeight + 1)}, "ring: Nodes[0].Weight is 4.194305e+06: must be at most 4194304"},
		{"negative points", ring.Config{Nodes: named("a"), Points: -1}, "ring: Points is -1: must not be negative"},
		{"great points", ring.Config{Nodes: named("a"), Points: ring.MaxPoints + 1}, "ring: Points is 4194305: must be at most 4194304"},
		{"one node with too many points", ring.Config{Nodes: weight(1, ring.MaxWeight), Points: ring.MaxPoints}, "ring: Nodes[1].Weight is 4.194304e+06: brings the ring above 4194304 points in all"},
		{"too many points in all", ring.Config{Nodes: weight(2048, 2048, 1e-9)}, "ring: Nodes[2].Weight is 1e-09: brings the ring above 4194304 points in all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ring.New(tt.cfg)
			if err == nil || r != nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("New = %v, %v; want no ring and %q", r, err, tt.want)
			}
		})
	}
}

// Weights are absolute: who is added, or gains weight, is the only one to whom
// keys move; who is removed, or loses weight, the only one from whom.
func TestOnlyWhoGrowsReceives(t *testing.T) {
	base := []ring.Node{{ID: "a"}, {ID: "b", Weight: 2.5}, {ID: "c", Weight: 0.1}, {ID: "d", Weight: 1e-9}}
	grown := func(id string, weight float64) *ring.Ring {
		nodes := slices.DeleteFunc(slices.Clone(base), func(n ring.Node) bool { return n.ID == id })
		return mustNew(t, ring.Config{Nodes: append(nodes, ring.Node{ID: id, Weight: weight})})
	}
	from := mustNew(t, ring.Config{Nodes: base})
	for _, tt := range []struct {
		id     string
		weight float64
	}{{"new", 1}, {"new", 1e-9}, {"Also new", 40}, {"a", 1.1}, {"b", 25}, {"c", 0.2}, {"d", 1}} {
		to := grown(tt.id, tt.weight)
		there, back := ring.Diff(from, to), ring.Diff(to, from)
		if there.Total <= 0 || there.Total != back.Total {
			t.Errorf("%s at %v: %v moves there and %v back, want the same and more than 0", tt.id, tt.weight, there.Total, back.Total)
		}
		for i := range there.List {
			if there.List[i].To != tt.id || back.List[i].From != tt.id {
				t.Errorf("%s at %v: %+v there and %+v back, want only moves to it and from it", tt.id, tt.weight, there.List[i], back.List[i])
			}
		}
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	r := mustNew(t, ring.Config{Nodes: numbered(20)})
	if n := testing.AllocsPerRun(200, func() { r.OwnerIndex("product:4411:v3") }); n != 0 {
		t.Errorf("OwnerIndex allocates %v times, want 0", n)
	}
	if n := testing.AllocsPerRun(200, func() { r.Owner("product:4411:v3") }); n != 0 {
		t.Errorf("Owner of a node without replicas allocates %v times, want 0", n)
	}
}
