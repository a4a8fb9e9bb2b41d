// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/invalidation"
)

func newReplay(tb testing.TB, config invalidation.ReplayConfig) *invalidation.Replay {
	tb.Helper()
	r, err := invalidation.NewReplay(config)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// sentBy is an invalidation of a key that run confirmed at a moment, 5 ms after it began.
func sentBy(run, name string, version uint64, ms int) invalidation.Sent {
	return invalidation.Sent{Name: name, Version: version, Run: run, Began: at(ms - 5), At: at(ms)}
}

// readAt is a reading that was sent at a moment; the replicas are a, b, ...
func readAt(ms int, run string, offset int64, replicas ...int64) invalidation.Position {
	p := invalidation.Position{At: at(ms), Run: run, Offset: offset, Replicas: map[string]int64{}}
	for i, o := range replicas {
		p.Replicas[string(rune('a'+i))] = o
	}
	return p
}

// takeText writes what is void as name:version@milliseconds.
func takeText(r *invalidation.Replay) string {
	var out []string
	for _, s := range r.Take() {
		out = append(out, fmt.Sprintf("%s:%d@%d", s.Name, s.Version, s.At.Sub(at(0)).Milliseconds()))
	}
	return strings.Join(out, " ")
}

func TestReplayConfig(t *testing.T) {
	for _, c := range []struct {
		config invalidation.ReplayConfig
		names  string
	}{
		{invalidation.ReplayConfig{Max: -1}, "Max is -1"},
		{invalidation.ReplayConfig{MinAge: -1}, "MinAge is -1ns"},
	} {
		if _, err := invalidation.NewReplay(c.config); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%+v: error %v, want one with %q", c.config, err, c.names)
		}
	}
}

// When one invalidation that run R confirmed at 1,000 ms leaves. Each case gives readings; the
// entry must be gone after the last, and not before.
func TestReplayLeaves(t *testing.T) {
	type ps = []invalidation.Position
	for _, c := range []struct {
		name     string
		readings ps
	}{
		{"at the first reading that is old enough, after the one that placed it", ps{readAt(1001, "R", 50, 50), readAt(10_999, "R", 60, 60), readAt(11_000, "R", 60, 60)}},
		{"not at the reading that places it", ps{readAt(20_000, "R", 50, 50), readAt(20_001, "R", 50, 50)}},
		{"a ROLE sent before the confirmation places nothing", ps{readAt(999, "R", 40, 40), readAt(20_000, "R", 50, 40), readAt(21_000, "R", 50, 49), readAt(22_000, "R", 60, 50)}},
		{"nor one sent at the same moment", ps{readAt(1000, "R", 40, 40), readAt(20_000, "R", 50, 40), readAt(21_000, "R", 50, 50)}},
		{"every replica", ps{readAt(2000, "R", 50, 50, 10), readAt(11_000, "R", 70, 70, 49), readAt(12_000, "R", 70, 70, 50)}},
		{"no replica", ps{readAt(2000, "R", 50), readAt(10_999, "R", 70), readAt(11_000, "R", 70)}},
		{"a replica that is listed later counts", ps{readAt(2000, "R", 50), readAt(11_000, "R", 70, 0), readAt(12_000, "R", 70, 50)}},
		{"one that is listed no more counts for 10 s from the second reading without it", ps{
			readAt(2000, "R", 50, 50, 20), readAt(11_000, "R", 70, 70), readAt(12_000, "R", 70, 70), readAt(21_999, "R", 70, 70), readAt(22_000, "R", 70, 70)}},
		{"one that had it and is listed no more does not hold it", ps{readAt(2000, "R", 50, 50, 50), readAt(11_000, "R", 70, 70)}},
		{"one that comes back counts anew", ps{readAt(2000, "R", 50, 20), readAt(11_000, "R", 70), readAt(12_000, "R", 70), readAt(13_000, "R", 70, 21), readAt(23_000, "R", 70), readAt(24_000, "R", 70, 50)}},
		{"readings that come late count for nothing", ps{readAt(2000, "R", 50, 20), readAt(15_000, "R", 70, 20), readAt(14_000, "R", 69, 69), readAt(16_000, "R", 70, 70)}},
		{"a reading without a run counts for nothing", ps{readAt(2000, "R", 50, 50), readAt(12_000, "", 70, 70), readAt(13_000, "R", 70, 70)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReplay(t, invalidation.ReplayConfig{})
			r.Read(readAt(0, "R", 1))
			r.Add(sentBy("R", "k", 7, 1000))
			for i, p := range c.readings {
				if !r.Has("k") {
					t.Fatalf("gone before reading %d", i)
				}
				if void := r.Read(p); void != 0 {
					t.Fatalf("%d void after reading %d", void, i)
				}
			}
			if st := r.Stats(); r.Has("k") || st.Left != 1 || st.Depth != 0 || !st.Oldest.IsZero() {
				t.Errorf("still there: %+v", st)
			}
		})
	}
}

// One entry a key: the largest version, the latest time; and a late report of an older one takes
// nothing back.
func TestReplayMerges(t *testing.T) {
	r := newReplay(t, invalidation.ReplayConfig{})
	r.Read(readAt(0, "R", 1))
	r.Add(sentBy("R", "k", 7, 1000))
	r.Read(readAt(1500, "R", 50, 0))
	r.Add(sentBy("R", "k", 3, 2000)) // needs a place of its own
	r.Read(readAt(11_500, "R", 60, 59))
	if st := r.Stats(); st.Depth != 1 || !st.Oldest.Equal(at(2000)) {
		t.Errorf("%+v, want one entry of 2,000 ms", st)
	}
	r.Read(readAt(12_000, "R", 60, 59))
	if !r.Has("k") {
		t.Fatal("k has left by the place of its first invalidation")
	}
	r.Add(sentBy("R", "k", 4, 1900)) // late
	r.Read(readAt(12_001, "R", 60, 60))
	if r.Has("k") {
		t.Fatal("k is still there: the late report has moved it")
	}

	r.Add(sentBy("R", "k", 7, 20_000))
	r.Add(sentBy("R", "k", 9, 20_500))
	r.Add(sentBy("R", "k", 3, 21_000))
	if version, void := r.Add(sentBy("another", "k", 1, 20_700)); version != 9 || !void { // makes it void, but not older
		t.Errorf("to be repeated: %d, %t; want 9", version, void)
	}
	if got := takeText(r); got != "k:9@21000" {
		t.Errorf("take: %s, want the largest version and the latest time", got)
	}
}

// Another run makes everything void, and it stays until it is confirmed by that run, by something
// that began later.
func TestReplayRunChanges(t *testing.T) {
	r := newReplay(t, invalidation.ReplayConfig{})
	r.Read(readAt(0, "A", 1000))
	r.Add(sentBy("A", "placed", 1, 100))
	r.Read(readAt(200, "A", 1100, 1100))
	r.Add(sentBy("A", "open", 2, 300))
	if n := r.Read(readAt(1000, "B", 1_000_000, 1_000_000)); n != 2 || takeText(r) != "placed:1@100 open:2@300" {
		t.Fatalf("%d void: %s", n, takeText(r))
	}
	for _, c := range []struct {
		sent    invalidation.Sent
		version uint64 // with which it is to be repeated
		void    bool
	}{
		{sentBy("A", "late", 3, 1100), 3, true}, {sentBy("", "unknown", 4, 1200), 4, true},
		{sentBy("B", "placed", 1, 1300), 1, false}, // replayed
	} {
		if version, void := r.Add(c.sent); version != c.version || void != c.void {
			t.Errorf("%s by %q: %d, void %t; want %d, %t", c.sent.Name, c.sent.Run, version, void, c.version, c.void)
		}
	}
	if n := r.Read(readAt(50_000, "B", 2_000_000, 2_000_000)); n != 3 || takeText(r) != "open:2@300 late:3@1100 unknown:4@1200" {
		t.Fatalf("%d void: %s", n, takeText(r))
	}
	// B carried this out before "late" began on A, although its reply was read afterwards.
	r.Add(invalidation.Sent{Name: "late", Version: 9, Run: "B", Began: at(1050), At: at(1150)})
	if st := r.Stats(); st.Void != 3 || st.Replayed != 1 || st.Depth != 4 || !st.Oldest.Equal(at(300)) {
		t.Errorf("%+v", st)
	}
	for _, s := range r.Take() {
		r.Add(sentBy("B", s.Name, s.Version, 51_000))
	}
	r.Read(readAt(52_000, "B", 2_000_000, 2_000_000))
	if n := r.Read(readAt(61_000, "B", 2_000_000, 2_000_000)); n != 0 || r.Stats().Depth != 0 || r.Stats().Replayed != 4 {
		t.Errorf("%d void, %+v", n, r.Stats())
	}
}

// A replay that announces less than what has been added since leaves the entry void.
func TestReplayOfAnOlderVersion(t *testing.T) {
	r := newReplay(t, invalidation.ReplayConfig{})
	r.Read(readAt(0, "A", 1000))
	r.Add(sentBy("A", "k", 2, 100))
	r.Read(readAt(1000, "B", 1))
	r.Add(sentBy("A", "k", 3, 1100)) // late
	for version, want := range map[uint64]string{0: "k:3@1100", 2: "k:3@1100"} {
		r.Add(sentBy("B", "k", version, 1200))
		if got := takeText(r); got != want {
			t.Errorf("after the replay of version %d: %q is void, want %q", version, got, want)
		}
	}
	if r.Add(sentBy("B", "k", 3, 1300)); takeText(r) != "" {
		t.Errorf("after the replay of version 3: %q is void", takeText(r))
	}
}

// What is void although the run is the one of the last reading.
func TestReplayVoid(t *testing.T) {
	for name, lose := range map[string]func(*invalidation.Replay){
		"Void":                         func(r *invalidation.Replay) { r.Void(at(5000)) },
		"the stream runs backwards":    func(r *invalidation.Replay) { r.Read(readAt(5000, "A", 99, 99)) },
		"another run was there":        func(r *invalidation.Replay) { r.Read(readAt(4000, "B", 1, 1)); r.Read(readAt(5000, "A", 2000, 2000)) },
		"nothing was read before this": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplay(t, invalidation.ReplayConfig{})
			if lose != nil {
				r.Read(readAt(0, "A", 100, 100))
			}
			r.Add(sentBy("A", "k", 1, 100))
			if lose != nil {
				lose(r)
			} else {
				r.Read(readAt(5000, "A", 100, 100))
			}
			r.Add(sentBy("A", "began before", 2, 5004)) // at 4,999
			r.Add(sentBy("A", "k", 1, 5004))
			r.Add(sentBy("A", "began after", 3, 5006))
			if n := r.Read(readAt(60_000, "A", 3000, 3000)); n != 2 || takeText(r) != "k:1@5004 began before:2@5004" && takeText(r) != "began before:2@5004 k:1@5004" {
				t.Errorf("%d void: %s", n, takeText(r))
			}
			r.Read(readAt(61_000, "A", 3000, 3000))
			if r.Has("began after") || !r.Has("k") {
				t.Error("want k to wait for its replay, and the later one to have left")
			}
		})
	}
}

// The replicas of a run that is gone are nobody to wait for.
func TestReplayForgetsReplicas(t *testing.T) {
	r := newReplay(t, invalidation.ReplayConfig{})
	r.Read(readAt(0, "A", 100, 5))
	r.Read(readAt(1000, "B", 100))
	r.Add(sentBy("B", "k", 1, 1100))
	r.Read(readAt(1200, "B", 200))
	r.Read(readAt(11_100, "B", 200))
	if r.Has("k") {
		t.Error("k waits for a replica of another run")
	}
}

// A full log drops its oldest entry, wherever that is, and says up to when it cannot vouch for the
// node.
func TestReplayOverflow(t *testing.T) {
	r := newReplay(t, invalidation.ReplayConfig{Max: 3})
	if !r.Lost().IsZero() {
		t.Error("something is lost before anything was added")
	}
	r.Read(readAt(0, "A", 1))
	r.Add(sentBy("A", "void", 0, 100))
	r.Read(readAt(200, "B", 1))
	r.Add(sentBy("B", "placed", 0, 300))
	r.Read(readAt(400, "B", 2, 0))
	r.Add(sentBy("B", "open", 0, 500))
	r.Add(sentBy("B", "open", 0, 550)) // no new key
	for i, gone := range []string{"void", "placed", "open"} {
		if !r.Has(gone) {
			t.Fatalf("%s is gone too early", gone)
		}
		r.Add(sentBy("B", fmt.Sprint(i), 0, 600+i))
		if r.Has(gone) || r.Stats().Depth != 3 || r.Stats().Dropped != uint64(i+1) {
			t.Fatalf("%s has not been dropped: %+v", gone, r.Stats())
		}
	}
	lost := r.Lost()
	if !lost.Equal(at(550)) {
		t.Errorf("lost at %v, want 550 ms", lost.Sub(at(0)))
	}
	r.Add(sentBy("B", "3", 0, 700)) // drops "0", of 600
	r.Covered(lost)
	if !r.Lost().Equal(at(600)) {
		t.Errorf("lost at %v: Covered has covered what was dropped after the caller had looked", r.Lost().Sub(at(0)))
	}
	r.Add(sentBy("A", "late", 0, 590)) // void, and the oldest of all
	if r.Has("late") || !r.Lost().Equal(at(600)) {
		t.Errorf("has late %v, lost at %v; want that which is oldest to go, and 600 to stay", r.Has("late"), r.Lost().Sub(at(0)))
	}
	r.Add(sentBy("A", "late", 0, 710)) // void, and newer than others
	if !r.Has("late") || !r.Lost().Equal(at(601)) {
		t.Errorf("has late %v, lost at %v; want the one of 601 to go", r.Has("late"), r.Lost().Sub(at(0)))
	}
	r.Add(sentBy("B", "4", 0, 720))
	if !r.Has("late") || !r.Lost().Equal(at(602)) {
		t.Errorf("has late %v, lost at %v; want the one of 602 to go", r.Has("late"), r.Lost().Sub(at(0)))
	}
	r.Covered(r.Lost())
	if !r.Lost().IsZero() {
		t.Error("still lost after Covered")
	}
}
