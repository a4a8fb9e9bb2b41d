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
		w.commit("row")
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
