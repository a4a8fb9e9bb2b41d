// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart_test

import (
	"bytes"
	"fmt"

	"github.com/go-shelf/shelf/internal/chart"
)

func Example() {
	f := chart.Figure{Title: "Readers with and without the cache", Panels: []chart.Panel{
		chart.Lines{
			X:      chart.Axis{Label: "time", Unit: "s"},
			Y:      chart.Axis{Label: "queries a second"},
			Series: []chart.Series{{Name: "database", X: []float64{0, 1, 2}, Y: []float64{9000, 4000, 200}}},
			Marks:  []chart.Mark{{X: 0.5, Label: "the cache is on"}},
		},
		chart.Bars{
			Y:      chart.Axis{Label: "latency", Unit: "s", Scale: chart.Log},
			Groups: []string{"p50", "p99"},
			Series: []chart.Heights{{Name: "without", Values: []float64{0.007, 0.031}}, {Name: "with", Values: []float64{0.0002, 0.004}}},
		},
	}}
	var svg bytes.Buffer
	fmt.Println(f.Write(&svg, chart.SVG), bytes.Contains(svg.Bytes(), []byte("the cache is on")))

	f.Panels = []chart.Panel{chart.Bars{Groups: []string{"p50", "p99"}, Series: []chart.Heights{{Name: "with", Values: []float64{1}}}}}
	fmt.Println(f.Write(&svg, chart.SVG))
	// Output:
	// <nil> true
	// chart: Figure.Panels[0]: Bars "": Series[0] (with) has 1 Values for 2 Groups: must be as many
}
