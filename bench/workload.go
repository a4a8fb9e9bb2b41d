// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
	"time"
)

// group is cells of one kind over the same servers, and who does them. Its contenders are opened together, each in its own process, and are there until the group is through.
type group struct {
	name       string
	kind       string
	nodes      int
	keys       int
	sizes      []int
	loading    time.Duration
	cells      []cell
	contenders []string
	slot       time.Duration // of one run of a cell; 0 is the configured one
	warm       time.Duration // of a run of its own after opening
}

const (
	small, big  = 100, 1024 // bytes of a value
	loadingTime = 5 * time.Millisecond
	stampeding  = 10_000
)

var goroutines = []int{1, 4, 16, 64, 256}

// groups are all that is compared.
func groups() []group {
	return slices.Concat(l1Groups(), l2Groups(), []group{missGroup(), manyGroup(), stampedeGroup(), zipfGroup(), partsGroup()})
}

func l1Groups() (all []group) {
	for _, keys := range []int{1000, 100_000} {
		g := group{name: fmt.Sprintf("%s, %s keys", kindL1, thousands(keys)), kind: kindL1, nodes: 1, keys: keys, sizes: []int{small}, contenders: able(kindL1)}
		for _, cores := range []int{1, 2} {
			g.cells = append(g.cells, cell{Kind: kindL1, Nodes: 1, Keys: keys, Size: small, Goroutines: cores, Procs: cores})
		}
		all = append(all, g)
	}
	return all
}

func l2Groups() (all []group) {
	for _, nodes := range []int{1, 8} {
		g := group{name: fmt.Sprintf("%s, %s", kindL2, plural(nodes, "node")), kind: kindL2, nodes: nodes, keys: 10_000, sizes: []int{small, big}, contenders: able(kindL2)}
		for _, size := range g.sizes {
			for _, n := range goroutines {
				g.cells = append(g.cells, cell{Kind: kindL2, Nodes: nodes, Keys: g.keys, Size: size, Goroutines: n})
			}
		}
		all = append(all, g)
	}
	return all
}

// missGroup is one caller. Beside the misses there is what as many round trips take alone.
func missGroup() group {
	return group{name: kindMiss, kind: kindMiss, nodes: 1, keys: 0, sizes: []int{small}, loading: loadingTime, slot: 400 * time.Millisecond, contenders: able(kindMiss),
		cells: []cell{{Kind: kindMiss, Nodes: 1, Size: small, Goroutines: 1}}}
}

func manyGroup() group {
	g := group{name: kindMany, kind: kindMany, nodes: 8, keys: 10_000, sizes: []int{small}, contenders: able(kindMany)}
	for _, n := range []int{1, 16} {
		g.cells = append(g.cells, cell{Kind: kindMany, Nodes: 8, Keys: g.keys, Size: small, Goroutines: n, Batch: 100})
	}
	return g
}

func stampedeGroup() group {
	return group{name: kindStampede, kind: kindStampede, nodes: 1, sizes: []int{small}, loading: loadingTime, contenders: able(kindStampede),
		cells: []cell{{Kind: kindStampede, Nodes: 1, Size: small, Goroutines: stampeding}}}
}

func zipfGroup() group {
	return group{name: kindZipf, kind: kindZipf, nodes: 8, keys: 100_000, sizes: []int{small}, loading: time.Millisecond, slot: 500 * time.Millisecond, warm: 2 * time.Second,
		contenders: able(kindZipf),
		cells:      []cell{{Kind: kindZipf, Nodes: 8, Keys: 100_000, Size: small, Goroutines: 64}}}
}

func partsGroup() group {
	g := group{name: kindParts, kind: kindParts, contenders: []string{shelf.name}}
	for _, p := range parts {
		g.cells = append(g.cells, cell{Kind: kindParts, Part: p, Goroutines: 1})
	}
	return g
}

// able are the names of those who can do a kind of work.
func able(kind string) (names []string) {
	for _, c := range contenders() {
		if slices.Contains(c.kinds, kind) {
			names = append(names, c.name)
		}
	}
	return names
}

// name is a cell's place in a table.
func (c *cell) name() string {
	switch c.Kind {
	case kindL1:
		return fmt.Sprintf("%s keys, %s", thousands(c.Keys), plural(c.Procs, "core"))
	case kindL2:
		return fmt.Sprintf("%s, %s, %s", plural(c.Nodes, "node"), bytesText(c.Size), plural(c.Goroutines, "goroutine"))
	case kindMiss:
		return fmt.Sprintf("loads of %v", loadingTime)
	case kindMany:
		return fmt.Sprintf("%d keys, %s, %s", c.Batch, plural(c.Nodes, "node"), plural(c.Goroutines, "goroutine"))
	case kindStampede:
		return fmt.Sprintf("%s callers, a load of %v", thousands(c.Goroutines), loadingTime)
	case kindZipf:
		return fmt.Sprintf("%s keys, %s, %s", thousands(c.Keys), plural(c.Nodes, "node"), plural(c.Goroutines, "goroutine"))
	}
	return c.Part
}
