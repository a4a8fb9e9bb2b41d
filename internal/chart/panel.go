// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// panel is what the kinds of panels have in common, checked and ready to draw: from the top the title, the label of the y axis, the names of
// the series, the labels of the marks, the plot, the label of the x axis.
type panel struct {
	title  []string
	y, x   []string // labels of the axes
	names  []string // of the series, "" for one that needs none
	filled bool     // the series are areas, not lines
	marks  []Mark
	plot   *plot.Plot
	below  vg.Length // height of what the panel itself draws below the x axis
}

// newPanel prepares what all panels have. The axes' spans are set.
func newPanel(title string, x, y Axis, xs, ys span, names []string) *panel {
	p := &panel{
		title: panelStyle.lines(title, inner), y: quietStyle.lines(y.title(), inner), x: quietStyle.lines(x.title(), inner),
		names: names, plot: plot.New(),
	}
	for _, a := range []*plot.Axis{&p.plot.X, &p.plot.Y} {
		a.Tick.Label.Font = quietStyle.Font
		a.Tick.Label.Color = quietStyle.Color
		a.Color, a.Tick.Color = axis, axis
		a.Padding = 0
	}
	p.plot.BackgroundColor = nil
	x.apply(&p.plot.X, xs)
	y.apply(&p.plot.Y, ys)
	p.plot.Add(gridLines{})
	return p
}

const (
	inner            = width - 2*margin
	gap    vg.Length = 4  // between the parts
	swatch vg.Length = 26 // of a series, before its name
)

func (p *panel) height() vg.Length {
	h := panelStyle.height(p.title) + quietStyle.height(p.y) + plotHeight + p.below + quietStyle.height(p.x) + 2*gap
	return h + vg.Length(len(p.legend()))*labelStyle.lineHeight() + vg.Length(p.rowsAbove())*quietStyle.lineHeight()
}

// labelWidth is that of the widest number at the y axis.
func (p *panel) labelWidth() (w vg.Length) {
	for _, t := range p.plot.Y.Tick.Marker.Ticks(p.plot.Y.Min, p.plot.Y.Max) {
		w = max(w, quietStyle.Width(t.Label))
	}
	return w
}

// draw fills the canvas. The numbers at the y axis get a width that all panels of a figure share.
func (p *panel) draw(c draw.Canvas, labels vg.Length) {
	c.Max.Y -= panelStyle.draw(c, p.title)
	c.Max.Y -= quietStyle.draw(c, p.y)
	c.Max.Y -= p.drawLegend(c) + gap
	x := c
	x.Max.Y = c.Min.Y + quietStyle.height(p.x)
	for i, line := range p.x { // centred, more or less: below the axis and not below its numbers
		quietStyle.at(x, x.Center().X+(labels-quietStyle.Width(line))/2, x.Max.Y-vg.Length(i)*quietStyle.lineHeight(), line)
	}
	c = draw.Crop(c, labels-p.labelWidth(), 0, quietStyle.height(p.x)+p.below+gap, 0)
	area := c
	area.Max.Y -= vg.Length(p.rowsAbove()) * quietStyle.lineHeight()
	p.drawMarks(c, area)
	p.plot.Draw(area)
}

// name is a series' name in the legend: where it stands in its row.
type name struct {
	series int
	x      vg.Length
	text   string
}

// legend sets the names in rows.
func (p *panel) legend() (rows [][]name) {
	x := inner + 1 // the first begins a row
	for i, n := range p.names {
		if n == "" {
			continue
		}
		n = labelStyle.cut(n, inner-swatch)
		wide := swatch + labelStyle.Width(n)
		if x+wide > inner {
			rows, x = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], name{i, x, n})
		x += wide + 18
	}
	return rows
}

func (p *panel) drawLegend(c draw.Canvas) vg.Length {
	rows := p.legend()
	for r, row := range rows {
		top := c.Max.Y - vg.Length(r)*labelStyle.lineHeight()
		middle := top - labelStyle.lineHeight()*0.66
		for _, n := range row {
			x := c.Min.X + n.x
			if p.filled {
				fill(&c, n.series, vg.Rectangle{Min: vg.Point{X: x, Y: middle - 4}, Max: vg.Point{X: x + swatch - 6, Y: middle + 4}})
			} else {
				c.StrokeLine2(look(n.series), x, middle, x+swatch-6, middle)
			}
			labelStyle.at(c, x+swatch, top, n.text)
		}
	}
	return vg.Length(len(rows)) * labelStyle.lineHeight()
}

// fill draws an area of a series.
func fill(c *draw.Canvas, series int, r vg.Rectangle) {
	c.SetColor(look(series).Color)
	c.Fill(r.Path())
}

// gridLines are at the labelled ticks of the y axis.
type gridLines struct{}

func (gridLines) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if t.Label != "" {
			c.StrokeLine2(draw.LineStyle{Color: grid, Width: 0.7}, c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
}
