// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/go-shelf/shelf/client"
)

// progress shows lines: on a terminal each in the place of the last, elsewhere one below the other. That they cannot be written is no reason
// to stop measuring.
type progress struct {
	out      io.Writer
	terminal bool
	shown    bool
}

// progressOn is for a file such as os.Stderr.
func progressOn(f *os.File) *progress {
	info, err := f.Stat()
	return &progress{out: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (p *progress) show(line string) {
	if !p.terminal {
		_, _ = fmt.Fprintln(p.out, line)
		return
	}
	p.shown = true
	_, _ = fmt.Fprintf(p.out, "\r%s\x1b[K", line) // K: erase what is longer in the last line
}

// begin writes the heading.
func (p *progress) begin() { _, _ = fmt.Fprintln(p.out, heading) }

// end leaves the last line where it is.
func (p *progress) end() {
	if p.shown {
		_, _ = fmt.Fprintln(p.out)
		p.shown = false
	}
}

// heading stands above the lines, and says what their numbers are.
const heading = "phase time     reads  database     shares        latencies of the reads"

// line tells of the last interval of a phase, in at most 79 columns: one that wraps cannot be written over.
func line(p phase, elapsed time.Duration, i *interval) string {
	second := i.took.Seconds()
	return fmt.Sprintf("%-7s%3.0fs %6.0f/s db %5.0f/s L1 %2.0f%% L2 %2.0f%% p50 %s p99 %s p99.9 %s",
		p.name, elapsed.Seconds(), float64(i.reads())/second, float64(i.loads)/second,
		100*orZero(i.share(client.LayerL1)), 100*orZero(i.share(client.LayerL2)),
		short(i.latency.Quantile(0.5)), short(i.latency.Quantile(0.99)), short(i.latency.Quantile(0.999)))
}

// orZero is for a share of nothing.
func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// short writes a duration with two or three digits.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1fus", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0fus", float64(d)/1e3)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%.0fms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}
