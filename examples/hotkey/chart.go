// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strings"
	"time"
)

// textChart draws the busiest node's share over time, one line a run.
func textChart(runs []*spike) string {
	const each = 2 // slots a character
	var b strings.Builder
	for _, s := range runs {
		fmt.Fprintf(&b, "%-8s ", s.name)
		for i := 0; i < s.slots(); i += each {
			if i == int(s.calm/slot) {
				b.WriteByte('|')
			}
			b.WriteString(bar(s.share(i, min(i+each, s.slots()))))
		}
		fmt.Fprintf(&b, " %3.0f %%\n", 100*s.steady())
	}
	fmt.Fprintf(&b, "%-8s %-*s|spike: one key gets %.0f %% of the reads\n", "", int(runs[0].calm/slot)/each, "calm", 100*hotPart)
	b.WriteString("The height is the busiest node's share of all reads: 0 to 100 %, 100 ms a column.\n")
	return b.String()
}

// bar is a share as one character.
func bar(share float64) string {
	bars := []rune(" ▁▂▃▄▅▆▇█")
	return string(bars[min(len(bars)-1, int(share*float64(len(bars)-1)+0.5))])
}

// svgChart draws the same as a picture.
func svgChart(runs []*spike) string {
	const width, height, left, top = 720, 260, 60, 20
	calm, all := runs[0].calm, runs[0].calm+runs[0].lasts
	colours := []string{"#c0392b", "#2471a3", "#1e8449"}
	x := func(d time.Duration) float64 { return left + width*float64(d)/float64(all) }
	y := func(share float64) float64 { return top + height*(1-share) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", left+width+90, top+height+50)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for _, share := range []float64{0, 0.25, 0.5, 0.75, 1} {
		fmt.Fprintf(&b, `<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f %%</text>`+"\n", left, y(share), width, left-6, y(share)+4, 100*share)
	}
	for d := time.Duration(0); d < all; d += time.Second {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%v</text>`+"\n", x(d), top+height+18, d)
	}
	fmt.Fprintf(&b, `<path d="M%.1f %dv%d" stroke="#888" stroke-dasharray="4"/><text x="%.1f" y="%d">one key gets %.0f %% of the reads</text>`+"\n", x(calm), top, height, x(calm)+6, top+12, 100*hotPart)
	for n, s := range runs {
		var points strings.Builder
		for i := range s.slots() {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(time.Duration(i)*slot+slot/2), y(s.share(i, i+1)))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%.1f" fill="%s">%s</text>`+"\n",
			points.String(), colours[n%len(colours)], left+width+6, y(s.steady())+4, colours[n%len(colours)], s.name)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">the busiest of %d nodes: its share of all reads</text>`+"\n</svg>\n", left, top+height+40, nodeCount)
	return b.String()
}
