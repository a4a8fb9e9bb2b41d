// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

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
		scans := w.begun()
		until(t, 2*time.Minute, "q scans", func() bool { return w.begun() > scans })
		if err := p.insert("owed"); !errors.Is(err, errCut) {
			t.Fatalf("Add: %v", err)
		}
		loads := p.f.Stats().Loads
		until(t, 2*time.Minute, "p takes q's build over", func() bool {
			if p.f.Absent("owed", time.Now()) {
				t.Fatal("p has forgotten what it has added")
			}
			return p.f.Stats().Loads > loads
		})
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
		promoted := w.node.promoted()
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
		promoted := w.node.promoted()
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

// TestFilterSendsAgain: what a process has sent in a history that is over it sends again, for others may not have read it; but not what is so old that no filter which is believed can lack it: its scan would
// have begun before the row was there. That goes for the memory that there were more than are kept, too.
func TestFilterSendsAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		keys      int
		waits     time.Duration
		sent      int  // additions after the failover, at least; 0: none
		forgotten bool // all are told that something is lost
	}{
		"lately":             {100, 90 * time.Second, 100, false},
		"long ago":           {100, 5 * time.Minute, 0, false},
		"too many, lately":   {70_000, 90 * time.Second, 1 << 16, true},
		"too many, long ago": {70_000, 5 * time.Minute, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFilterWorld(t, 1)
				w.cfg.ExpectedKeys = 100_000
				p := w.start("p", nil)
				defer p.end()
				p.complete(time.Minute)
				keys := make([]string, tc.keys)
				for i := range keys {
					keys[i] = fmt.Sprint("row", i)
				}
				if err := p.f.Add(t.Context(), keys...); err != nil {
					t.Fatal(err)
				}
				time.Sleep(tc.waits)
				w.node.mu.Lock()
				before := len(w.node.entries)
				w.node.mu.Unlock()
				w.node.failover(0)
				time.Sleep(5 * time.Second)
				w.node.mu.Lock()
				defer w.node.mu.Unlock()
				sent, forgotten := 0, false
				for _, e := range w.node.entries[before:] {
					switch e.Data[0] {
					case 'a':
						sent += (len(e.Data) - 1) / 8
					case 'g':
						forgotten = true
					}
				}
				if sent < tc.sent || tc.sent == 0 && sent > 0 || forgotten != tc.forgotten {
					t.Errorf("%d additions were sent again, want %d; that some are lost was told: %t, want %t", sent, tc.sent, forgotten, tc.forgotten)
				}
			})
		})
	}
}
