// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Lines shows how values go on, as over time.
type Lines struct {
	Title  string
	X, Y   Axis
	Series []Series // 1 to 7
	Marks  []Mark   // within the span of the series
}

// Series is one line, through its points in their order.
type Series struct {
	Name string
	X, Y []float64 // of equal length, at least 1
}

func (l Lines) prepare() (*panel, error) {
	names, xs, ys, err := l.check()
	if err != nil {
		return nil, fmt.Errorf("Lines %q: %w", l.Title, err)
	}
	p := newPanel(l.Title, l.X, l.Y, l.X.exact(xs), l.Y.round(ys), names)
	p.marks = l.Marks
	for i, s := range l.Series {
		p.plot.Add(line{s, look(i)})
	}
	return p, nil
}

func (l Lines) check() (names []string, xs, ys span, err error) {
	xs, ys = empty(), empty()
	for _, s := range l.Series {
		names = append(names, s.Name)
	}
	if err := checkNames(names); err != nil {
		return nil, xs, ys, err
	}
	if err := l.X.checkScale("X", Linear, Log, Time); err != nil {
		return nil, xs, ys, err
	}
	if err := l.Y.checkScale("Y", Linear, Log); err != nil {
		return nil, xs, ys, err
	}
	for i, s := range l.Series {
		field := fmt.Sprintf("Series[%d] (%s)", i, s.Name)
		if len(s.X) != len(s.Y) {
			return nil, xs, ys, fmt.Errorf("%s has %d X and %d Y: must be as many", field, len(s.X), len(s.Y))
		}
		if len(s.X) == 0 {
			return nil, xs, ys, fmt.Errorf("%s is empty: must have at least one point", field)
		}
		for j := range s.X {
			if err := l.X.checkValue(fmt.Sprintf("%s.X[%d]", field, j), s.X[j]); err != nil {
				return nil, xs, ys, err
			}
			if err := l.Y.checkValue(fmt.Sprintf("%s.Y[%d]", field, j), s.Y[j]); err != nil {
				return nil, xs, ys, err
			}
		}
		xs, ys = xs.with(s.X...), ys.with(s.Y...)
	}
	for i, m := range l.Marks {
		if !(m.X >= xs.low && m.X <= xs.high) { // NaN too
			return nil, xs, ys, fmt.Errorf("Marks[%d] (%s).X is %v: must be from %v to %v, where the series are", i, m.Label, m.X, xs.low, xs.high)
		}
	}
	return names, xs, ys, nil
}

// line draws a series; one of a single point is a dot.
type line struct {
	Series
	style draw.LineStyle
}

func (l line) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	points := make([]vg.Point, len(l.X))
	for i := range l.X {
		points[i] = vg.Point{X: x(l.X[i]), Y: y(l.Y[i])}
	}
	if len(points) == 1 {
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: l.style.Color, Radius: 3, Shape: draw.CircleGlyph{}}, points[0])
		return
	}
	c.StrokeLines(l.style, points)
}
