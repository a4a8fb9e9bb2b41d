// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Report is what a Checker has found.
type Report struct {
	Writes        uint64
	Unconfirmed   uint64 // writes that no invalidation has confirmed (yet)
	Invalidations uint64
	Failed        uint64 // invalidations that returned an error
	Reads         uint64
	Layers        [4]uint64 // the reads by Layer
	Phases        []string  // in the order of their first begin
	Rules         []RuleReport
	Wrong         uint64   // reads and writes that are wrong whatever is promised
	WrongExamples []string // the first few
}

// RuleReport is what was found of one rule.
type RuleReport struct {
	Rule
	Tally                     // of all phases
	Phases   map[string]Tally // by phase; "" is before the first
	Examples []string         // the first few broken reads
}

// maxExamples is how many examples of a fault are kept.
const maxExamples = 5

func (c *Checker) wrong(format string, args ...any) {
	c.report.Wrong++
	if len(c.report.WrongExamples) < maxExamples {
		c.report.WrongExamples = append(c.report.WrongExamples, fmt.Sprintf(format, args...))
	}
}

func (c *Checker) broken(rule *Rule, r *Read, v uint64, h *history, stale time.Duration, back bool) {
	for len(c.report.Rules) < len(c.cfg.Rules) {
		c.report.Rules = append(c.report.Rules, RuleReport{})
	}
	i := slices.IndexFunc(c.cfg.Rules, func(other Rule) bool { return other.Name == rule.Name })
	examples := &c.report.Rules[i].Examples
	if len(*examples) == maxExamples {
		return
	}
	what := fmt.Sprintf("version %d", v)
	if r.Absent {
		what = fmt.Sprintf("no row (version %d)", v)
	}
	if r.Marked {
		what += ", marked stale,"
	}
	if back {
		what += " again"
	}
	*examples = append(*examples, fmt.Sprintf("%s: key %s, process %d: %s from %v, superseded for %v; newest is %d; class %d%s",
		rule.Name, r.Key, r.process, what, r.Layer, stale, h.versions[len(h.versions)-1].Version, r.Class, c.when(r.Began)))
}

// when tells a time by the phases around it.
func (c *Checker) when(t time.Duration) string {
	i := len(c.phases) - 1
	for i >= 0 && c.phases[i].from > t {
		i--
	}
	switch {
	case i < 0:
		return ""
	case i == 0:
		return fmt.Sprintf("; %v into %q", t-c.phases[i].from, c.phases[i].name)
	}
	return fmt.Sprintf("; %v into %q, after %q", t-c.phases[i].from, c.phases[i].name, c.phases[i-1].name)
}

// Report is what was found so far. Reads that wait for a process's report are not in it.
func (c *Checker) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	rep := c.report
	rep.Phases, rep.WrongExamples = slices.Clone(rep.Phases), slices.Clone(rep.WrongExamples)
	rep.Rules = make([]RuleReport, len(c.cfg.Rules))
	for i, rule := range c.cfg.Rules {
		r := &rep.Rules[i]
		r.Rule, r.Phases = rule, make(map[string]Tally)
		if i < len(c.report.Rules) {
			r.Examples = slices.Clone(c.report.Rules[i].Examples)
		}
		for k, t := range c.tallies {
			if k.rule == i {
				r.Phases[k.phase] = *t
				r.merge(t)
			}
		}
	}
	for _, h := range c.keys {
		for i := range h.versions {
			if h.versions[i].confirmed == never {
				rep.Unconfirmed++
			}
		}
	}
	return rep
}

// Finish judges what still waits, whatever the processes have promised, and reports.
func (c *Checker) Finish() Report {
	c.mu.Lock()
	c.advance(Forever)
	c.mu.Unlock()
	return c.Report()
}

// Faults says why the run does not pass, a line a fault; none: it does. A rule that has covered no read is one: it has shown nothing.
func (r *Report) Faults() []string {
	var faults []string
	for i := range r.Rules {
		rule := &r.Rules[i]
		switch {
		case rule.Reads == 0:
			faults = append(faults, fmt.Sprintf("%s: no read was covered, so nothing is shown", rule.Name))
		case rule.Broken > 0:
			faults = append(faults, fmt.Sprintf("%s: %d of %d reads were stale by more than %v, the worst by %v", rule.Name, rule.Broken, rule.Reads, rule.Bound, rule.Max))
			faults = append(faults, rule.Examples...)
		}
	}
	if r.Wrong > 0 {
		faults = append(faults, fmt.Sprintf("%d values were wrong", r.Wrong))
		faults = append(faults, r.WrongExamples...)
	}
	return faults
}

// Table shows the figures of the rules: first of the whole run, then of each phase.
func (r *Report) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-34s %9s %9s %8s", "promise", "reads", "near", "stale")
	for _, bound := range Bounds[1:] {
		fmt.Fprintf(&b, " %7s", ">"+short(bound))
	}
	fmt.Fprintf(&b, " %8s %8s %7s  %s\n", "worst", "allowed", "broken", "nines fresh/kept")
	for i := range r.Rules {
		rule := &r.Rules[i]
		fmt.Fprintf(&b, "%-34s %9d %9d", rule.Name, rule.Reads, rule.Near)
		for j, n := range rule.Stale {
			fmt.Fprintf(&b, " %*d", 8-min(j, 1), n)
		}
		fmt.Fprintf(&b, " %8s %8s %7d  %s/%s\n", short(rule.Max), short(rule.Bound), rule.Broken,
			nines(rule.Stale[0], rule.Reads), nines(rule.Broken, rule.Reads))
	}
	r.phases(&b)
	return b.String()
}

// columnWidth is that of a rule in the table of phases: 100000/10/99.9s has 15 bytes.
const columnWidth = 15

// phases shows each phase: the reads of the rule that covers the most, and for each rule how many were stale, how many broke it, and the worst.
func (r *Report) phases(b *strings.Builder) {
	if len(r.Phases) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-27s %9s", "stale/broken/worst in", "reads")
	for i := range r.Rules {
		fmt.Fprintf(b, "  %*s", columnWidth, r.Rules[i].column())
	}
	b.WriteByte('\n')
	for _, name := range r.Phases {
		var most uint64
		var cells strings.Builder
		for i := range r.Rules {
			t := r.Rules[i].Phases[name]
			cell := "-"
			if t.Reads > 0 {
				cell = fmt.Sprintf("%d/%d/%s", t.Stale[0], t.Broken, short(t.Max))
			}
			fmt.Fprintf(&cells, "  %*s", columnWidth, cell)
			most = max(most, t.Reads)
		}
		fmt.Fprintf(b, "%-27s %9d%s\n", name, most, cells.String())
	}
}

// nines is the share of the others as nines, the lower end of its 95 % interval.
func nines(stale, n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", math.Abs(Nines(UpperBound(stale, n)))) // Abs: never -0.00
}

// short writes a duration with few digits.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d >= time.Second && d%time.Second != 0:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d >= time.Second:
		return d.String()
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0fms", float64(d)/1e6)
	case d >= time.Millisecond && d%time.Millisecond != 0:
		return fmt.Sprintf("%.1fms", float64(d)/1e6)
	case d >= time.Millisecond:
		return d.String()
	}
	return fmt.Sprintf("%.0fus", float64(d)/1e3)
}

// column is what heads the rule's column.
func (r *Rule) column() string {
	if r.Short != "" {
		return r.Short
	}
	return r.Name[:min(len(r.Name), columnWidth)]
}
