// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// verdict is what a drill came to.
type verdict struct {
	name   string
	checks []check
	notes  string        // figures that nothing is said about
	run    *outcome      // nil where there is nothing to draw
	late   time.Duration // p99 of the users' lateness, in the windows that are judged
	stall  time.Duration // the same of the worst window of all
}

// passed says whether every check that counts is met.
func (v *verdict) passed(short bool) bool {
	for _, c := range v.checks {
		if !c.ok && !(short && c.quiet) {
			return false
		}
	}
	return len(v.checks) > 0
}

// spoilt says that the drill failed in nothing but what a machine does too that is as busy as this one was.
func (v *verdict) spoilt() bool {
	for _, c := range v.checks {
		switch {
		case c.ok:
		case c.always, c.quiet && v.late <= busyAbove && v.stall <= stalledAbove, !c.quiet && v.stall <= stalledAbove:
			return false
		}
	}
	return true
}

// line is the drill's line of the table. What failed is in capitals.
func (v *verdict) line(short bool) string {
	word := "PASS"
	if !v.passed(short) {
		word = "FAIL"
	}
	texts := make([]string, 0, len(v.checks)+1)
	for _, c := range v.checks {
		switch {
		case c.ok:
			texts = append(texts, c.text)
		case short && c.quiet:
			texts = append(texts, c.text+" [not judged]")
		default:
			texts = append(texts, "FAILED: "+c.text)
		}
	}
	if v.notes != "" {
		texts = append(texts, v.notes)
	}
	return fmt.Sprintf("%-*s %s  %s", nameWidth, v.name, word, strings.Join(texts, "; "))
}

// nameWidth is that of the table's first column.
const nameWidth = 42

// notes are figures of a run that nothing is judged by.
func (o *outcome) notes() string {
	hits := [3]float64{medianOf(o.before(), o.hits), o.hits(span{o.first().to, o.healed}), o.hits(span{max(o.healed, o.over-2*time.Second), o.over})}
	return fmt.Sprintf("hit ratio %s, %s, %s; %s of the machine used; %s late", percent(hits[0]), percent(hits[1]), percent(hits[2]), percent(o.busy), short(o.lateness()))
}

// lateness is by how much the users themselves came late: p99 in the windows that are judged. It is not the cache that made them.
func (o *outcome) lateness() time.Duration {
	late := func(s span) time.Duration { return quantile(in(o.samples, s), 0.99, late) }
	return max(medianOf(o.before(), late), late(o.first()), medianOf(o.later(), late))
}

// stall is the lateness of the worst second.
func (o *outcome) stall() (worst time.Duration) {
	for _, s := range parts(0, time.Second, int(o.over/time.Second)) {
		worst = max(worst, quantile(in(o.samples, s), 0.99, late))
	}
	return worst
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent writes a share.
func percent(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return strconv.FormatFloat(share*100, 'f', 1, 64) + " %"
}

// short writes a duration with few digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d == 0:
		return "0"
	}
	return fmt.Sprintf("%.0f us", float64(d)/1e3)
}
