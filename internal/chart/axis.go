// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
)

// Axis says what an axis measures.
type Axis struct {
	// Label is what is measured, as in "latency" or "queries a second".
	Label string
	// Unit is what the values are given in. "s" is shown with each number, as ns, us, ms or s; any other behind the label.
	Unit  string
	Scale Scale
}

// Scale is how values are laid along an axis.
type Scale int

const (
	// Linear is the default. It begins at 0 unless there are negative values, so that twice as high is twice as much.
	Linear Scale = iota
	// Log is for values over several powers of ten, as latencies. They must be above 0.
	Log
	// Time is for the x axis of Lines: values are Unix seconds, and are shown as UTC.
	Time
)

// title is what stands at the axis.
func (a Axis) title() string {
	unit := a.Unit
	switch {
	case a.Scale == Time:
		unit = "UTC"
	case unit == "s": // at the numbers
		unit = ""
	}
	switch {
	case unit == "":
		return a.Label
	case a.Label == "":
		return unit
	}
	return a.Label + " (" + unit + ")"
}

// checkScale is for axes that are not the x axis of Lines.
func (a Axis) checkScale(field string, allowed ...Scale) error {
	for _, s := range allowed {
		if a.Scale == s {
			return nil
		}
	}
	return fmt.Errorf("%s.Scale is %d: no scale for this axis", field, a.Scale)
}

// checkValue says what is wrong with a value, which the field names.
func (a Axis) checkValue(field string, v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("%s is %v: must be a number", field, v)
	case math.Abs(v) > 1e15:
		return fmt.Errorf("%s is %v: must be at most 1e15", field, v)
	case a.Scale == Log && v <= 0:
		return fmt.Errorf("%s is %v: must be above 0 on a log scale", field, v)
	case a.Scale == Log && v < 1e-15:
		return fmt.Errorf("%s is %v: must be at least 1e-15", field, v)
	}
	return nil
}

// span is the part of an axis that is shown.
type span struct{ low, high float64 }

// of grows the span by values; the zero span with nothing in it is empty().
func (s span) with(vs ...float64) span {
	for _, v := range vs {
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
	return s
}

func empty() span { return span{math.Inf(1), math.Inf(-1)} }

// round widens a span to whole ticks, for the axis that the values are read from. The span is never of no width.
func (a Axis) round(s span) span {
	if a.Scale == Log {
		low, high := math.Floor(math.Log10(s.low)+1e-9), math.Ceil(math.Log10(s.high)-1e-9)
		if low == high {
			high++
		}
		return span{math.Pow(10, low), math.Pow(10, high)}
	}
	s = s.with(0)
	if s.low == s.high {
		s.high = 1
	}
	step := niceStep((s.high - s.low) / 4)
	return span{math.Floor(s.low/step+1e-9) * step, math.Ceil(s.high/step-1e-9) * step}
}

// exact is the span itself, for the axis along which values are laid.
func (a Axis) exact(s span) span {
	if s.low < s.high {
		return s
	}
	if a.Scale == Log {
		return span{s.low / 2, s.high * 2}
	}
	return span{s.low - 0.5, s.high + 0.5}
}

// apply sets up the library's axis.
func (a Axis) apply(to *plot.Axis, s span) {
	to.Min, to.Max = s.low, s.high
	if a.Scale == Log {
		to.Scale = plot.LogScale{}
	}
	to.Tick.Marker = plot.TickerFunc(a.ticks)
}
