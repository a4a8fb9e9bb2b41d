// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestShortRun plays a small part of the comparison: tables, Markdown, charts, and no verdict.
func TestShortRun(t *testing.T) {
	dir := t.TempDir()
	c := config{short: true, only: "l1 hit, 1,000", slot: 5 * time.Millisecond, md: filepath.Join(dir, "out.md"), charts: dir}
	var out bytes.Buffer
	if name, code := c.run(t.Context(), &out); name != "bench" || code != 0 {
		t.Fatalf("%s: code %d: %s", name, code, &out)
	}
	md, err := os.ReadFile(c.md)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{out.String(), string(md)} {
		for _, name := range append(able(kindL1), "rockscache", "nothing is judged", "rueidis v1") {
			if !strings.Contains(text, name) {
				t.Errorf("%q is not in the output:\n%s", name, text)
			}
		}
	}
	if svg, err := os.ReadFile(filepath.Join(dir, "bench-l1.svg")); err != nil || !bytes.Contains(svg, []byte("otter")) {
		t.Errorf("the chart: %v", err)
	}
}

// TestJudgedRun: a run that judges ends as its demands do.
func TestJudgedRun(t *testing.T) {
	c := config{only: kindParts, rounds: 2, slot: 10 * time.Millisecond}
	var out bytes.Buffer
	_, code := c.run(t.Context(), &out)
	if fails := strings.Contains(out.String(), "FAIL  "); fails != (code == 1) || !strings.Contains(out.String(), "  "+partBuild) {
		t.Errorf("code %d: %s", code, &out)
	}
}

func TestShortScaling(t *testing.T) {
	dir := t.TempDir()
	c := config{short: true, scaling: true, only: "GetMany", slot: 5 * time.Millisecond, charts: dir}
	var out bytes.Buffer
	if _, code := c.run(t.Context(), &out); code != 0 || !strings.Contains(out.String(), "3,000") {
		t.Fatalf("code %d: %s", code, &out)
	}
	if _, err := os.Stat(filepath.Join(dir, "scaling-batch.svg")); err != nil {
		t.Error(err)
	}
}

func TestConfigErrors(t *testing.T) {
	for want, c := range map[string]config{
		"-rounds is -1":     {rounds: -1},
		"-slot is -1ns":     {slot: -1},
		"-limit is -1ns":    {limit: -1},
		"no such directory": {charts: "/there/is/none"},
		"give one":          {scaling: true, check: true},
		"belong to -check":  {base: "HEAD"},
		"-only is \"zzz\"":  {only: "zzz"},
	} {
		var out bytes.Buffer
		if _, code := c.run(t.Context(), &out); code != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("want %q: code %d: %s", want, code, &out)
		}
	}
}

// TestFigures: every chart of a whole run can be drawn.
func TestFigures(t *testing.T) {
	dir, all := t.TempDir(), invented()
	if err := all.draw(dir, groups()); err != nil {
		t.Fatal(err)
	}
	for i := range groups() {
		g := groups()[i]
		for _, table := range all.tables(&g) {
			for _, row := range table.rows {
				if len(row) != len(table.head) {
					t.Errorf("%s: a row of %d cells under %d heads", table.title, len(row), len(table.head))
				}
			}
			if strings.Contains(table.text(), "NaN") {
				t.Errorf("%s has a figure that is none:\n%s", table.title, table.text())
			}
		}
	}
}
