// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"fmt"

	"github.com/go-shelf/shelf/ring"
)

func ExampleRing() {
	nodes := []ring.Node{
		{ID: "cache-a", Addr: "10.0.0.1:6379", Rack: "r1"},
		{ID: "cache-b", Addr: "10.0.0.2:6379", Rack: "r1"},
		{ID: "cache-c", Addr: "10.0.0.3:6379", Rack: "r2", Weight: 2},
	}
	r, err := ring.New(ring.Config{Nodes: nodes})
	if err != nil {
		panic(err)
	}
	fmt.Println("owner:", r.Owner("user:42").ID)
	for n := range r.Walk("user:42") {
		fmt.Println("walk:", n.ID, "in", n.Rack)
	}
	// Output:
	// owner: cache-b
	// walk: cache-b in r1
	// walk: cache-c in r2
	// walk: cache-a in r1
}

func ExampleDiff() {
	ten, eleven := []ring.Node{}, []ring.Node{}
	for i := range 11 {
		n := ring.Node{ID: fmt.Sprintf("cache-%02d", i)}
		if i < 10 {
			ten = append(ten, n)
		}
		eleven = append(eleven, n)
	}
	before, err := ring.New(ring.Config{Nodes: ten})
	if err != nil {
		panic(err)
	}
	after, err := ring.New(ring.Config{Nodes: eleven})
	if err != nil {
		panic(err)
	}

	m := ring.Diff(before, after)
	fmt.Printf("%.1f %% of the keys move\n", 100*m.Total)
	for _, move := range m.List[:2] {
		fmt.Printf("%s gives %.2f %% to %s\n", move.From, 100*move.Share, move.To)
	}
	// Output:
	// 9.0 % of the keys move
	// cache-00 gives 0.89 % to cache-10
	// cache-01 gives 1.20 % to cache-10
}
