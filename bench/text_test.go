// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import "testing"

func TestShort(t *testing.T) {
	for _, tc := range []struct {
		ns   float64
		want string
	}{{0, "0.00 ns"}, {9.994, "9.99 ns"}, {9.996, "10.0 ns"}, {118, "118 ns"}, {999.4, "999 ns"}, {999.6, "1.00 us"}, {1234, "1.23 us"}, {5e6, "5.00 ms"}, {12.34e9, "12.3 s"}, {-2500, "-2.50 us"}} {
		if got := short(tc.ns); got != tc.want {
			t.Errorf("short(%v) is %q, want %q", tc.ns, got, tc.want)
		}
	}
}

func TestTable(t *testing.T) {
	tb := table{title: "T", head: []string{"", "a"}, notes: []string{"a note"}}
	tb.add("Shelf", "1")
	tb.add("µ", "200")
	if got, want := tb.text(), "T\n         a\n  Shelf  1\n  µ      200\n  a note\n"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	if got, want := tb.markdown(), "### T\n\n|  | a |\n| --- | --- |\n| Shelf | 1 |\n| µ | 200 |\n\na note\n"; got != want {
		t.Errorf("markdown %q, want %q", got, want)
	}
}
