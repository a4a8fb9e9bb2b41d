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

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return thousands(n) + " " + word + "s"
}

func bytesText(n int) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	if n >= 1024 && n%1024 == 0 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// short writes nanoseconds with three digits.
func short(ns float64) string {
	unit := "ns"
	for _, next := range []string{"us", "ms", "s"} {
		if math.Abs(ns) < 999.5 {
			break
		}
		ns, unit = ns/1000, next
	}
	return digits(ns) + " " + unit
}

// timed is short for a figure that is 0 where nothing was timed.
func timed(ns float64) string {
	if ns == 0 {
		return "-"
	}
	return short(ns)
}

// digits writes a number below 1,000 with three digits, none behind the point from 100 on, and larger ones whole.
func digits(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case math.Abs(v) >= 99.95:
		return thousands(int(math.Round(v)))
	case math.Abs(v) >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func (e estimate) String() string {
	if e.Low == e.High { // of one round
		return digits(e.Mid)
	}
	return fmt.Sprintf("%s [%s, %s]", digits(e.Mid), digits(e.Low), digits(e.High))
}

// nanos is a duration as this program calculates with it.
func nanos(d time.Duration) float64 { return float64(d.Nanoseconds()) }

// table is a table of texts.
type table struct {
	title string
	head  []string
	rows  [][]string
	notes []string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// text has columns as wide as they must be.
func (t *table) text() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", t.title)
	for _, row := range append([][]string{t.head}, t.rows...) {
		line := " "
		for i, c := range row {
			line += " " + c + strings.Repeat(" ", widths[i]-len([]rune(c))+1)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	for _, n := range t.notes {
		fmt.Fprintf(&b, "  %s\n", n)
	}
	return b.String()
}

// markdown is the same for a README.
func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n| %s |\n|%s\n", t.title, strings.Join(t.head, " | "), strings.Repeat(" --- |", len(t.head)))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	for _, n := range t.notes {
		fmt.Fprintf(&b, "\n%s\n", n)
	}
	return b.String()
}
