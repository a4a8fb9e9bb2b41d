// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"cmp"
	"image/color"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Mark is a moment at which something was done: a line down the plot, with a label above it.
type Mark struct {
	X     float64
	Label string
}

// maxMarkWidth keeps a label short enough to be placed anywhere.
const maxMarkWidth = inner / 2

// label is a mark's label: where it begins and ends, and in which row above the plot. Row 0 is the lowest.
type label struct {
	x, end vg.Length
	at     vg.Length // the mark's line
	row    int
	text   string
}

// markLabels places labels beginning at their marks. x is the place of a value, right the end of the plot. They are placed from right to left, each
// in the lowest row above all that it would meet: so a line, which ends at its own label, passes by those of later marks.
func markLabels(marks []Mark, x func(float64) vg.Length, right vg.Length) []label {
	sorted := slices.Clone(marks)
	slices.SortStableFunc(sorted, func(a, b Mark) int { return cmp.Compare(b.X, a.X) })
	var labels []label
	for _, m := range sorted {
		l := label{at: x(m.X), text: quietStyle.cut(m.Label, maxMarkWidth)}
		wide := quietStyle.Width(l.text)
		l.x = min(l.at, right-wide)
		l.end = l.x + wide + 6
		for _, other := range labels {
			if other.x < l.end && l.x < other.end {
				l.row = max(l.row, other.row+1)
			}
		}
		labels = append(labels, l)
	}
	return labels
}

// rowsAbove is how many rows of text stand right above the plot: those of the marks' labels, or one for the values of bars. The plot is a little narrower than supposed here when the numbers at its axis are wide; so one
// is counted with that much less room.
func (p *panel) rowsAbove() int {
	rows := 0
	if p.filled {
		rows = 1
	}
	const narrow = inner - 120
	x := func(v float64) vg.Length { return vg.Length(p.plot.X.Norm(v)) * narrow }
	for _, l := range markLabels(p.marks, x, narrow) {
		rows = max(rows, l.row+1)
	}
	return rows
}

// drawMarks draws lines over the height of the plot's area, and the labels between it and the top of c.
func (p *panel) drawMarks(c, area draw.Canvas) {
	data := p.plot.DataCanvas(area)
	x, _ := p.plot.Transforms(&data)
	line := draw.LineStyle{Color: axis, Width: 1, Dashes: []vg.Length{3, 3}}
	labels := markLabels(p.marks, x, data.Max.X)
	for _, l := range labels {
		c.StrokeLine2(line, l.at, data.Min.Y, l.at, area.Max.Y+vg.Length(l.row)*quietStyle.lineHeight())
	}
	for _, l := range labels { // on white: a label at the right end may stand before the line of an earlier mark
		top := area.Max.Y + vg.Length(l.row+1)*quietStyle.lineHeight()
		c.SetColor(color.White)
		c.Fill(vg.Rectangle{Min: vg.Point{X: l.x, Y: top - quietStyle.lineHeight()}, Max: vg.Point{X: l.end - 6, Y: top}}.Path())
		quietStyle.at(c, l.x, top, l.text)
	}
}
