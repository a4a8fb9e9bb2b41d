// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table renders reports: a line for each behaviour, a column for each engine, and below it what is not here and why, which engines were not run and why,
// and the versions that were met.
func Table(reports ...*Report) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "behaviour") //nolint:errcheck // into memory
	for _, r := range reports {
		fmt.Fprint(w, "\t", r.Engine.Name) //nolint:errcheck // into memory
	}
	fmt.Fprintln(w) //nolint:errcheck // into memory
	for _, bh := range all {
		fmt.Fprint(w, bh.name) //nolint:errcheck // into memory
		for _, r := range reports {
			cell := r.Outcomes[bh.name]
			if cell == "" {
				cell = "-"
			}
			fmt.Fprint(w, "\t", cell) //nolint:errcheck // into memory
		}
		fmt.Fprintln(w) //nolint:errcheck // into memory
	}
	w.Flush() //nolint:errcheck // into memory
	b.WriteString("\n")
	for _, r := range reports {
		b.WriteString(r.notes())
	}
	return b.String()
}

// notes are what the table's cells do not say.
func (r *Report) notes() string {
	var b strings.Builder
	switch {
	case r.Engine.Missing != nil:
		fmt.Fprintf(&b, "%s: NOT RUN: %s\n", r.Engine.Name, strings.ReplaceAll(r.Engine.Missing.Error(), "\n", "; "))
	case r.Version != "":
		fmt.Fprintf(&b, "%s: %s: %s\n", r.Engine.Name, r.Version, r.count())
	}
	for _, a := range slices.Sorted(maps.Keys(r.Engine.Lacks)) {
		fmt.Fprintf(&b, "%s: no %s: %s\n", r.Engine.Name, a, r.Engine.Lacks[a])
	}
	return b.String()
}

func (r *Report) count() string {
	n := make(map[Outcome]int)
	for _, o := range r.Outcomes {
		n[o]++
	}
	return fmt.Sprintf("%d passed, %d failed, %d not here", n[Pass], n[Fail], n[NotHere])
}

// Expected is the report of an engine on which everything passes that can be there.
func Expected(e Engine) *Report {
	r := &Report{Engine: e, Outcomes: make(map[string]Outcome)}
	r.Engine.Missing = nil
	for _, b := range all {
		r.Outcomes[b.name] = Pass
		if b.lacking(e) != "" {
			r.Outcomes[b.name] = NotHere
		}
	}
	return r
}
