// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strings"
)

// tables are what a group has shown.
func (r results) tables(g *group) []*table {
	switch g.kind {
	case kindL1:
		return []*table{r.l1Table(g)}
	case kindL2:
		var all []*table
		for _, size := range g.sizes {
			all = append(all, r.l2Table(g, size))
		}
		return all
	case kindMiss:
		return []*table{r.missTable(g)}
	case kindMany:
		return []*table{r.manyTable(g)}
	case kindStampede:
		return []*table{r.stampedeTable(g)}
	case kindZipf:
		return []*table{r.zipfTable(g)}
	}
	return []*table{r.partsTable(g)}
}

// times is how many times as quick as a peer Shelf is; nothing for Shelf itself.
func (r results) times(c cell, name string) string {
	if name == shelf.name || len(r.slots(c, shelf.name)) == 0 {
		return ""
	}
	return r.ratio(c, shelf.name, name).String()
}

// label is a contender's name in a table. Limits are in brackets.
func label(name string) string {
	if c, err := contenderOf(name); err == nil && c.limit {
		return "(" + name + ")"
	}
	return name
}

func (r results) l1Table(g *group) *table {
	t := &table{title: fmt.Sprintf("%s, %s resident keys, values of %s", kindL1, thousands(g.keys), bytesText(small)),
		head: []string{"", "1 core: time", "processor time", "allocations", "Shelf is faster, times", "2 cores: time a hit", "Shelf is faster, times"}}
	one, two := g.cells[0], g.cells[1]
	for _, name := range g.contenders {
		slots, both := r.slots(one, name), r.slots(two, name)
		t.add(label(name), short(medianOf(slots, perOp)), short(medianOf(slots, cpuPerOp)), digits(round1(medianOf(slots, mallocs))), r.times(one, name),
			short(medianOf(both, perOp)), r.times(two, name))
	}
	return t
}

func (r results) l2Table(g *group, size int) *table {
	t := &table{title: fmt.Sprintf("%s, %s, values of %s: thousand reads a second", kindL2, plural(g.nodes, "node"), bytesText(size))}
	t.head = []string{"goroutines"}
	for _, n := range goroutines {
		t.head = append(t.head, thousands(n))
	}
	at := l2Cell(g.nodes, size, 64)
	t.head = append(t.head, "at 64: Shelf is faster, times", "client's processor time a read", "servers'", "allocations", "p50", "p99", "connections a node")
	for _, name := range g.contenders {
		row := []string{label(name)}
		for _, n := range goroutines {
			row = append(row, digits(medianOf(r.slots(l2Cell(g.nodes, size, n), name), rate)/1000))
		}
		slots := r.slots(at, name)
		connections := "-"
		if len(slots) > 0 && slots[0].Connections > 0 {
			connections = digits(float64(slots[0].Connections) / float64(g.nodes))
		}
		t.rows = append(t.rows, append(row, r.times(at, name), short(medianOf(slots, cpuPerOp)), timed(medianOf(slots, server)), digits(round1(medianOf(slots, mallocs))), timed(medianOf(slots, p50)),
			timed(medianOf(slots, p99)), connections))
	}
	return t
}

func (r results) missTable(g *group) *table {
	c := g.cells[0]
	t := &table{title: "Miss, a load of " + loadingTime.String() + " (which takes as long as it says, by the machine's timers), one caller",
		head: []string{"", "p50", "p99", "its load", "beyond the load", "processor time", "allocations"}}
	for _, name := range g.contenders {
		s := r.slots(c, name)
		t.add(label(name), short(medianOf(s, p50)), short(medianOf(s, p99)), short(medianOf(s, loadTime)), short(medianOf(s, beyondLoad)), short(medianOf(s, cpuPerOp)), digits(round1(medianOf(s, mallocs))))
	}
	return t
}

func (r results) manyTable(g *group) *table {
	t := &table{title: fmt.Sprintf("GetMany of %d keys over %s, values of %s", g.cells[0].Batch, plural(g.nodes, "node"), bytesText(small)),
		head: []string{"", "1 caller: time", "p99", "processor time", "allocations", "Shelf is faster, times", "16 callers: batches a second", "Shelf is faster, times"}}
	one, more := g.cells[0], g.cells[1]
	for _, name := range g.contenders {
		s := r.slots(one, name)
		t.add(label(name), short(medianOf(s, perOp)), short(medianOf(s, p99)), short(medianOf(s, cpuPerOp)), digits(round1(medianOf(s, mallocs))), r.times(one, name),
			digits(medianOf(r.slots(more, name), rate)), r.times(more, name))
	}
	return t
}

func (r results) stampedeTable(g *group) *table {
	c := g.cells[0]
	t := &table{title: "Stampede: " + c.name(), head: []string{"", "all answered after", "loads"}}
	for _, name := range g.contenders {
		s := r.slots(c, name)
		t.add(label(name), short(medianOf(s, wall)), thousands(int(medianOf(s, loads))))
	}
	return t
}

func (r results) zipfTable(g *group) *table {
	c := g.cells[0]
	t := &table{title: fmt.Sprintf("%s: %s, loads of %v", kindZipf, c.name(), g.loading),
		head: []string{"", "thousand operations a second", "loads in a thousand", "processor time", "allocations", "Shelf is faster, times"}}
	for _, name := range g.contenders {
		s := r.slots(c, name)
		t.add(label(name), digits(medianOf(s, rate)/1000), digits(1000*medianOf(s, loads)/max(1, medianOf(s, opsOf))), short(medianOf(s, cpuPerOp)),
			digits(round1(medianOf(s, mallocs))), r.times(c, name))
	}
	return t
}

func (r results) partsTable(g *group) *table {
	t := &table{title: "Parts of Shelf", head: []string{"", "time", "allocations"}}
	for _, c := range g.cells {
		s := r.slots(c, shelf.name)
		t.add(c.Part, short(medianOf(s, perOp)), digits(round1(medianOf(s, mallocs))))
	}
	return t
}

// legend says how the contenders of some groups were set up, and who could not be asked.
func legend(groups []group) *table {
	t := &table{title: "Who was measured", head: []string{"", "set up"}}
	seen := make(map[string]bool)
	for _, g := range groups {
		for _, name := range g.contenders {
			seen[name] = true
		}
	}
	for _, c := range contenders() {
		if seen[c.name] {
			t.add(label(c.name), c.about)
		}
	}
	t.add(strings.Join(absent, ", "), "not measured: the module proxy of the machine that this was written on does not serve them")
	return t
}

// absent are libraries that belong here.
var absent = []string{"rueidisaside", "rockscache", "jetcache-go", "eko/gocache"}
