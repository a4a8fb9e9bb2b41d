// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars compares values: for each group one bar of each series, with its value above.
type Bars struct {
	Title  string
	Y      Axis      // Linear, where the bars begin at 0; or Log, where they begin at a power of ten below all values
	Groups []string  // at least 1
	Series []Heights // 1 to 7
}

// Heights are the bars of one series.
type Heights struct {
	Name   string
	Values []float64 // one a group, none below 0
}

func (b Bars) prepare() (*panel, error) {
	names, ys, err := b.check()
	if err != nil {
		return nil, fmt.Errorf("Bars %q: %w", b.Title, err)
	}
	if b.Y.Scale == Log {
		ys.low /= 1.6 // or the smallest would have no height
	}
	ys = b.Y.round(ys)
	p := newPanel(b.Title, Axis{}, b.Y, span{-0.5, float64(len(b.Groups)) - 0.5}, ys, names)
	p.filled = true
	p.plot.X.Tick.Marker = plot.ConstantTicks(nil)
	place := (inner - p.labelWidth() - 20) / vg.Length(len(b.Groups))
	labels := make([][]string, len(b.Groups))
	for i, g := range b.Groups {
		labels[i] = labelStyle.lines(g, place-6)
		p.below = max(p.below, labelStyle.height(labels[i])+gap)
	}
	p.plot.Add(bars{b, labels, ys.low})
	return p, nil
}

func (b Bars) check() (names []string, ys span, err error) {
	ys = empty()
	if len(b.Groups) == 0 {
		return nil, ys, fmt.Errorf("Groups is empty: at least one must be given")
	}
	for _, s := range b.Series {
		names = append(names, s.Name)
	}
	if err := checkNames(names); err != nil {
		return nil, ys, err
	}
	if err := b.Y.checkScale("Y", Linear, Log); err != nil {
		return nil, ys, err
	}
	for i, s := range b.Series {
		field := fmt.Sprintf("Series[%d] (%s)", i, s.Name)
		if len(s.Values) != len(b.Groups) {
			return nil, ys, fmt.Errorf("%s has %d Values for %d Groups: must be as many", field, len(s.Values), len(b.Groups))
		}
		for j, v := range s.Values {
			field := fmt.Sprintf("%s.Values[%d] (%s)", field, j, b.Groups[j])
			if err := b.Y.checkValue(field, v); err != nil {
				return nil, ys, err
			}
			if v < 0 {
				return nil, ys, fmt.Errorf("%s is %v: must not be below 0", field, v)
			}
		}
		ys = ys.with(s.Values...)
	}
	return names, ys, nil
}

// bars draws the bars, their values where there is room, and the groups' names below the axis.
type bars struct {
	Bars
	labels [][]string
	base   float64
}

func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	place := x(1) - x(0)
	wide := min(place*0.8/vg.Length(len(b.Series)), 70)
	for g := range b.Groups {
		left := x(float64(g)) - wide*vg.Length(len(b.Series))/2
		for i, s := range b.Series {
			v := s.Values[g]
			r := vg.Rectangle{Min: vg.Point{X: left + vg.Length(i)*wide, Y: y(b.base)}}
			r.Max = vg.Point{X: r.Min.X + wide*0.92, Y: y(math.Max(v, b.base))}
			fill(&c, i, r)
			if text := b.Y.format(v, v); quietStyle.Width(text) < wide {
				quietStyle.at(c, (r.Min.X+r.Max.X-quietStyle.Width(text))/2, r.Max.Y+quietStyle.lineHeight()+1, text)
			}
		}
		for i, line := range b.labels[g] {
			labelStyle.at(c, x(float64(g))-labelStyle.Width(line)/2, c.Min.Y-gap-vg.Length(i)*labelStyle.lineHeight(), line)
		}
	}
}
