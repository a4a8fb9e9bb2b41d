// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// tellings are what a filter has told.
type tellings struct {
	mu  sync.Mutex
	all []string
}

// take returns what was told since the last call.
func (l *tellings) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

func (l *tellings) tell(consulted bool, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf("%t %s", consulted, strings.ReplaceAll(why, "\n", "; ")))
}

// TestFilterTells: that it is consulted, and that it is not any more and why, once each; a build that fails while the last one serves; one that cannot be taken over. A feed that comes and
// goes is not told each time.
func TestFilterTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		told := new(tellings)
		w.cfg.Tell = told.tell
		w.commit("row")
		p := w.start("p", nil)
		step := func(what string, d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			all := told.take()
			for i := range max(len(want), len(all)) {
				if i >= len(want) || i >= len(all) || !strings.HasPrefix(all[i], want[i]) {
					t.Errorf("%s: told %q, want %q", what, all, want)
					return
				}
			}
		}
		step("the first build", 20*time.Second, "true ")
		step("all is well", 10*time.Minute)
		w.node.failover(0)
		step("a gap", 2*time.Minute, "false "+"the feed has another history", "true ")
		p.link.set(true, false)
		step("silence", 2*time.Minute, "false the feed was last read to the end more than 2s ago; the feed cannot be followed: "+errCut.Error())
		p.link.set(false, false)
		step("it is back", time.Minute, "true ")
		w.mu.Lock()
		w.failing = true
		w.mu.Unlock()
		step("builds fail", 80*time.Second, "true stampede: Keys: the database has gone")
		step("and fail", time.Minute, "false no build has succeeded for twice RebuildEvery; stampede: Keys: the database has gone")
		w.mu.Lock()
		w.failing = false
		w.mu.Unlock()
		step("and succeed", 2*time.Minute, "true ")
		told.take()
		for range 20 {
			p.link.set(true, false)
			time.Sleep(3 * time.Second)
			p.link.set(false, false)
			time.Sleep(3 * time.Second)
		}
		all := told.take()
		if n := len(all); n < 2 || n > 13 {
			t.Errorf("a feed that comes and goes 20 times in two minutes was told %d times: %q", n, all)
		}
		time.Sleep(time.Minute)
		if all = append(all, told.take()...); all[len(all)-1] != "true " {
			t.Errorf("the last that was told is %q", all[len(all)-1])
		}
		if s := p.f.Stats(); !s.Complete {
			t.Errorf("%+v", s)
		}
		p.end()
	})
}

// TestFilterTellsOfARefusedBuild: one that is stored and cannot be used is told, though a scan follows.
func TestFilterTellsOfARefusedBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		w.commit("row")
		p := w.start("p", nil)
		p.complete(time.Minute)
		time.Sleep(5 * time.Second)
		p.end()
		w.node.spoil(false)
		told := new(tellings)
		w.cfg.Tell = told.tell
		q := w.start("q", nil)
		q.complete(time.Minute)
		time.Sleep(20 * time.Second)
		q.end()
		if all := told.take(); len(all) != 2 || !strings.Contains(all[0], "another process's build cannot be used: stampede: stripe 0 of build") || all[1] != "true " {
			t.Errorf("told %q", all)
		}
	})
}

// TestFilterTellsWhatStays: a filter that is never built, since its feed never answers, says so once.
func TestFilterTellsWhatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFilterWorld(t, 1)
		told := new(tellings)
		w.cfg.Tell = told.tell
		link := &filterLink{node: w.node, self: "p", cut: true}
		w.cfg.Feed, w.cfg.Store = link, link
		f, end := w.alone()
		time.Sleep(10 * time.Minute)
		if all := told.take(); len(all) != 1 || !strings.Contains(all[0], errCut.Error()) {
			t.Errorf("told %q; %+v", all, f.Stats())
		}
		end()
	})
}
