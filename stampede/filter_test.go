// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

func TestFilterConfigRefused(t *testing.T) {
	w := newFilterWorld(t, 0)
	for _, tc := range []struct {
		name string
		do   func(c *stampede.FilterConfig)
		want []string
	}{
		{"no keys expected", func(c *stampede.FilterConfig) { c.ExpectedKeys = 0 }, []string{"ExpectedKeys", "0", "1 to 4294967296"}},
		{"negative keys", func(c *stampede.FilterConfig) { c.ExpectedKeys = -1 }, []string{"ExpectedKeys", "-1"}},
		{"too many keys", func(c *stampede.FilterConfig) { c.ExpectedKeys = 1<<32 + 1 }, []string{"ExpectedKeys", "4294967297"}},
		{"negative rate", func(c *stampede.FilterConfig) { c.FalsePositives = -0.1 }, []string{"FalsePositives", "-0.1", "0.01"}},
		{"rate too large", func(c *stampede.FilterConfig) { c.FalsePositives = 0.6 }, []string{"FalsePositives", "0.6"}},
		{"rate NaN", func(c *stampede.FilterConfig) { c.FalsePositives = math.NaN() }, []string{"FalsePositives", "NaN"}},
		{"a time without a unit", func(c *stampede.FilterConfig) { c.RebuildEvery = 60 }, []string{"RebuildEvery", "60ns", "at least 1s"}},
		{"neither keys nor feed", func(c *stampede.FilterConfig) { c.Keys = nil }, []string{"Keys", "Feed"}},
		{"a store without a feed", func(c *stampede.FilterConfig) { c.Store = &filterLink{} }, []string{"Feed", "Store"}},
		{"no draw", func(c *stampede.FilterConfig) { c.Draw = nil }, []string{"Draw"}},
	} {
		cfg := w.cfg
		tc.do(&cfg)
		_, err := stampede.NewFilter(cfg)
		if err == nil {
			t.Errorf("%s: accepted", tc.name)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not mention %q", tc.name, err, part)
			}
		}
	}
}

// alone runs a filter without a feed.
func (w *filterWorld) alone() (f *stampede.Filter, end func()) {
	w.t.Helper()
	f, err := stampede.NewFilter(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	return f, func() { stop(); <-done }
}

// TestFilterAlone: nothing is absent before the first build has ended; then what is not known is; rows that are added while a build is under way are known to it; a build
// forgets deleted rows; failed builds leave the last one in use, until it is twice RebuildEvery old.
func TestFilterAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		for i := range 1000 {
			w.commit(fmt.Sprint("row", i))
		}
		f, end := w.alone()
		defer end()
		absent := func(key string, want bool) {
			t.Helper()
			if got := f.Absent(key, time.Now()); got != want {
				t.Errorf("Absent(%s) = %t, want %t; %+v", key, got, want, f.Stats())
			}
		}
		time.Sleep(500 * time.Millisecond) // the scan takes 2 s at least
		absent("nobody", false)
		if s := f.Stats(); s.Complete || !strings.Contains(s.Why, "first build") {
			t.Errorf("before the first build: %+v", s)
		}
		w.commit("late")
		if err := f.Add(t.Context(), "late"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		absent("nobody", true)
		absent("row999", false)
		absent("late", false)
		if s := f.Stats(); !s.Complete || s.Why != "" || s.Keys != 1001 || s.Capacity != 2000 || s.Builds != 1 {
			t.Errorf("after the first build: %+v", s)
		}
		w.mu.Lock()
		w.rows = w.rows[1:]
		w.mu.Unlock()
		absent("row0", false)
		time.Sleep(time.Minute + 5*time.Second)
		absent("row0", true)
		absent("row1", false)
		w.mu.Lock()
		w.failing = true
		w.mu.Unlock()
		for !strings.Contains(f.Stats().Why, "the database has gone") {
			time.Sleep(time.Second)
		}
		absent("nobody", true)
		scanned := f.Stats().Scanned
		time.Sleep(time.Until(scanned.Add(2*time.Minute - 1)))
		absent("nobody", true)
		time.Sleep(time.Nanosecond)
		absent("nobody", false)
		if s := f.Stats(); s.Complete || !strings.Contains(s.Why, "twice RebuildEvery") {
			t.Errorf("when no build succeeds: %+v", s)
		}
		w.mu.Lock()
		w.failing = false
		w.mu.Unlock()
		time.Sleep(time.Minute + 5*time.Second) // the longest back-off
		absent("nobody", true)
	})
}

// TestFilterEntriesAreSmall: however many keys are added at once, an entry of the feed has 64 at most: that is what bounds the feed's memory, and a reading of it.
func TestFilterEntriesAreSmall(t *testing.T) {
	w := newFilterWorld(t, 1)
	node := newFilterNode()
	w.cfg.Feed, w.cfg.Store = &filterLink{node: node, self: "a"}, nil
	f, err := stampede.NewFilter(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	if err := f.Add(t.Context(), keys...); err != nil {
		t.Fatal(err)
	}
	if len(node.entries) != 16 {
		t.Errorf("%d entries for 1,000 keys, want 16", len(node.entries))
	}
	for _, e := range node.entries {
		if len(e.Data) > 1+8*64 {
			t.Errorf("an entry of %d bytes", len(e.Data))
		}
	}
}

// TestFilterKeysThatDoNotReturn: a Keys that panics or ends its goroutine is a build that failed; one that stops when it is told to, because Run ends, is none that is
// complete.
func TestFilterKeysThatDoNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		call := 0
		w.cfg.Keys = func(_ context.Context, yield func(string) bool) error {
			switch call++; call {
			case 1:
				panic("no such table")
			case 2:
				runtime.Goexit()
			}
			yield("row")
			return nil
		}
		f, end := w.alone()
		defer end()
		for _, why := range []string{"no such table", "Goexit"} {
			for !strings.Contains(f.Stats().Why, why) {
				time.Sleep(100 * time.Millisecond)
			}
		}
		time.Sleep(time.Minute)
		if !f.Absent("nobody", time.Now()) || f.Absent("row", time.Now()) {
			t.Errorf("%+v", f.Stats())
		}
		if s := f.Stats(); s.Failures != 2 {
			t.Errorf("%d failures, want 2", s.Failures)
		}
	})
}

// TestFilterGrows: more rows than were expected are known all the same, and the next build, which comes at once, has room for them.
func TestFilterGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		w.cfg.ExpectedKeys, w.cfg.RebuildEvery, w.cfg.FalsePositives = 100, time.Hour, 0.01
		f, end := w.alone()
		defer end()
		time.Sleep(5 * time.Second)
		for i := range 1000 {
			key := fmt.Sprint("row", i)
			w.commit(key)
			if err := f.Add(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		before := f.Stats()
		if before.Estimated < 0.3 || before.Keys < 300 {
			t.Errorf("1,000 keys where 100 were expected: %+v", before)
		}
		time.Sleep(time.Minute)
		s := f.Stats()
		if s.Keys < 980 || s.Keys > s.Capacity*3/2 || s.Capacity > 2000 || s.Estimated > 0.07 || s.Builds < 2 || s.Builds > 4 {
			t.Errorf("after the filter has grown: %+v", s)
		}
	})
}

// TestFilterTellsOthers: what one adds another knows within FilterTrust; who does not hear the feed says nothing from FilterTrust on, and is well again, without a scan, when it
// does; what could not be sent is told loudly, and is sent.
func TestFilterTellsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		w.commit("row")
		p, q := w.start("p", nil), w.start("q", nil)
		defer p.end()
		defer q.end()
		p.complete(time.Minute)
		q.complete(time.Minute)
		if !q.f.Absent("new", time.Now()) {
			t.Error("a row that is not there may be there")
		}
		if err := p.insert("new"); err != nil {
			t.Fatal(err)
		}
		if p.f.Absent("new", time.Now()) {
			t.Error("who has added a row does not know it")
		}
		time.Sleep(stampede.FilterTrust)
		if !q.f.Stats().Complete || q.f.Absent("new", time.Now()) {
			t.Error("a row that another has added is absent")
		}
		scans := w.begun()
		q.link.set(true, false)
		time.Sleep(stampede.FilterTrust)
		if s := q.f.Stats(); s.Complete || !strings.Contains(s.Why, "read to the end") || !strings.Contains(s.Why, errCut.Error()) {
			t.Errorf("without the feed: %+v", s)
		}
		if err := q.insert("of q"); !errors.Is(err, errCut) || q.f.Stats().Owed != 1 {
			t.Errorf("an addition that was not sent: %v; %+v", err, q.f.Stats())
		}
		time.Sleep(10 * time.Second)
		if !p.f.Absent("of q", time.Now()) {
			t.Error("p has heard of what q could not send")
		}
		q.link.set(false, false)
		time.Sleep(stampede.FilterTrust)
		if s := q.f.Stats(); !s.Complete || s.Owed > 0 || s.Gaps > 0 || w.begun() != scans || p.f.Absent("of q", time.Now()) {
			t.Errorf("when q is back: %+v, %d scans more", s, w.begun()-scans)
		}
	})
}

// TestFilterThatHearsNothing: a feed that has never answered, for lack of rights perhaps, is why nothing is built, and Stats says so.
func TestFilterThatHearsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		link := &filterLink{node: w.node, self: "p", cut: true}
		w.cfg.Feed, w.cfg.Store = link, link
		f, end := w.alone()
		defer end()
		time.Sleep(time.Minute)
		if s := f.Stats(); s.Complete || !strings.Contains(s.Why, "first build") || !strings.Contains(s.Why, errCut.Error()) {
			t.Errorf("%+v", s)
		}
		link.set(false, false)
		time.Sleep(time.Minute)
		if s := f.Stats(); !s.Complete || s.Why != "" {
			t.Errorf("when it answers: %+v", s)
		}
	})
}

// TestFilterMeasures: the share of false positives that Stats tells is what was counted, and what so many keys make likely.
func TestFilterMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		w.cfg.ExpectedKeys, w.cfg.FalsePositives, w.cfg.RebuildEvery = 2000, 0.01, time.Hour
		for i := range w.cfg.ExpectedKeys {
			w.commit(fmt.Sprint("row", i))
		}
		f, end := w.alone()
		defer end()
		time.Sleep(time.Minute)
		if m := f.Stats().Measured(); m != 0 {
			t.Errorf("measured before the first question: %v", m)
		}
		const absent = 50_000
		falses := 0
		for i := range absent {
			if now := time.Now(); !f.Absent(fmt.Sprint("nobody", i), now) {
				f.Missed(now)
				falses++
			}
		}
		s := f.Stats()
		if got := s.Measured(); got != float64(falses)/absent || got > 1.5*s.Estimated || got < s.Estimated/1.5 || s.Lookups != absent {
			t.Errorf("measured %v, counted %d of %d: %+v", got, falses, absent, s)
		}
	})
}

// TestFilterGaps: whatever may have lost additions makes everything possible until a new build has ended.
func TestFilterGaps(t *testing.T) {
	for name, gap := range map[string]func(w *filterWorld, p *filterProcess){
		"another history": func(w *filterWorld, _ *filterProcess) { w.node.failover(0) },
		"flushed":         func(w *filterWorld, _ *filterProcess) { w.node.keep(0) },
		"the entry read last has gone": func(w *filterWorld, p *filterProcess) {
			_, _ = p.link.Append(w.t.Context(), []byte("h"))
			w.node.keep(1)
		},
		"a kind that is not known":         func(w *filterWorld, p *filterProcess) { _, _ = p.link.Append(w.t.Context(), []byte("z1")) },
		"an empty entry":                   func(w *filterWorld, p *filterProcess) { _, _ = p.link.Append(w.t.Context(), nil) },
		"additions that are cut":           func(w *filterWorld, p *filterProcess) { _, _ = p.link.Append(w.t.Context(), []byte("a123")) },
		"somebody has lost some":           func(w *filterWorld, p *filterProcess) { _, _ = p.link.Append(w.t.Context(), []byte("g")) },
		"Forget":                           func(w *filterWorld, p *filterProcess) { _ = p.f.Forget(w.t.Context()) },
		"the same id, but another's entry": func(w *filterWorld, _ *filterProcess) { w.node.replaceLast() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFilterWorld(t, 1)
				w.commit("row")
				q := w.start("q", nil)
				defer q.end()
				p := w.start("p", nil)
				defer p.end()
				p.complete(time.Minute)
				q.complete(time.Minute)
				w.node.spoil(true)
				time.Sleep(stampede.FilterTrust)
				gap(w, p)
				w.commit("unheard of")
				time.Sleep(600 * time.Millisecond) // the next reading
				if s := q.f.Stats(); s.Complete || q.f.Absent("nobody", time.Now()) || s.Gaps == 0 {
					t.Errorf("after the gap: %+v", s)
				}
				q.complete(time.Minute)
				if q.f.Absent("unheard of", time.Now()) || !q.f.Absent("nobody", time.Now()) {
					t.Errorf("after the new build: %+v", q.f.Stats())
				}
			})
		})
	}
}

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

// TestFilterOwnAdditionsAreKept: a process that could not send an addition finds it also in a set that another has built and that does not hold it.
//
//  1. q begins to scan
//  2. p commits and adds a row; the feed does not take it
//  3. q's scan ends, without the row. p takes q's set over
func TestFilterOwnAdditionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		p := w.start("p", nil)
		defer p.end()
		p.complete(time.Minute)
		time.Sleep(time.Minute - 8*time.Second) // p's next scan would begin 2 s later at the earliest
		q := w.start("q", nil)
		defer q.end()
		w.node.spoil(true)
		p.link.mu.Lock()
		p.link.noAppend = true
		p.link.mu.Unlock()
		for scans := w.begun(); w.begun() == scans; time.Sleep(time.Millisecond) { //nolint:revive // waits
		}
		if err := p.insert("owed"); !errors.Is(err, errCut) {
			t.Fatalf("Add: %v", err)
		}
		for loads := p.f.Stats().Loads; p.f.Stats().Loads == loads; time.Sleep(10 * time.Millisecond) {
			if p.f.Absent("owed", time.Now()) {
				t.Fatal("p has forgotten what it has added")
			}
		}
		if p.f.Absent("owed", time.Now()) {
			t.Error("p has forgotten what it has added")
		}
	})
}

// TestFilterOldPrimary: a process that was cut off together with an old primary tells the others what it has added there, when it meets the new one.
func TestFilterOldPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		p, q := w.start("p", nil), w.start("q", nil)
		defer p.end()
		defer q.end()
		p.complete(time.Minute)
		q.complete(time.Minute)
		old := w.node
		promoted := newFilterNode()
		promoted.history, promoted.ids = 1, old.ids
		promoted.entries = append(promoted.entries, old.entries...)
		w.node = promoted
		q.link.move(promoted)
		time.Sleep(time.Second)
		q.complete(time.Minute)
		if err := p.insert("late"); err != nil {
			t.Fatal(err)
		}
		p.link.move(promoted)
		time.Sleep(stampede.FilterTrust)
		q.complete(time.Minute)
		if q.f.Absent("late", time.Now()) {
			t.Error("q does not know what p has added on the old primary")
		}
	})
}

// TestFilterAnsweredLate is the same for an addition whose answer comes when its process has met the new primary already.
func TestFilterAnsweredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		p, q := w.start("p", nil), w.start("q", nil)
		defer p.end()
		defer q.end()
		p.complete(time.Minute)
		q.complete(time.Minute)
		promoted := newFilterNode()
		promoted.history, promoted.ids, promoted.entries = 1, w.node.ids, append(promoted.entries, w.node.entries...)
		q.link.move(promoted)
		time.Sleep(time.Second)
		q.complete(time.Minute)
		p.link.hook(func(kind string) { // between the node and the answer
			if kind == "appended" {
				p.link.hook(nil)
				p.link.move(promoted)
				time.Sleep(time.Second) // it sees the other history
				p.complete(time.Minute)
			}
		})
		if err := p.insert("late"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stampede.FilterTrust)
		q.complete(time.Minute)
		if q.f.Absent("late", time.Now()) {
			t.Error("q does not know what p has added on the old primary")
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

// TestFilterOwesTooMuch: additions that were too many to be kept make all filters begin anew.
func TestFilterOwesTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		w.cfg.ExpectedKeys = 100_000
		p, q := w.start("p", nil), w.start("q", nil)
		defer p.end()
		defer q.end()
		p.complete(time.Minute)
		q.complete(time.Minute)
		p.link.set(true, false)
		keys := make([]string, 70_000)
		for i := range keys {
			keys[i] = fmt.Sprint("row", i)
		}
		w.commit(keys[0]) // two of them are enough for a scan to find, and all are told
		w.commit(keys[len(keys)-1])
		if err := p.f.Add(t.Context(), keys...); err == nil {
			t.Error("no error though nothing was sent")
		}
		if s := p.f.Stats(); s.Owed != len(keys) {
			t.Errorf("%d owed, want %d", s.Owed, len(keys))
		}
		p.link.set(false, false)
		time.Sleep(stampede.FilterTrust)
		if q.f.Stats().Gaps == 0 {
			t.Errorf("q goes on as if nothing were lost: %+v", q.f.Stats())
		}
		q.complete(10 * time.Minute)
		if s := p.f.Stats(); s.Owed > 0 {
			t.Errorf("still owed: %d", s.Owed)
		}
		for _, key := range []string{keys[0], keys[len(keys)-1]} { // they were there before q's new scan began, whoever has heard of them
			if q.f.Absent(key, time.Now()) {
				t.Errorf("%s is absent", key)
			}
		}
		w.node.mu.Lock()
		defer w.node.mu.Unlock()
		sent := 0
		for _, e := range w.node.entries {
			if e.Data[0] == 'a' {
				sent += (len(e.Data) - 1) / 8
			}
		}
		if sent < 1<<16 {
			t.Errorf("%d additions were sent, want what was kept: %d at least", sent, 1<<16)
		}
	})
}

// TestFilterFound: a row that the filter takes for absent and that is loaded all the same is known from then on, everywhere.
func TestFilterFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		p, q := w.start("p", nil), w.start("q", nil)
		defer p.end()
		defer q.end()
		p.complete(time.Minute)
		q.complete(time.Minute)
		p.f.Found("row")
		if p.f.Absent("row", time.Now()) {
			t.Error("absent here")
		}
		time.Sleep(stampede.FilterTrust)
		if !q.f.Stats().Complete || q.f.Absent("row", time.Now()) {
			t.Error("absent there")
		}
	})
}

// TestFilterClose: what is owed is sent, or reported.
func TestFilterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		p, q := w.start("p", nil), w.start("q", nil)
		defer q.end()
		p.complete(time.Minute)
		q.complete(time.Minute)
		p.end()
		p.link.set(true, false)
		_ = p.insert("row")
		if err := p.f.Close(t.Context()); !errors.Is(err, errCut) || !strings.Contains(err.Error(), "1 additions") {
			t.Errorf("Close of one that cannot send: %v", err)
		}
		p.link.set(false, false)
		if err := p.f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(stampede.FilterTrust)
		if q.f.Absent("row", time.Now()) {
			t.Error("not sent")
		}
	})
}

// TestFilterConcurrently: on real processors, additions, questions and builds at once lose no key.
func TestFilterConcurrently(t *testing.T) {
	const writers, each = 4, 5000
	w := newFilterWorld(t, 1)
	var mu sync.Mutex
	var rows []string
	var builds atomic.Int32
	w.cfg.ExpectedKeys, w.cfg.RebuildEvery = writers*each, time.Second
	w.cfg.Keys = func(_ context.Context, yield func(string) bool) error {
		builds.Add(1)
		mu.Lock()
		now := rows
		mu.Unlock()
		for _, row := range now {
			yield(row)
		}
		return nil
	}
	f, end := w.alone()
	defer end()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range each {
				key := fmt.Sprint(i, "/", n)
				mu.Lock()
				rows = append(rows, key)
				mu.Unlock()
				if err := f.Add(t.Context(), key); err != nil {
					t.Error(err)
				}
				for _, k := range []int{n, n / 2, 0} {
					if key := fmt.Sprint(i, "/", k); f.Absent(key, time.Now()) {
						t.Errorf("%s is absent", key)
					}
				}
				if n%100 == 0 {
					time.Sleep(50 * time.Millisecond) // so that it takes some builds
				}
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n < 2 {
		t.Errorf("%d builds: too few for this to be a test", n)
	}
}
