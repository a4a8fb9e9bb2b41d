// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/bench/meter"
)

// invented are results in which Shelf does a thousand operations in a millisecond of each slot, with the figures that are demanded, and its peers one.
func invented() results {
	r := make(results)
	for _, g := range groups() {
		for _, c := range g.cells {
			for _, name := range g.contenders {
				s := meter.Slot{Ops: 1, Wall: time.Millisecond, P50: 50 * time.Microsecond}
				if name == shelf.name { // 10 ns each
					s = meter.Slot{Ops: 100_000, Wall: time.Millisecond, CPU: time.Millisecond, P50: 5 * time.Millisecond, Loads: 1, Load: 5 * time.Millisecond, Connections: 8}
				}
				if name == threeTrips.name {
					s.P50, s.Load = 5150*time.Microsecond, 5*time.Millisecond
				}
				if c.Kind == kindStampede {
					s.Wall = 20 * time.Millisecond
				}
				for range 7 {
					r.add(c, name, s)
				}
			}
		}
	}
	return r
}

// change rewrites the slots of Shelf in a cell.
func change(r results, c cell, how func(*meter.Slot)) {
	for i := range r[c][shelf.name] {
		how(&r[c][shelf.name][i])
	}
}

func TestDemands(t *testing.T) {
	all := invented().judge()
	if !passed(all) {
		for _, d := range all {
			t.Log(d.line())
		}
		t.Fatal("what does all that is demanded has failed")
	}
	for name, tc := range map[string]struct {
		cell  cell
		how   func(*meter.Slot)
		wants []string // parts of the lines that fail, all of them
	}{
		"slow in L1": {l1Cell(1000, 1), func(s *meter.Slot) { s.Ops = 9 },
			[]string{"this machine's", "times rueidis, client-side cache"}},
		"slower than all in L1": {l1Cell(1000, 1), func(s *meter.Slot) { s.Ops, s.Wall = 1, 2*time.Millisecond },
			[]string{"this machine's", "times rueidis, client-side cache", "times go-redis, client-side cache", "times go-redis/cache", "times sturdyc"}},
		"allocates in L1":             {l1Cell(1000, 1), func(s *meter.Slot) { s.Mallocs = uint64(s.Ops) }, []string{"1 core, allocations"}},
		"the runtime allocates in L1": {l1Cell(1000, 1), func(s *meter.Slot) { s.Mallocs = uint64(s.Ops) / 50 }, nil},
		"twice as fast in L2":         {l2Cell(1, small, 64), func(s *meter.Slot) { s.Ops = 2 }, []string{"64 goroutines: times go-redis"}},
		"0.9 of all in L2": {l2Cell(1, small, 64), func(s *meter.Slot) { s.Ops, s.Wall = 9, 10*time.Millisecond },
			[]string{"64 goroutines: times rueidis", "64 goroutines: times go-redis"}},
		"half of all in L2":       {l2Cell(1, small, 1), func(s *meter.Slot) { s.Ops, s.Wall = 1, 2*time.Millisecond }, []string{"1 goroutine: times go-redis"}},
		"many allocations in L2":  {l2Cell(1, small, 64), func(s *meter.Slot) { s.Mallocs = uint64(5 * s.Ops) }, []string{"64 goroutines, allocations"}},
		"many connections":        {l2Cell(1, small, 64), func(s *meter.Slot) { s.Connections = 9 }, []string{"connections in all"}},
		"slow over eight nodes":   {l2Cell(8, small, 256), func(s *meter.Slot) { s.Ops = 1 }, []string{"8 nodes, 100 B, 256 goroutines: times rueidis"}},
		"slow misses":             {missGroup().cells[0], func(s *meter.Slot) { s.P50 = 5*time.Millisecond + 351*time.Microsecond }, []string{"miss, beyond"}},
		"misses at the limit":     {missGroup().cells[0], func(s *meter.Slot) { s.P50 = 5*time.Millisecond + 350*time.Microsecond }, nil},
		"a slow stampede":         {stampedeGroup().cells[0], func(s *meter.Slot) { s.Wall = 56 * time.Millisecond }, []string{"stampede, 10,000"}},
		"two loads in a stampede": {stampedeGroup().cells[0], func(s *meter.Slot) { s.Loads = 2 }, []string{"stampede, loads"}},
		"no load in a stampede":   {stampedeGroup().cells[0], func(s *meter.Slot) { s.Loads = 0 }, []string{"stampede, loads"}},
		"a slow GetMany": {manyGroup().cells[0], func(s *meter.Slot) { s.Ops, s.Wall = 1, 2*time.Millisecond },
			[]string{"1 goroutine: times go-redis", "1 goroutine: times go-redis Ring", "1 goroutine: times rueidis"}},
		"a slow ring": {partsGroup().cells[0], func(s *meter.Slot) { s.Ops = 40_000 }, []string{"ring lookup, 8 nodes"}},
	} {
		r := invented()
		change(r, tc.cell, tc.how)
		var failed []string
		for _, d := range r.judge() {
			if !d.ok {
				failed = append(failed, d.line())
			}
		}
		if len(failed) != len(tc.wants) {
			t.Errorf("%s: %d demands failed, want %d: %s", name, len(failed), len(tc.wants), strings.Join(failed, "; "))
		}
		for _, want := range tc.wants {
			if !slices.ContainsFunc(failed, func(line string) bool { return strings.HasPrefix(line, "FAIL") && strings.Contains(line, want) }) {
				t.Errorf("%s: %q is not among what failed: %s", name, want, strings.Join(failed, "; "))
			}
		}
	}
}

// TestDemandsOfOneRound: a single bad round among nine fails nothing but what must hold in all.
func TestDemandsOfOneRound(t *testing.T) {
	r := invented()
	r[l2Cell(1, small, 64)][shelf.name][3].Ops = 1
	r[missGroup().cells[0]][shelf.name][3].P50 = time.Second
	if all := r.judge(); !passed(all) {
		t.Error("a disturbed round has failed a demand")
	}
	r[stampedeGroup().cells[0]][shelf.name][3].Loads = 2
	if passed(r.judge()) {
		t.Error("two loads in one round have passed")
	}
}
