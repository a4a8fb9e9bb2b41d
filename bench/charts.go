// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"path/filepath"

	"github.com/go-shelf/shelf/bench/meter"
	"github.com/go-shelf/shelf/internal/chart"
)

// draw writes a chart of each kind of work that was compared into the directory.
func (r results) draw(dir string, chosen []group) error {
	for file, f := range r.figures(chosen) {
		if err := f.Save(filepath.Join(dir, file+".svg")); err != nil {
			return err
		}
	}
	return nil
}

// figures are the charts by the names of their files.
func (r results) figures(chosen []group) map[string]chart.Figure {
	all := make(map[string]chart.Figure)
	panels := func(file, title string, more ...chart.Panel) {
		f := all[file]
		f.Title, f.Panels = title, append(f.Panels, more...)
		all[file] = f
	}
	for i := range chosen {
		g := &chosen[i]
		switch g.kind {
		case kindL1:
			panels("bench-l1", "A hit in the process's own memory", r.bars(g, perOp, chart.Axis{Label: "time a hit, log scale", Unit: "s", Scale: chart.Log}, 1e-9))
		case kindL2:
			panels("bench-l2", "Reads of nodes: values of "+bytesText(small), r.rates(g, small))
		case kindMany:
			panels("bench-getmany", "Many keys at once", r.bars(g, perOp, chart.Axis{Label: "time a batch", Unit: "s"}, 1e-9))
		case kindZipf:
			panels("bench-zipf", "Reads and writes by popularity", r.bars(g, rate, chart.Axis{Label: "operations a second"}, 1))
		}
	}
	return all
}

// bars has a group for each cell and a bar for each contender.
func (r results) bars(g *group, figure func(meter.Slot) float64, y chart.Axis, scale float64) chart.Bars {
	b := chart.Bars{Title: g.name, Y: y}
	for _, c := range g.cells {
		b.Groups = append(b.Groups, c.name())
	}
	for _, name := range g.contenders {
		h := chart.Heights{Name: label(name)}
		for _, c := range g.cells {
			h.Values = append(h.Values, scale*medianOf(r.slots(c, name), figure))
		}
		b.Series = append(b.Series, h)
	}
	return b
}

// rates has a line for each contender but those that stand on another one, go-redis: a chart has room for seven, and the table has all.
func (r results) rates(g *group, size int) chart.Lines {
	l := chart.Lines{Title: plural(g.nodes, "node"), X: chart.Axis{Label: "goroutines", Scale: chart.Log}, Y: chart.Axis{Label: "reads a second"}}
	for _, name := range g.contenders {
		if name == redisCache.name || name == goZero.name {
			continue
		}
		s := chart.Series{Name: label(name)}
		for _, n := range goroutines {
			s.X = append(s.X, float64(n))
			s.Y = append(s.Y, medianOf(r.slots(l2Cell(g.nodes, size, n), name), rate))
		}
		l.Series = append(l.Series, s)
	}
	return l
}
