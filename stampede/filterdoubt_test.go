// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// hold makes the source have so many rows.
func (w *filterWorld) hold(rows int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows = nil
	for i := range rows {
		w.rows = append(w.rows, fmt.Sprint("row", i))
	}
}

// why waits until a filter says why.
func why(t *testing.T, f *stampede.Filter, within time.Duration, text string) {
	t.Helper()
	until(t, within, text, func() bool { return strings.Contains(f.Stats().Why, text) })
}

// TestFilterDoubtsAnEmptyScan: a scan that finds nothing where there were rows is a build that failed; the last set serves, also one that a gap has dropped is not forgotten. A Clear makes it believed.
func TestFilterDoubtsAnEmptyScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		told := new(tellings)
		w.cfg.Tell = told.tell
		w.hold(100)
		p := w.start("p", nil)
		defer p.end()
		p.complete(time.Minute)
		w.hold(0)
		why(t, p.f, 2*time.Minute, "Keys: the scan found no keys, where there were 100 before")
		if s := p.f.Stats(); !s.Complete || s.Keys != 100 || s.Failures == 0 || p.f.Absent("row7", time.Now()) || !p.f.Absent("nobody", time.Now()) {
			t.Errorf("an empty scan: %+v", s)
		}
		w.node.failover(0)
		time.Sleep(time.Minute)
		why(t, p.f, time.Minute, "no keys, where there were 100 before")
		if s := p.f.Stats(); s.Complete || p.f.Absent("row7", time.Now()) {
			t.Errorf("an empty scan after a gap: %+v", s)
		}
		w.hold(100)
		p.complete(2 * time.Minute)
		w.hold(0)
		if err := p.f.Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.complete(time.Minute)
		if s := p.f.Stats(); s.Why != stampede.FilterFoundNoKeys || s.Keys != 0 || !p.f.Absent("row7", time.Now()) {
			t.Errorf("an empty scan after a Clear: %+v", s)
		}
		time.Sleep(2 * time.Minute)
		if all := told.take(); all[len(all)-1] != "true "+stampede.FilterFoundNoKeys {
			t.Errorf("told %q", all)
		}
	})
}

// TestFilterOfAnEmptyTable: a very first scan that finds nothing is believed, and told; not where a row was loaded less than a minute ago. Rows that are added are no reason to doubt it, nor is
// the next one, which finds them.
func TestFilterOfAnEmptyTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		told := new(tellings)
		w.cfg.Tell = told.tell
		f, end := w.alone()
		defer end()
		f.Found("row")
		why(t, f, time.Minute, "no keys, where a load has found a row less than 1m0s ago")
		if f.Absent("row", time.Now()) {
			t.Errorf("a row that was loaded is absent: %+v", f.Stats())
		}
		time.Sleep(3 * time.Minute)
		if s := f.Stats(); !s.Complete || s.Why != stampede.FilterFoundNoKeys || !f.Absent("row", time.Now()) {
			t.Errorf("an empty table: %+v", s)
		}
		if all := told.take(); all[len(all)-1] != "true "+stampede.FilterFoundNoKeys {
			t.Errorf("told %q", all)
		}
		w.hold(1)
		if err := f.Add(t.Context(), "row0"); err != nil {
			t.Fatal(err)
		}
		failures := f.Stats().Failures
		until(t, 2*time.Minute, "all is well", func() bool { return f.Stats().Why == "" })
		if s := f.Stats(); s.Keys != 1 || s.Failures != failures {
			t.Errorf("a table with a row: %+v", s)
		}
	})
}

// TestFilterDoubtsAShortScan: fewer than half of the keys are believed when another scan says the same, not when it says something else.
func TestFilterDoubtsAShortScan(t *testing.T) {
	for name, tc := range map[string]struct {
		gives    []int // keys, by scan; the last for all further ones
		failures uint64
	}{
		"half":                {[]int{1000, 500}, 0},
		"fewer, and again":    {[]int{1000, 400, 410}, 1},
		"another early end":   {[]int{1000, 100, 300, 450, 1000}, 3},
		"one that was broken": {[]int{1000, 100, 1000}, 1},
		"one, and years on":   {[]int{1000, 100, 900, 100, 900}, 2}, // each time anew
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFilterWorld(t, 1)
				var scans []int
				w.cfg.Keys = func(_ context.Context, yield func(string) bool) error {
					w.mu.Lock()
					n := tc.gives[min(len(scans), len(tc.gives)-1)]
					scans = append(scans, n)
					w.mu.Unlock()
					for i := range 2 * n { // each twice
						yield(fmt.Sprint("row", i/2))
					}
					return nil
				}
				f, end := w.alone()
				for range 300 {
					time.Sleep(time.Second)
					s := f.Stats()
					if strings.Contains(s.Why, "fewer than half") && (s.Keys < 900 || f.Absent("row899", time.Now())) {
						t.Fatalf("scans %v: %+v", scans, s)
					}
				}
				end()
				if s := f.Stats(); s.Failures != tc.failures || s.Keys != tc.gives[len(tc.gives)-1] || s.Why != "" {
					t.Errorf("scans %v: %+v", scans, s)
				}
				if !slices.Equal(scans[:len(tc.gives)], tc.gives) {
					t.Errorf("scans %v", scans)
				}
			})
		})
	}
}

// TestFilterDoubtsAnothersBuild: a build that is stored, and has no keys or few, is not taken over by who knows better, however often it is offered.
func TestFilterDoubtsAnothersBuild(t *testing.T) {
	for keys, want := range map[int]string{0: "cannot be used: the scan found no keys, where there were 100 before", 10: "cannot be used: the scan found 10 keys, fewer than half of the 100"} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFilterWorld(t, 1)
				w.cfg.RebuildEvery = time.Hour
				w.hold(100)
				p := w.start("p", nil)
				defer p.end()
				p.complete(time.Minute)
				time.Sleep(time.Minute)
				w.node.spoil(true)
				scans := w.begun()
				whole := w.cfg.Keys
				w.cfg.Keys = func(_ context.Context, yield func(string) bool) error { // ends early
					for i := range keys {
						yield(fmt.Sprint("row", i))
					}
					return nil
				}
				q := w.start("q", nil)
				w.cfg.Keys = whole
				defer q.end()
				q.complete(time.Minute)
				why(t, p.f, time.Minute, want)
				time.Sleep(80 * time.Minute)
				if s := p.f.Stats(); !s.Complete || s.Loads > 0 || s.Keys != 100 || p.f.Absent("row99", time.Now()) || w.begun() == scans {
					t.Errorf("%d scans; %+v", w.begun()-scans, s)
				}
			})
		})
	}
}

// TestFilterTellsOfAClear: it is told as one, to the others too, and also where the feed did not take it at once; where no filter is built, that is told.
func TestFilterTellsOfAClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		w.hold(10)
		p := w.start("p", nil)
		defer p.end()
		q := w.start("q", nil)
		defer q.end()
		w.cfg.Keys = nil
		only := w.start("only tells", nil)
		defer only.end()
		for _, cut := range []bool{false, true} {
			p.complete(time.Minute)
			q.complete(time.Minute)
			time.Sleep(5 * time.Second)
			p.link.set(cut, false)
			if err := p.f.Forget(t.Context()); (err != nil) != cut {
				t.Fatal(err)
			}
			if s := p.f.Stats(); !strings.HasPrefix(s.Why, "the cache was cleared") {
				t.Errorf("who cleared: %+v", s)
			}
			p.link.set(false, false)
			why(t, q.f, 2*time.Second, "the cache was cleared")
		}
		if s := only.f.Stats(); s.Why != "AnnounceOnly: no filter is built here" || s.Complete {
			t.Errorf("who only tells: %+v", s)
		}
	})
}
