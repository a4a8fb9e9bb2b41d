// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

func newLater(tb testing.TB, maxKeys int) *invalidation.Later {
	tb.Helper()
	l, err := invalidation.NewLater(invalidation.LaterConfig{Max: maxKeys})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func addLater(tb testing.TB, l *invalidation.Later, name string, version uint64, due time.Time) {
	tb.Helper()
	if err := l.Add(name, version, due); err != nil {
		tb.Fatal(err)
	}
}

// laterText writes second deletes as name@milliseconds:version.
func laterText(ds []invalidation.Delayed) string {
	var out []string
	for _, d := range ds {
		out = append(out, fmt.Sprintf("%s@%d:%d", d.Name, d.Due.Sub(at(0)).Milliseconds(), d.Version))
	}
	return strings.Join(out, " ")
}

// Each case adds keys in order and then asks at some moments; what comes at each is written as
// moment=deletes.
func TestLater(t *testing.T) {
	type add struct {
		name    string
		version uint64
		due     int
	}
	for _, c := range []struct {
		name string
		adds []add
		want []string
	}{
		{"in the order of due, not of adding", []add{{"b", 0, 900}, {"a", 0, 500}, {"c", 0, 700}}, []string{"499=", "500=a@500:0", "1000=c@700:0 b@900:0"}},
		{"ties by name", []add{{"b", 0, 500}, {"a", 0, 500}, {"c", 0, 500}}, []string{"500=a@500:0 b@500:0 c@500:0", "501="}},
		{"twice within the delay: at both times", []add{{"k", 1, 500}, {"k", 2, 800}}, []string{"500=k@500:2", "799=", "800=k@800:2", "9999="}},
		{"often within the delay: at the first and the last", []add{{"k", 0, 500}, {"k", 0, 600}, {"k", 0, 800}, {"k", 0, 700}}, []string{"500=k@500:0", "700=", "800=k@800:0", "9999="}},
		{"late: one delete is for both", []add{{"k", 0, 500}, {"k", 0, 800}}, []string{"800=k@800:0", "9999="}},
		{"a shorter delay comes first", []add{{"k", 0, 800}, {"k", 0, 300}}, []string{"300=k@300:0", "800=k@800:0", "9999="}},
		{"the same time again", []add{{"k", 9, 500}, {"k", 3, 500}}, []string{"500=k@500:9", "9999="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLater(t, 0)
			for _, a := range c.adds {
				addLater(t, l, a.name, a.version, at(a.due))
			}
			for _, want := range c.want {
				var now int
				fmt.Sscanf(want, "%d=", &now)
				if got := fmt.Sprintf("%d=%s", now, laterText(l.Due(at(now), 100))); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			if _, ok := l.Next(); ok || l.Len() != 0 {
				t.Errorf("%d keys are left", l.Len())
			}
		})
	}
}

func TestLaterNextAndMost(t *testing.T) {
	l := newLater(t, 0)
	if _, ok := l.Next(); ok {
		t.Error("an empty schedule has a next")
	}
	addLater(t, l, "a", 0, at(500))
	addLater(t, l, "b", 0, at(400))
	addLater(t, l, "b", 0, at(600))
	for i, want := range []int{400, 500, 600} {
		if next, ok := l.Next(); !ok || !next.Equal(at(want)) {
			t.Fatalf("next is %v, want %d", next.Sub(at(0)), want)
		}
		if l.Due(at(want), 0) != nil || l.Due(at(want), -1) != nil {
			t.Error("something came although nothing was asked for")
		}
		if got := laterText(l.Due(at(want), 1)); got != []string{"b@400:0", "a@500:0", "b@600:0"}[i] {
			t.Errorf("at %d: %s", want, got)
		}
	}
}

// RB-25: a full schedule refuses, by name, and drops nothing that it took; Flush gives all that
// waits, sorted by due.
func TestRB25Later(t *testing.T) {
	l := newLater(t, 500)
	for i := range 500 {
		addLater(t, l, fmt.Sprint(i), uint64(i), at(5000-i))
	}
	err := l.Add("x", 0, at(1))
	if !errors.Is(err, invalidation.ErrLaterFull) || !strings.Contains(err.Error(), `500 keys are waiting, no place for "x"`) {
		t.Errorf("the 501st: %v", err)
	}
	addLater(t, l, "7", 0, at(6000)) // known: merges
	all := l.Flush()
	if len(all) != 500 || l.Len() != 0 {
		t.Fatalf("%d flushed, %d left; want 500 and 0", len(all), l.Len())
	}
	if last := all[499]; last.Name != "7" || last.Version != 7 || !last.Due.Equal(at(6000)) {
		t.Errorf("the last is %+v, want 7 at its last time", last)
	}
	if !slices.IsSortedFunc(all, func(a, b invalidation.Delayed) int { return a.Due.Compare(b.Due) }) {
		t.Error("not sorted by due")
	}
	addLater(t, l, "x", 0, at(1))
	if got := laterText(l.Due(at(1), 9)); got != "x@1:0" {
		t.Errorf("after Flush: %s", got)
	}
}

func TestLaterConfig(t *testing.T) {
	if _, err := invalidation.NewLater(invalidation.LaterConfig{Max: -3}); err == nil || !strings.Contains(err.Error(), "Max is -3") {
		t.Errorf("error %v", err)
	}
}

// laterTwin is the schedule as a slice of two times a key.
type laterTwin struct {
	max  int
	keys []twinDelayed
}

type twinDelayed struct {
	name        string
	version     uint64
	first, last time.Time
}

func (w *laterTwin) add(name string, version uint64, due time.Time) bool {
	for i := range w.keys {
		if k := &w.keys[i]; k.name == name {
			k.version = max(k.version, version)
			k.first, k.last = earlier(k.first, due), later(k.last, due)
			return true
		}
	}
	if len(w.keys) == w.max {
		return false
	}
	w.keys = append(w.keys, twinDelayed{name, version, due, due})
	return true
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *laterTwin) due(now time.Time, most int) (out []invalidation.Delayed) {
	for len(out) < most {
		slices.SortFunc(w.keys, func(a, b twinDelayed) int { return cmp.Or(a.first.Compare(b.first), cmp.Compare(a.name, b.name)) })
		if len(w.keys) == 0 || w.keys[0].first.After(now) {
			break
		}
		k := w.keys[0]
		if k.last.After(now) {
			out = append(out, invalidation.Delayed{Name: k.name, Version: k.version, Due: k.first})
			w.keys[0].first = k.last
		} else {
			out = append(out, invalidation.Delayed{Name: k.name, Version: k.version, Due: k.last})
			w.keys = w.keys[1:]
		}
	}
	return out
}

func TestLaterTwin(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 2))
		l, w, now := newLater(t, 30), &laterTwin{max: 30}, 0
		refused, gave := 0, 0
		for range 3000 {
			now += rng.IntN(30)
			if rng.IntN(3) > 0 {
				name, version, due := fmt.Sprint("k", rng.IntN(40)), rng.Uint64N(9), at(now+[]int{100, 500, 2000}[rng.IntN(3)])
				err, ok := l.Add(name, version, due), w.add(name, version, due)
				if (err == nil) != ok {
					t.Fatalf("Add: %v, the twin says %v", err, ok)
				}
				if !ok {
					refused++
				}
			} else {
				most := rng.IntN(6)
				got, want := l.Due(at(now), most), w.due(at(now), most)
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: Due: %s, the twin gives %s", seed, laterText(got), laterText(want))
				}
				gave += len(got)
			}
			if l.Len() != len(w.keys) {
				t.Fatalf("%d keys, the twin has %d", l.Len(), len(w.keys))
			}
		}
		if refused == 0 || gave < 100 {
			t.Errorf("seed %d: %d refused, %d due: too few to mean anything", seed, refused, gave)
		}
	}
}

// What the type's comment promises for one delay, whenever a key is written: the first of a row
// exactly a delay later, every other less than one delay late, and at most two deletes in less than
// a delay.
func TestLaterPromise(t *testing.T) {
	const delay = 500
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		l := newLater(t, 0)
		var wanted, came []int
		write := 0
		for now := range 15_000 {
			for _, d := range l.Due(at(now), 9) {
				if d.Due.After(at(now)) {
					t.Fatalf("seed %d: came at %d, due at %v", seed, now, d.Due.Sub(at(0)))
				}
				came = append(came, now)
			}
			if now == write && now < 13_000 {
				if l.Len() == 0 {
					wanted = append(wanted, -(now + delay)) // negative: exactly then
				} else {
					wanted = append(wanted, now+delay)
				}
				addLater(t, l, "k", 0, at(now+delay))
				write = now + 1 + rng.IntN(1+int(seed)*35)
			}
		}
		for _, w := range wanted {
			exact := w < 0
			w = max(w, -w)
			i, hit := slices.BinarySearch(came, w)
			if i == len(came) || (exact && !hit) || came[i] >= w+delay {
				t.Fatalf("seed %d: no delete for %d (exactly then: %v) in %v", seed, w, exact, came)
			}
		}
		for i := 2; i < len(came); i++ {
			if came[i]-came[i-2] < delay {
				t.Fatalf("seed %d: three deletes within a delay: %v", seed, came[i-2:i+1])
			}
		}
	}
}
