// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// compare measures Shelf beside its peers, and judges.
func (c *config) compare(ctx context.Context, out io.Writer) (code int, err error) {
	began := time.Now()
	d := document{out: out}
	where := machine(ctx)
	d.print(where)
	var chosen []group
	for _, g := range groups() {
		if c.wants(g.name) {
			chosen = append(chosen, g)
		}
	}
	if len(chosen) == 0 {
		return 1, fmt.Errorf("bench: -only is %q: nothing has that in its name", c.only)
	}
	r := make(results)
	for i := range chosen {
		if err := chosen[i].run(ctx, c.pace(), r); err != nil {
			return 1, err
		}
		for _, t := range r.tables(&chosen[i]) {
			d.add(t)
		}
	}
	d.add(legend(chosen))
	if c.short {
		d.print(briefly)
	} else {
		code = d.judge(r.judge())
	}
	d.print(fmt.Sprintf("%s of %v, %s in all", plural(c.rounds, "round"), c.slot, time.Since(began).Round(time.Second)))
	if c.charts != "" {
		if err := r.draw(c.charts, chosen); err != nil {
			return 1, err
		}
	}
	return code, d.save(c.md)
}

// briefly is what a run with -short says of itself.
var briefly = fmt.Sprintf("Everything was run briefly, with at most %s keys (-short): nothing is judged.", thousands(shortKeys))

// document is what is printed, and what is written as Markdown.
type document struct {
	out io.Writer
	md  strings.Builder
}

func (d *document) print(text string) {
	_, _ = fmt.Fprintf(d.out, "%s\n\n", text)
	fmt.Fprintf(&d.md, "%s\n\n", strings.ReplaceAll(text, "\n", "  \n"))
}

func (d *document) add(t *table) {
	_, _ = fmt.Fprintf(d.out, "%s\n", t.text())
	fmt.Fprintf(&d.md, "%s\n", t.markdown())
}

// judge prints a line for each demand, and returns the exit code.
func (d *document) judge(all []demand) (code int) {
	if len(all) == 0 { // -only has chosen what nothing is demanded of
		d.print("Nothing is demanded here.")
		return 0
	}
	lines := make([]string, len(all))
	for i, one := range all {
		lines[i] = one.line()
	}
	d.print(strings.Join(lines, "\n"))
	if !passed(all) {
		return 1
	}
	return 0
}

// save writes the Markdown, where a file is named.
func (d *document) save(file string) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, []byte(d.md.String()), 0o644); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}
