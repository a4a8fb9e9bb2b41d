// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/go-shelf/shelf/internal/chart"
)

// point is the distance of two points of a chart.
const point = 250 * time.Millisecond

// draw writes a run's chart into the directory, and returns the file.
func (o *outcome) draw(dir, name string) (string, error) {
	file := filepath.Join(dir, fileName(name)+".svg")
	return file, o.figure(name).Save(file)
}

// fileName is a drill's name as a file may be called.
func fileName(name string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name), "-")
}

// figure draws hit ratio, the database's queries and the latency of reads over time.
func (o *outcome) figure(name string) chart.Figure {
	hits, queries := chart.Series{Name: "hit ratio"}, chart.Series{Name: "queries of the database"}
	p50, p99 := chart.Series{Name: "p50"}, chart.Series{Name: "p99"}
	unanswered := chart.Series{Name: "reads without an answer"}
	for _, s := range parts(0, point, int(o.over/point)) {
		reads := in(o.samples, s)
		if len(reads) == 0 {
			continue
		}
		x := (s.from + point/2).Seconds()
		add := func(to *chart.Series, y float64) { to.X, to.Y = append(to.X, x), append(to.Y, y) }
		add(&hits, 100*share(reads, (*sample).hit))
		add(&unanswered, 100*share(reads, func(s *sample) bool { return !s.answered() }))
		add(&queries, o.queries(span{s.from - point/2, s.to + point/2}))
		add(&p50, max(quantile(reads, 0.5, took), time.Microsecond).Seconds())
		add(&p99, max(quantile(reads, 0.99, took), time.Microsecond).Seconds())
	}
	marks := []chart.Mark{{X: o.struck.Seconds(), Label: "struck"}, {X: o.healed.Seconds(), Label: "mended"}}
	x := chart.Axis{Label: "time", Unit: "s"}
	return chart.Figure{Title: name, Panels: []chart.Panel{
		chart.Lines{X: x, Y: chart.Axis{Label: "% of the reads"}, Series: []chart.Series{hits, unanswered}, Marks: marks},
		chart.Lines{X: x, Y: chart.Axis{Label: "a second"}, Series: []chart.Series{queries}, Marks: marks},
		chart.Lines{X: x, Y: chart.Axis{Label: "latency of a read, log scale", Unit: "s", Scale: chart.Log}, Series: []chart.Series{p50, p99}, Marks: marks},
	}}
}
