// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/chart"
)

// report is what was measured: the phases that have run.
type report struct {
	phases []result
}

// titles of the phases' columns.
var titles = map[string]string{"without": "no cache", "cold": "cache, cold", "warm": "cache, warm", "both": "cache, both"}

// columns are the phases, and the two with the cache as one.
func (r report) columns() []result {
	columns := append([]result(nil), r.phases...)
	if len(r.phases) == 3 {
		both := result{name: "both", total: &interval{}, scans: r.phases[1].scans + r.phases[2].scans}
		both.total.add(r.phases[1].total)
		both.total.add(r.phases[2].total)
		columns = append(columns, both)
	}
	return columns
}

// lines of the table: what is shown of each phase.
var lines = []struct {
	title string
	value func(r result) string
}{
	{"", func(r result) string { return titles[r.name] }},
	{"time", func(r result) string { return fmt.Sprintf("%.1f s", r.total.took.Seconds()) }},
	{"reads answered", func(r result) string { return count(r.total.reads()) }},
	{"reads a second", func(r result) string { return rate(r.total.reads(), r.total.took) }},
	{"database reads a second", func(r result) string { return rate(r.database(), r.total.took) }},
	{"reads that reached the database", func(r result) string { return percent(r.reached()) }},
	{"answered by L1, this process", func(r result) string { return percent(r.total.share(client.LayerL1)) }},
	{"answered by L2, the nodes", func(r result) string { return percent(r.total.share(client.LayerL2)) }},
	{"answered by a load, or joined one", func(r result) string { return percent(r.total.share(client.LayerSource)) }},
	{"latency p50", func(r result) string { return short(r.total.latency.Quantile(0.5)) }},
	{"latency p99", func(r result) string { return short(r.total.latency.Quantile(0.99)) }},
	{"latency p99.9", func(r result) string { return short(r.total.latency.Quantile(0.999)) }},
	{"latency, longest", func(r result) string { return short(r.total.latency.Max()) }},
	{"rows written a second", func(r result) string { return rate(r.total.writes.Load(), r.total.took) }},
	{"database reads, as we count", func(r result) string { return count(r.total.loads) }},
	{"database reads, as PostgreSQL counts", func(r result) string { return count(r.scans) }},
	{"reads that failed", func(r result) string { return count(r.total.failed.Load()) }},
	{"writes that failed", func(r result) string { return count(r.total.writesFailed.Load()) }},
	{"answers older than a finished write", func(r result) string { return count(r.total.stale.Load()) }},
	{"answers that are not the row", func(r result) string { return count(r.total.wrong.Load()) }},
}

// write writes the table.
func (r report) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w) // buffered: Flush has the error
	columns := r.columns()
	for _, l := range lines {
		cells := []string{fmt.Sprintf("%-37s", l.title)}
		for _, c := range columns {
			cells = append(cells, l.value(c))
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")
	}
	return w.Flush()
}

// reached is the share of the reads that reached the database; NaN of none.
func (r result) reached() float64 { return float64(r.database()) / float64(r.total.reads()) }

func (r report) reads() (n uint64) {
	for _, p := range r.phases {
		n += p.total.reads()
	}
	return n
}

// judge says whether the promise was kept: with the cache warm no more than the share most of the reads reach the database, no read fails, and
// none gets another row or an older one than a write had finished before it.
func (r report) judge(most float64, interrupted bool) (verdict string, err error) {
	var errs []error
	for _, p := range r.phases {
		for _, c := range []struct {
			n    uint64
			what string
		}{
			{p.total.wrong.Load(), "answers are not the row that was asked for"},
			{p.total.stale.Load(), "answers are older than a write that had finished before the read began"},
			{p.total.failed.Load(), "reads failed"},
			{p.total.writesFailed.Load(), "writes failed"},
		} {
			if c.n > 0 {
				errs = append(errs, fmt.Errorf("catalogue: %s: %s %s", titles[p.name], count(c.n), c.what))
			}
		}
		if p.err != nil {
			errs = append(errs, fmt.Errorf("catalogue: %s: the first error: %w", titles[p.name], p.err))
		}
	}
	columns := r.columns()
	switch {
	case interrupted:
		verdict = "interrupted: no verdict"
	case len(columns) < 4:
		errs = append(errs, errors.New("catalogue: not all phases have run"))
		verdict = "no verdict"
	default:
		warm, both := columns[2].reached(), columns[3].reached()
		verdict = fmt.Sprintf("Once warm (after %s reads), %s of the reads reached the database; at most %s may. From cold on, it was %s.",
			count(columns[1].total.reads()), percent(warm), percent(most), percent(both))
		if !(warm <= most) { // NaN: none was answered
			errs = append(errs, fmt.Errorf("catalogue: once warm %s of the reads reached the database: at most %s may", percent(warm), percent(most)))
		}
	}
	return verdict, errors.Join(errs...)
}

// figure draws reads and queries over time, one phase after the other without the pauses between, and the latencies.
func (r report) figure(cfg config) chart.Figure {
	l := cfg.load
	reads, queries := chart.Series{Name: "reads answered"}, chart.Series{Name: "reads that reached the database"}
	var marks []chart.Mark
	var latencies []chart.Heights
	var at time.Duration
	for _, p := range r.phases {
		if p.total.reads() == 0 {
			continue
		}
		for i, part := range p.parts {
			if i == len(p.parts)-1 && i > 0 && part.took < l.every/2 { // a rate over next to no time says nothing
				continue
			}
			middle, second := (at + part.began + part.took/2).Seconds(), part.took.Seconds()
			if i == 0 {
				marks = append(marks, chart.Mark{X: middle, Label: titles[p.name]})
			}
			reads.X, reads.Y = append(reads.X, middle), append(reads.Y, float64(part.reads())/second)
			queries.X, queries.Y = append(queries.X, middle), append(queries.Y, float64(part.loads)/second)
		}
		at += p.total.took
		h := chart.Heights{Name: titles[p.name]}
		for _, q := range quantiles {
			h.Values = append(h.Values, max(p.total.latency.Quantile(q), time.Nanosecond).Seconds())
		}
		latencies = append(latencies, h)
	}
	return chart.Figure{
		Title: fmt.Sprintf("%d readers of %s rows, Zipf %v, %v writes a second", l.readers, count(uint64(cfg.rows)), l.zipf, l.writes),
		Panels: []chart.Panel{
			chart.Lines{Title: "Reads, and what the database sees of them", X: chart.Axis{Label: "time", Unit: "s"}, Y: chart.Axis{Label: "a second"},
				Series: []chart.Series{reads, queries}, Marks: marks},
			chart.Bars{Title: "Latency of a read", Y: chart.Axis{Label: "in a closed loop, log scale", Unit: "s", Scale: chart.Log},
				Groups: []string{"p50", "p99", "p99.9"}, Series: latencies},
		},
	}
}

var quantiles = []float64{0.5, 0.99, 0.999}

// rate is a number a second.
func rate(n uint64, over time.Duration) string {
	if over <= 0 {
		return "-"
	}
	return count(uint64(float64(n)/over.Seconds() + 0.5))
}

// count writes a number with commas.
func count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
