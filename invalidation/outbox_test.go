// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// at is a moment so many milliseconds after an arbitrary one.
func at(ms int) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

func newOutbox(tb testing.TB, config invalidation.OutboxConfig) *invalidation.Outbox {
	tb.Helper()
	o, err := invalidation.NewOutbox(config)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func putFailed(tb testing.TB, o *invalidation.Outbox, name string, node int, version uint64, now time.Time) {
	tb.Helper()
	if err := o.Put(name, node, version, now); err != nil {
		tb.Fatal(err)
	}
}

// wantDue asks for a batch and checks its names.
func wantDue(tb testing.TB, o *invalidation.Outbox, now time.Time, most int, want ...string) []invalidation.Pending {
	tb.Helper()
	batch := o.Due(now, most)
	var got []string
	for _, p := range batch {
		got = append(got, p.Name)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		tb.Fatalf("due: %v, want %v", got, want)
	}
	return batch
}

func TestOutboxConfig(t *testing.T) {
	for _, c := range []struct {
		config invalidation.OutboxConfig
		names  string
	}{
		{invalidation.OutboxConfig{Max: -1}, "Max is -1"},
		{invalidation.OutboxConfig{MinBackoff: -time.Second}, "MinBackoff is -1s"},
		{invalidation.OutboxConfig{MaxBackoff: -time.Second}, "MaxBackoff is -1s"},
		{invalidation.OutboxConfig{MinBackoff: 11 * time.Second}, "MaxBackoff is 10s: must not be below MinBackoff (11s)"},
	} {
		if _, err := invalidation.NewOutbox(c.config); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%+v: error %v, want one with %q", c.config, err, c.names)
		}
	}
}

func TestOutboxMerges(t *testing.T) {
	o := newOutbox(t, invalidation.OutboxConfig{})
	putFailed(t, o, "k", 1, 7, at(0))
	putFailed(t, o, "k", 1, 9, at(10))
	putFailed(t, o, "k", 1, 0, at(20)) // an invalidation without a version keeps the one that is known
	if st := o.Stats(); st.Depth != 1 || !st.Oldest.Equal(at(0)) {
		t.Errorf("stats %+v, want one entry since 0", st)
	}
	p := wantDue(t, o, at(100), 10, "k")[0]
	if p.Version != 9 || !p.Since.Equal(at(0)) || p.Node != 1 {
		t.Errorf("pending %+v, want version 9 of node 1 since 0", p)
	}
	if !o.Has("k") || o.Has("other") {
		t.Error("Has: want k, while its attempt is under way, and nothing else")
	}
	o.Done(p)
	if o.Has("k") || o.Stats().Depth != 0 || o.Stats().Done != 1 {
		t.Errorf("after Done: has %v, %+v", o.Has("k"), o.Stats())
	}
}

// Full is an error that names key, node and bound; keys that are in already still merge.
func TestOutboxFull(t *testing.T) {
	o := newOutbox(t, invalidation.OutboxConfig{Max: 2})
	putFailed(t, o, "a", 0, 1, at(0))
	putFailed(t, o, "b", 0, 1, at(0))
	err := o.Put("c", 3, 1, at(0))
	if !errors.Is(err, invalidation.ErrOutboxFull) || !strings.Contains(err.Error(), `it holds 2 keys, no place for "c" of node 3`) {
		t.Errorf("the third key: %v", err)
	}
	putFailed(t, o, "a", 0, 5, at(0))
	if o.Has("c") || o.Stats().Full != 1 || o.Stats().Depth != 2 {
		t.Errorf("has c %v, %+v", o.Has("c"), o.Stats())
	}
	if p := wantDue(t, o, at(100), 10, "a", "b")[0]; p.Version != 5 {
		t.Errorf("a was merged into version %d, want 5", p.Version)
	} else {
		o.Done(p)
	}
	putFailed(t, o, "c", 3, 1, at(100))
}

// A node's keys wait for the node: the pauses are those of one key, whatever the number of keys.
func TestOutboxBackoffIsTheNodes(t *testing.T) {
	o := newOutbox(t, invalidation.OutboxConfig{})
	const keys = 10_000
	for i := range keys {
		putFailed(t, o, fmt.Sprint("k", i), 4, 0, at(0))
	}
	now, sent := at(0), 0
	for i, pause := range []int{100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000} {
		if b := o.Due(now.Add(time.Duration(pause)*time.Millisecond-1), 1000); b != nil {
			t.Fatalf("attempt %d came before %d ms", i, pause)
		}
		now = now.Add(time.Duration(pause) * time.Millisecond)
		if next, ok := o.Next(); !ok || !next.Equal(now) {
			t.Fatalf("attempt %d: next %v %v, want %v", i, next, ok, now)
		}
		probe := o.Due(now, 1000)
		if len(probe) != 16 {
			t.Fatalf("attempt %d sends %d keys, want a probe of 16", i, len(probe))
		}
		sent += len(probe)
		if b := o.Due(now.Add(time.Hour), 1000); b != nil {
			t.Fatal("a second batch while the first is out")
		}
		if _, ok := o.Next(); ok {
			t.Fatal("a next batch while the first is out")
		}
		for _, p := range probe {
			o.Failed(p, now, 1) // a draw of 1 stands for the longest pause
		}
	}
	if st := o.Stats(); st.Attempts != uint64(sent) || sent != 9*16 || st.Depth != keys || st.InFlight != 0 {
		t.Fatalf("stats %+v after %d attempts at keys", st, sent)
	}

	now = now.Add(10 * time.Second)
	for _, p := range o.Due(now, 1000) {
		o.Done(p)
	}
	rest := keys - 16 // goes at once, without a pause
	for rest > 0 {
		batch := o.Due(now, 1000)
		if len(batch) != min(1000, rest) {
			t.Fatalf("the rest goes in a batch of %d, want %d", len(batch), min(1000, rest))
		}
		rest -= len(batch)
		for _, p := range batch {
			o.Done(p)
		}
	}
	if st := o.Stats(); st.Depth != 0 || st.Done != keys || !st.Oldest.IsZero() {
		t.Errorf("at the end %+v", st)
	}
	if _, ok := o.Next(); ok {
		t.Error("something is due in an empty outbox")
	}
}

// The jitter takes between nothing and half of the pause.
func TestOutboxJitter(t *testing.T) {
	for _, c := range []struct {
		draw float64
		want time.Duration
	}{{0, 100 * time.Millisecond}, {0.5, 150 * time.Millisecond}, {1, 200 * time.Millisecond}} {
		o := newOutbox(t, invalidation.OutboxConfig{})
		putFailed(t, o, "k", 0, 0, at(0))
		o.Failed(wantDue(t, o, at(100), 1, "k")[0], at(150), c.draw)
		if next, _ := o.Next(); next.Sub(at(150)) != c.want {
			t.Errorf("draw %v: a pause of %v, want %v", c.draw, next.Sub(at(150)), c.want)
		}
	}
}

// One node's trouble is no other's, and nodes that are due take turns.
func TestOutboxNodesAreApart(t *testing.T) {
	o := newOutbox(t, invalidation.OutboxConfig{})
	for i := range 3 {
		putFailed(t, o, fmt.Sprint("a", i), 1, 0, at(0))
		putFailed(t, o, fmt.Sprint("b", i), 2, 0, at(0))
		putFailed(t, o, fmt.Sprint("c", i), 3, 0, at(0))
	}
	a := wantDue(t, o, at(100), 1, "a0")[0]
	b := wantDue(t, o, at(100), 1, "b0")[0]
	o.Failed(a, at(100), 1)
	o.Done(b)
	o.Done(wantDue(t, o, at(100), 1, "c0")[0]) // before node 2's next
	o.Done(wantDue(t, o, at(100), 1, "b1")[0])
	o.Done(wantDue(t, o, at(100), 1, "c1")[0])
	o.Done(wantDue(t, o, at(100), 1, "b2")[0])
	o.Done(wantDue(t, o, at(100), 1, "c2")[0])
	wantDue(t, o, at(299), 1)
	wantDue(t, o, at(300), 3, "a1", "a2", "a0") // the one that failed went to the end
	wantDue(t, o, at(300), 0)
}

// A batch with both outcomes: the node is up, one key is not. The back-off begins anew, in whatever
// order the outcomes come, and the key goes to the end.
func TestOutboxMixedBatch(t *testing.T) {
	for _, failFirst := range []bool{true, false} {
		o := newOutbox(t, invalidation.OutboxConfig{})
		for _, name := range []string{"bad", "a", "b"} {
			putFailed(t, o, name, 0, 0, at(0))
		}
		now := at(100)
		for i := range 3 { // three failures in a row: the next pause would be 1.6 s
			for _, p := range o.Due(now, 1) {
				o.Failed(p, now, 1)
			}
			now = now.Add(100 << (i + 1) * time.Millisecond)
		}
		batch := wantDue(t, o, now, 2, "bad", "a")
		if failFirst {
			o.Failed(batch[0], now, 1)
			o.Done(batch[1])
		} else {
			o.Done(batch[1])
			o.Failed(batch[0], now, 1)
		}
		if next, _ := o.Next(); next.Sub(now) != 100*time.Millisecond {
			t.Errorf("fail first %v: a pause of %v after a batch that got partly through, want 100ms", failFirst, next.Sub(now))
		}
		wantDue(t, o, now.Add(100*time.Millisecond), 9, "b", "bad")
	}
}

// The pause of a batch counts from the last of its failures.
func TestOutboxPauseFromLastFailure(t *testing.T) {
	o := newOutbox(t, invalidation.OutboxConfig{})
	putFailed(t, o, "a", 0, 0, at(0))
	putFailed(t, o, "b", 0, 0, at(0))
	batch := wantDue(t, o, at(100), 2, "a", "b")
	o.Failed(batch[0], at(150), 1)
	o.Failed(batch[1], at(120), 1)
	if next, _ := o.Next(); !next.Equal(at(350)) {
		t.Errorf("next at %v, want 350 ms", next.Sub(at(0)))
	}
}

// Wake makes a probe due at once; also when a batch is out that may have been sent before the node
// was back.
func TestOutboxWake(t *testing.T) {
	o := newOutbox(t, invalidation.OutboxConfig{})
	for i := range 40 {
		putFailed(t, o, fmt.Sprint(i), 0, 0, at(0))
	}
	o.Wake(7, at(1)) // has no keys
	wantDue(t, o, at(1), 99)
	o.Wake(0, at(1))
	batch := o.Due(at(1), 99)
	if len(batch) != 16 {
		t.Fatalf("a batch of %d after Wake, want a probe of 16", len(batch))
	}
	o.Wake(0, at(2))
	for _, p := range batch {
		o.Failed(p, at(30), 1)
	}
	if next, _ := o.Next(); !next.Equal(at(30)) {
		t.Fatalf("next at %v, want at once: the batch was sent before the node woke", next.Sub(at(0)))
	}
	for _, p := range o.Due(at(30), 99) {
		o.Failed(p, at(30), 1)
	}
	if next, _ := o.Next(); !next.Equal(at(430)) {
		t.Errorf("next at %v, want 430 ms: Wake was no proof, the third failure counts", next.Sub(at(0)))
	}
	o.Wake(0, at(500)) // must not put off what is due already
	if next, _ := o.Next(); !next.Equal(at(430)) {
		t.Errorf("Wake moved the next batch to %v", next.Sub(at(0)))
	}
}

// A key that fails at a second node moves there, and counts as a success of the first.
func TestOutboxKeyMoves(t *testing.T) {
	o := newOutbox(t, invalidation.OutboxConfig{})
	putFailed(t, o, "k", 1, 3, at(0))
	putFailed(t, o, "l", 1, 0, at(0))
	p := wantDue(t, o, at(100), 1, "k")[0]
	putFailed(t, o, "k", 2, 0, at(110))
	o.Done(p)
	if !o.Has("k") || o.Stats().Done != 0 {
		t.Fatal("k has left the outbox although it was put again")
	}
	if next, _ := o.Next(); next.After(at(110)) {
		t.Error("node 1 is made to wait for node 2's failure")
	}
	o.Done(wantDue(t, o, at(110), 9, "l")[0])
	p = wantDue(t, o, at(210), 9, "k")[0] // 100 ms after the failure at node 2
	if p.Node != 2 || p.Version != 3 || !p.Since.Equal(at(0)) {
		t.Errorf("%+v, want node 2, version 3, since 0", p)
	}
	o.Done(p)

	putFailed(t, o, "m", 1, 0, at(300))
	putFailed(t, o, "m", 2, 0, at(350)) // while no attempt is under way
	wantDue(t, o, at(449), 9)
	if p := wantDue(t, o, at(450), 9, "m")[0]; p.Node != 2 {
		t.Errorf("m waits for node %d, want 2", p.Node)
	}
}

// A report that comes twice, or about an attempt from before, changes nothing.
func TestOutboxOldReports(t *testing.T) {
	o := newOutbox(t, invalidation.OutboxConfig{})
	putFailed(t, o, "k", 0, 0, at(0))
	first := wantDue(t, o, at(100), 1, "k")[0]
	o.Failed(first, at(100), 1)
	o.Failed(first, at(100), 1)
	o.Done(first)
	o.Done(invalidation.Pending{Name: "k"})
	if next, _ := o.Next(); !o.Has("k") || !next.Equal(at(300)) {
		t.Errorf("has %v, next at %v; want it there, at 300 ms", o.Has("k"), next.Sub(at(0)))
	}
	second := wantDue(t, o, at(300), 1, "k")[0]
	if all := o.Drain(); len(all) != 1 || all[0].Name != "k" {
		t.Errorf("drained %v, want k, whose attempt is under way", all)
	}
	putFailed(t, o, "k", 0, 0, at(400))
	o.Done(second)
	o.Failed(second, at(400), 1)
	if st := o.Stats(); !o.Has("k") || st.Depth != 1 || st.InFlight != 0 {
		t.Errorf("has %v, %+v after a report from before Drain", o.Has("k"), st)
	}
	o.Done(wantDue(t, o, at(500), 1, "k")[0])
}

// RB-25: what a Close cannot send it can name: all keys, the oldest first.
func TestRB25OutboxDrain(t *testing.T) {
	o := newOutbox(t, invalidation.OutboxConfig{})
	for i := range 500 {
		putFailed(t, o, fmt.Sprint(i), i%3, uint64(i), at(i))
	}
	o.Due(at(1000), 64)
	all := o.Drain()
	if len(all) != 500 {
		t.Fatalf("%d of 500 are reported", len(all))
	}
	for i, p := range all {
		if p.Name != fmt.Sprint(i) || p.Version != uint64(i) || p.Node != i%3 || !p.Since.Equal(at(i)) {
			t.Fatalf("the %dth is %+v", i, p)
		}
	}
	if st := o.Stats(); st.Depth != 0 || st.InFlight != 0 || o.Has("7") || o.Due(at(9999), 9) != nil {
		t.Errorf("after Drain: %+v", st)
	}
}
