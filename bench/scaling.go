// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/go-shelf/shelf/internal/chart"
)

// growth is how costs go along with one thing.
type growth struct {
	name   string
	file   string // of its chart, without the ending
	along  string // what grows
	unit   string // of that, where it has one
	each   string // what is counted: "read"
	groups []group
	at     func(*cell) int
	shown  func(int) string
}

// growths are all that -scaling measures. Servers are real processes.
func growths() []growth {
	return []growth{byGoroutines(), byNodes(), byKeys(), bySize(), byBatch()}
}

func byGoroutines() growth {
	g := group{name: "scaling: goroutines", kind: kindL2, nodes: 1, keys: 10_000, sizes: []int{small}, contenders: []string{shelf.name, goRedis.name, rueidisPlain.name, batcher.name}}
	for n := 1; n <= 1024; n *= 2 {
		g.cells = append(g.cells, l2Cell(1, small, n))
	}
	return growth{name: "L2 hit by goroutines, 1 node, values of 100 B", file: "scaling-goroutines", along: "goroutines", each: "read", groups: []group{g},
		at: func(c *cell) int { return c.Goroutines }, shown: thousands}
}

func byNodes() growth {
	s := growth{name: "L2 hit by nodes, 64 goroutines, values of 100 B", file: "scaling-nodes", along: "nodes", each: "read",
		at: func(c *cell) int { return c.Nodes }, shown: thousands}
	for _, n := range []int{1, 2, 4, 8, 16, 32, 64, 100} {
		s.groups = append(s.groups, group{name: "scaling: nodes", kind: kindL2, nodes: n, keys: 10_000, sizes: []int{small},
			contenders: []string{shelf.name, goRedis.name, rueidisPlain.name}, cells: []cell{l2Cell(n, small, 64)}})
	}
	return s
}

func byKeys() growth {
	s := growth{name: "L1 hit by resident keys, 1 core, values of 100 B", file: "scaling-keys", along: "resident keys", each: "read",
		at: func(c *cell) int { return c.Keys }, shown: thousands}
	for _, n := range []int{100, 1000, 10_000, 100_000, 300_000} {
		s.groups = append(s.groups, group{name: "scaling: keys", kind: kindL1, nodes: 1, keys: n, sizes: []int{small},
			contenders: []string{shelf.name, lruAlone.name, otterAlone.name}, cells: []cell{l1Cell(n, 1)}})
	}
	return s
}

func bySize() growth {
	g := group{name: "scaling: value size", kind: kindL2, nodes: 1, keys: 32, contenders: []string{shelf.name, goRedis.name, rueidisPlain.name}}
	for _, size := range []int{16, 100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10} {
		g.sizes = append(g.sizes, size)
		g.cells = append(g.cells, cell{Kind: kindL2, Nodes: 1, Keys: g.keys, Size: size, Goroutines: 16})
	}
	return growth{name: "L2 hit by the size of the value, 1 node, 16 goroutines", file: "scaling-sizes", along: "size of the value", unit: "bytes", each: "read", groups: []group{g},
		at: func(c *cell) int { return c.Size }, shown: bytesText}
}

func byBatch() growth {
	g := group{name: "scaling: batch", kind: kindMany, nodes: 8, keys: 10_000, sizes: []int{small}, contenders: []string{shelf.name, goRedis.name, rueidisPlain.name}}
	for _, n := range []int{1, 3, 10, 30, 100, 300, 1000, 3000} {
		g.cells = append(g.cells, cell{Kind: kindMany, Nodes: 8, Keys: g.keys, Size: small, Goroutines: 1, Batch: n})
	}
	return growth{name: "GetMany by keys, 8 nodes, 1 caller, values of 100 B", file: "scaling-batch", along: "keys of a batch", each: "batch", groups: []group{g},
		at: func(c *cell) int { return c.Batch }, shown: thousands}
}

// scalingRounds is how many rounds -scaling makes where nobody says: it judges nothing.
const scalingRounds = 3

// scale measures how costs grow.
func (c *config) scale(ctx context.Context, out io.Writer) error {
	began := time.Now()
	d := document{out: out}
	d.print(machine(ctx))
	p := c.pace()
	if p.rounds == defaultRounds {
		p.rounds = scalingRounds
	}
	measured := 0
	for _, s := range growths() {
		if !c.wants(s.name) {
			continue
		}
		measured++
		r := make(results)
		for i := range s.groups {
			if err := s.groups[i].run(ctx, p, r); err != nil {
				return err
			}
		}
		d.add(s.table(r))
		if c.charts != "" {
			if err := s.figure(r).Save(filepath.Join(c.charts, s.file+".svg")); err != nil {
				return err
			}
		}
	}
	if measured == 0 {
		return fmt.Errorf("bench: -only is %q: nothing that -scaling measures has that in its name", c.only)
	}
	if c.short {
		d.print(briefly)
	} else {
		d.print("Nothing is judged here.")
	}
	d.print(fmt.Sprintf("%s of %v, %s in all", plural(p.rounds, "round"), c.slot, time.Since(began).Round(time.Second)))
	return d.save(c.md)
}

func (s *growth) contenders() []string { return s.groups[0].contenders }

// cells calls do with all cells in their order.
func (s *growth) cells(do func(cell)) {
	for _, g := range s.groups {
		for _, c := range g.cells {
			do(c)
		}
	}
}

func (s *growth) table(r results) *table {
	t := &table{title: s.name, head: []string{s.along, "Shelf: time a " + s.each, "processor time", "of it in the kernel", "servers'", "allocations", "p99"}}
	for _, name := range s.contenders()[1:] {
		t.head = append(t.head, label(name)+": time")
	}
	s.cells(func(c cell) {
		slots := r.slots(c, shelf.name)
		row := []string{s.shown(s.at(&c)), short(medianOf(slots, perOp)), short(medianOf(slots, cpuPerOp)), timed(medianOf(slots, kernel)), timed(medianOf(slots, server)), digits(round1(medianOf(slots, mallocs))), timed(medianOf(slots, p99))}
		for _, name := range s.contenders()[1:] {
			row = append(row, short(medianOf(r.slots(c, name), perOp)))
		}
		t.rows = append(t.rows, row)
	})
	return t
}

func (s *growth) figure(r results) chart.Figure {
	lines := chart.Lines{X: chart.Axis{Label: s.along, Unit: s.unit, Scale: chart.Log}, Y: chart.Axis{Label: "time a " + s.each, Unit: "s", Scale: chart.Log}}
	for _, name := range s.contenders() {
		line := chart.Series{Name: label(name)}
		s.cells(func(c cell) {
			line.X = append(line.X, float64(s.at(&c)))
			line.Y = append(line.Y, medianOf(r.slots(c, name), perOp)/1e9)
		})
		lines.Series = append(lines.Series, line)
	}
	return chart.Figure{Title: s.name, Panels: []chart.Panel{lines}}
}
