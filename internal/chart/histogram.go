// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"fmt"
	"math"
)

// Histogram shows how values are distributed: for each bin the share of a series' values that fall into it. Shares, since counts of series
// with unequal numbers of values cannot be compared.
type Histogram struct {
	Title  string
	X      Axis      // Log has bins of equal ratio
	Bins   int       // 2 to 500; 0 means 40
	Series []Samples // 1 to 7
}

// Samples are the values of one series, in any order.
type Samples struct {
	Name   string
	Values []float64 // at least 1
}

const (
	defaultBins = 40
	maxBins     = 500
)

func (h Histogram) prepare() (*panel, error) {
	names, xs, err := h.check()
	if err != nil {
		return nil, fmt.Errorf("Histogram %q: %w", h.Title, err)
	}
	if h.Bins == 0 {
		h.Bins = defaultBins
	}
	xs = h.X.exact(xs)
	y := Axis{Label: "share of the values", Unit: "%"}
	highest := empty()
	var steps []line
	for i, s := range h.Series {
		l := line{h.outline(s.Values, xs), look(i)}
		steps = append(steps, l)
		highest = highest.with(l.Y...)
	}
	p := newPanel(h.Title, h.X, y, xs, y.round(highest), names)
	for _, l := range steps {
		p.plot.Add(l)
	}
	return p, nil
}

// outline is the shape of the bins' tops, with a point at each corner.
func (h Histogram) outline(values []float64, xs span) (s Series) {
	to, from := func(v float64) float64 { return v }, func(v float64) float64 { return v }
	if h.X.Scale == Log {
		to, from = math.Log, math.Exp
	}
	low, wide := to(xs.low), (to(xs.high)-to(xs.low))/float64(h.Bins)
	counts := make([]int, h.Bins)
	for _, v := range values {
		counts[min(max(int((to(v)-low)/wide), 0), h.Bins-1)]++ // the highest value belongs to the last bin
	}
	for i, n := range counts {
		share := 100 * float64(n) / float64(len(values))
		left, right := from(low+float64(i)*wide), from(low+float64(i+1)*wide)
		s.X, s.Y = append(s.X, max(left, xs.low), min(right, xs.high)), append(s.Y, share, share)
	}
	return s
}

func (h Histogram) check() (names []string, xs span, err error) {
	xs = empty()
	if h.Bins < 0 || h.Bins == 1 || h.Bins > maxBins {
		return nil, xs, fmt.Errorf("Bins is %d: must be from 2 to %d, or 0 for %d", h.Bins, maxBins, defaultBins)
	}
	for _, s := range h.Series {
		names = append(names, s.Name)
	}
	if err := checkNames(names); err != nil {
		return nil, xs, err
	}
	if err := h.X.checkScale("X", Linear, Log); err != nil {
		return nil, xs, err
	}
	for i, s := range h.Series {
		field := fmt.Sprintf("Series[%d] (%s)", i, s.Name)
		if len(s.Values) == 0 {
			return nil, xs, fmt.Errorf("%s is empty: must have at least one value", field)
		}
		for j, v := range s.Values {
			if err := h.X.checkValue(fmt.Sprintf("%s.Values[%d]", field, j), v); err != nil {
				return nil, xs, err
			}
		}
		xs = xs.with(s.Values...)
	}
	return names, xs, nil
}
