// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// TestFilterTakesOver: who starts takes over what another has built, without a scan, with what was added since. One that is damaged, or of which the feed has lost the beginning, is not used.
func TestFilterTakesOver(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(w *filterWorld)
		scans int
	}{
		"a build that is good":              {func(*filterWorld) {}, 0},
		"one that is damaged":               {func(w *filterWorld) { w.node.spoil(false) }, 1},
		"one that is gone":                  {func(w *filterWorld) { w.node.spoil(true) }, 1},
		"one whose beginning the feed lost": {func(w *filterWorld) { w.node.keep(1) }, 1},
		"one of another history":            {func(w *filterWorld) { w.node.failover(0) }, 1},
		"one that is too small":             {func(w *filterWorld) { w.cfg.ExpectedKeys++ }, 1},
		"one that is larger":                {func(w *filterWorld) { w.cfg.ExpectedKeys-- }, 0},
		"one that is too coarse":            {func(w *filterWorld) { w.cfg.FalsePositives /= 2 }, 1},
		"one that would be over":            {func(w *filterWorld) { w.cfg.RebuildEvery = 5 * time.Second }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFilterWorld(t, 1)
				w.commit("row")
				p := w.start("p", nil)
				p.complete(time.Minute)
				if err := p.insert("since"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				p.end()
				scans, began := w.begun(), p.f.Stats().Scanned
				tc.spoil(w)
				q := w.start("q", nil)
				defer q.end()
				q.complete(time.Minute)
				if n := w.begun() - scans; n != tc.scans {
					t.Errorf("%d scans, want %d; %+v", n, tc.scans, q.f.Stats())
				}
				if q.f.Absent("row", time.Now()) || q.f.Absent("since", time.Now()) || !q.f.Absent("nobody", time.Now()) {
					t.Errorf("what is known after a quick start is wrong: %+v", q.f.Stats())
				}
				if at := q.f.Stats().Scanned; tc.scans == 0 && at.Sub(began).Abs() > time.Second {
					t.Errorf("the build counts from %v, its scan began at %v", at, began)
				}
			})
		})
	}
}

// TestFilterFleetScansOnce: five processes that start together, and go on for ten minutes, cost the source a scan a minute.
func TestFilterFleetScansOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		w.commit("row")
		for i := range 5 {
			p := w.start(fmt.Sprint(i), func() time.Duration { return w.upTo(time.Millisecond) })
			defer p.end()
			defer p.complete(0)
		}
		time.Sleep(10 * time.Minute)
		if w.begun() < 10 || w.begun() > 13 {
			t.Errorf("%d scans in ten minutes, want one for each RebuildEvery less a tenth", w.begun())
		}
	})
}

// TestFilterFailoverInTakeOver: a failover that loses additions while a build is being brought up to date, and that has not been noticed otherwise.
func TestFilterFailoverInTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		p := w.start("p", nil)
		p.complete(time.Minute)
		time.Sleep(time.Second)
		if err := p.insert("since"); err != nil {
			t.Fatal(err)
		}
		p.end()
		time.Sleep(stampede.FilterTrust)
		took := false
		q := w.start("q", func() time.Duration { return time.Millisecond })
		defer q.end()
		q.link.hook(func(kind string) {
			if kind == "reads of another's" {
				took = true
				q.link.hook(nil)
				w.node.failover(2) // "since", and where q began
			}
		})
		for range 400 {
			time.Sleep(time.Millisecond)
			if q.f.Absent("since", time.Now()) {
				t.Fatalf("an addition that a failover has lost is absent: %+v", q.f.Stats())
			}
		}
		q.complete(time.Minute)
		if !took || q.f.Absent("since", time.Now()) {
			t.Errorf("took over: %t; %+v", took, q.f.Stats())
		}
	})
}
