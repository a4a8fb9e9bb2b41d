// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package chart draws the measurements of examples and benchmarks: lines, bars and histograms, to PNG or SVG.
//
//	err := chart.Figure{Title: "A node is killed", Panels: []chart.Panel{
//		chart.Lines{
//			X:      chart.Axis{Label: "time", Unit: "s"},
//			Y:      chart.Axis{Label: "queries a second"},
//			Series: []chart.Series{{Name: "database", X: seconds, Y: queries}},
//			Marks:  []chart.Mark{{X: 12, Label: "node-1 killed"}},
//		},
//	}}.Save("killed.svg")
//
// A chart is meant to be read in a README at half its size and by eyes that do not see all colours. So text is large, series differ in
// colour and in dashes, their names stand above the plot and not in it, and what would not fit its place is wrapped, or cut with an ellipsis;
// nothing overlaps. The colours are those of M. Okabe and K. Ito, "Color Universal Design" (2008).
//
// Equal figures give equal bytes. Nothing is drawn of data that cannot be shown as they are: the error names the panel, the series and
// the value. All values are plain data; drawing does not change them, and is safe for concurrent use.
//
// It is a module of its own: the plotting library and its fonts are nothing that users of a cache should download.
package chart
