// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

var (
	black = color.Gray{Y: 20}
	grid  = color.Gray{Y: 225}
	axis  = color.Gray{Y: 110}
)

// looks tell series apart, by colour and, for who does not see it, by dashes. The yellow of the set is left out: it is too light on white.
var looks = []draw.LineStyle{
	{Color: color.RGBA{0, 114, 178, 255}},                                         // blue
	{Color: color.RGBA{213, 94, 0, 255}, Dashes: []vg.Length{7, 3}},               // vermilion
	{Color: color.RGBA{0, 158, 115, 255}, Dashes: []vg.Length{2, 2}},              // bluish green
	{Color: color.RGBA{204, 121, 167, 255}, Dashes: []vg.Length{9, 3, 2, 3}},      // reddish purple
	{Color: color.RGBA{230, 159, 0, 255}, Dashes: []vg.Length{4, 2}},              // orange
	{Color: color.RGBA{86, 180, 233, 255}, Dashes: []vg.Length{9, 3, 2, 3, 2, 3}}, // sky blue
	{Color: color.RGBA{20, 20, 20, 255}, Dashes: []vg.Length{1, 3}},               // black
}

const lineWidth vg.Length = 1.9

// look is the style of the i-th series.
func look(i int) draw.LineStyle {
	l := looks[i]
	l.Width = lineWidth
	return l
}

// checkNames: names are what tells series apart, so they must do that.
func checkNames(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("Series is empty: at least one must be given")
	}
	if len(names) > len(looks) {
		return fmt.Errorf("Series has %d elements: at most %d can be told apart", len(names), len(looks))
	}
	seen := make(map[string]int)
	for i, name := range names {
		if name == "" && len(names) > 1 {
			return fmt.Errorf("Series[%d].Name is empty: of several series each must have one", i)
		}
		if j, twice := seen[name]; twice {
			return fmt.Errorf("Series[%d].Name is %q: Series[%d] has that name", i, name, j)
		}
		seen[name] = i
	}
	return nil
}
