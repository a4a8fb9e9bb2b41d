// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// RB-12: processes whose wall clocks are wrong, by minutes and by an hour, at one real node. Ages, soft and hard expiry follow the node's clock, L1 follows
// elapsed time: every process must see the same.

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/internal/skew"
)

// clockSlack is what the ages of two processes may differ by: the error of each one's estimate of the node's clock (half a round trip), and what
// a busy machine puts between reading a clock and using it. It is small against the skews.
const clockSlack = 250 * time.Millisecond

// skews are the offsets of the processes' wall clocks.
var skews = []time.Duration{-5 * time.Minute, 0, 5 * time.Minute, time.Hour}

// wrongClocks are processes at one node, by the offset of their wall clock.
type wrongClocks map[time.Duration]*skew.Process

func startWrongClocks(t *testing.T, program string, server *redistest.Server, s skew.Setup, offsets ...time.Duration) wrongClocks {
	t.Helper()
	processes := make(wrongClocks)
	s.Addr = server.Addr()
	for _, offset := range offsets {
		s.Value = "by " + offset.String()
		processes[offset] = skew.Start(t, program, offset, s)
		r := processes.want(t, offset, skew.Order{Op: "clock"})
		if got := time.Until(r.Wall); (got - offset).Abs() > time.Second {
			t.Fatalf("the wall clock of this process is off by %v, want %v", got, offset)
		}
		if (r.Offset + offset).Abs() > time.Second { // all on one machine: what the node is ahead is what the process is behind
			t.Errorf("its clock is off by %v, and it takes the node's to be ahead by %v", offset, r.Offset)
		}
	}
	return processes
}

// want gives an order that must succeed.
func (c wrongClocks) want(t *testing.T, offset time.Duration, o skew.Order) skew.Report {
	t.Helper()
	r, err := c[offset].Do(o)
	if err != nil || r.Err != "" {
		t.Fatalf("%+v by the process that is off by %v: %s, %v", o, offset, r.Err, err)
	}
	return r
}

// elapsed is a span of true time of which the beginning and the end are known only as moments between two.
type elapsed struct{ after, before time.Time }

// during runs f and returns between which moments it ran.
func during(f func()) elapsed {
	e := elapsed{after: time.Now()}
	f()
	e.before = time.Now()
	return e
}

// to checks an age: what began in e was looked at in end.
func (e elapsed) to(t *testing.T, end elapsed, what string, age time.Duration) {
	t.Helper()
	least, most := end.after.Sub(e.before)-clockSlack, end.before.Sub(e.after)+clockSlack
	if age < least || age > most {
		t.Errorf("%s: the age is %v, want %v to %v", what, age, least, most)
	}
}

func TestRB12_WrongClocks(t *testing.T) {
	program := skew.Build(t, "../internal/skew/wrongclock")
	for name, test := range map[string]func(*testing.T, string){
		"ages and hard expiry": agesAndHardExpiry,
		"soft expiry":          softExpiryWithWrongClocks,
		"in process":           l1WhileTheClockIsSet,
		"two seconds ahead":    twoSecondsAhead,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			test(t, program)
		})
	}
}

// agesAndHardExpiry: whoever wrote an entry, whoever reads it sees its true age, and it is gone after TTL: no clock that is ahead makes an entry
// immortal, none that is behind makes it stillborn.
func agesAndHardExpiry(t *testing.T, program string) {
	const ttl = 5 * time.Second
	server := redistest.Start(t, redistest.Config{})
	processes := startWrongClocks(t, program, server, skew.Setup{Name: "x", TTL: ttl}, skews...)
	key := func(writer, reader time.Duration) string { return fmt.Sprint(writer, " for ", reader) } // one each, since a reader that misses stores
	written := make(map[string]elapsed)
	for _, w := range skews {
		for _, r := range skews {
			written[key(w, r)] = during(func() {
				if got := processes.want(t, w, skew.Order{Op: "get", Key: key(w, r)}); got.Layer != "source" {
					t.Errorf("a key that is not there came from %s", got.Layer)
				}
			})
			left, err := server.Client().PTTL(t.Context(), "x:"+key(w, r)+":v0").Result()
			if err != nil || left <= 0 || left > ttl {
				t.Errorf("written by the one that is off by %v: it lives %v on the node (%v), want at most %v", w, left, err, ttl)
			}
		}
	}
	time.Sleep(time.Second)
	for _, w := range skews {
		for _, r := range skews {
			var got skew.Report
			read := during(func() { got = processes.want(t, r, skew.Order{Op: "get", Key: key(w, r)}) })
			what := fmt.Sprintf("writer off by %v, reader by %v", w, r)
			if got.Layer != "L2" || got.Value != "by "+w.String() || got.Stale {
				t.Errorf("%s, after 1s of %v: %+v", what, ttl, got)
			}
			written[key(w, r)].to(t, read, what, got.Age)
		}
	}
	last := written[key(skews[len(skews)-1], skews[len(skews)-1])]
	time.Sleep(time.Until(last.before.Add(ttl)))
	for _, w := range skews {
		for _, r := range skews {
			if got := processes.want(t, r, skew.Order{Op: "get", Key: key(w, r)}); got.Layer != "source" || got.Value != "by "+r.String() {
				t.Errorf("writer off by %v, reader by %v, after its TTL: %q from %s", w, r, got.Value, got.Layer)
			}
		}
	}
}

// softExpiryWithWrongClocks: all readers find an entry past its soft TTL at the same age, and one of them is elected to refresh it.
func softExpiryWithWrongClocks(t *testing.T, program string) {
	const soft = 1500 * time.Millisecond
	server := redistest.Start(t, redistest.Config{})
	processes := startWrongClocks(t, program, server, skew.Setup{Name: "x", TTL: time.Minute, SoftTTL: soft}, skews...)
	loads := func() (n uint64) {
		for offset := range processes {
			n += processes.want(t, offset, skew.Order{Op: "clock", Hang: true}).Loads
		}
		return n
	}
	for _, w := range skews {
		key := "written by " + w.String()
		written := during(func() { processes.want(t, w, skew.Order{Op: "get", Key: key}) })
		before := loads()
		var wg sync.WaitGroup
		for offset, p := range processes {
			wg.Go(func() {
				var r skew.Report
				var err error
				looked := during(func() { r, err = p.Do(skew.Order{Op: "until stale", Key: key, Hang: true}) }) // the refresh hangs: all look at one entry
				what := fmt.Sprintf("writer off by %v, reader by %v", w, offset)
				if err != nil || r.Err != "" || r.Value != "by "+w.String() {
					t.Errorf("%s: %+v, %v", what, r, err)
				}
				if r.LastFresh >= soft || r.Age < soft || (r.LastFresh == 0 && looked.after.Sub(written.after) < soft/2) {
					t.Errorf("%s: fresh at %v, stale at %v; the soft TTL is %v", what, r.LastFresh, r.Age, soft)
				}
				if least := looked.before.Sub(written.before) + clockSlack; least < soft {
					t.Errorf("%s: stale after %v, the soft TTL is %v", what, least, soft)
				}
				if most := looked.before.Sub(written.after) - time.Second; most > soft {
					t.Errorf("%s: stale only after %v, the soft TTL is %v", what, most, soft)
				}
			})
		}
		wg.Wait()
		for end := time.Now().Add(2 * time.Second); loads() == before && time.Now().Before(end); { // it begins behind the reader's back
			time.Sleep(5 * time.Millisecond)
		}
		if n := loads() - before; n != 1 {
			t.Errorf("writer off by %v: %d refreshes, want one in the whole fleet", w, n)
		}
	}
}

// l1WhileTheClockIsSet: a copy in process ends by elapsed time, whatever happens to the wall clock; and the node's clock is known as before.
func l1WhileTheClockIsSet(t *testing.T, program string) {
	const l1TTL = 2 * time.Second // the default
	server := redistest.Start(t, redistest.Config{})
	setup := skew.Setup{Name: "x", TTL: time.Minute, L1: true}
	for _, offset := range []time.Duration{0, 5 * time.Minute} {
		for _, step := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprint(offset, " then ", step), func(t *testing.T) {
				t.Parallel()
				p := startWrongClocks(t, program, server, setup, offset)
				get := func() (r skew.Report, at elapsed) {
					at = during(func() { r = p.want(t, offset, skew.Order{Op: "get", Key: t.Name()}) })
					return r, at
				}
				_, loaded := get()
				p.want(t, offset, skew.Order{Op: "step", By: offset + step})
				r, at := get()
				if at.before.Sub(loaded.after) < l1TTL && r.Layer != "L1" {
					t.Errorf("after the clock was set by %v: from %s, want L1", step, r.Layer)
				}
				loaded.to(t, at, "in process, after the clock was set", r.Age)
				if want := -(offset + step); (r.Offset - want).Abs() > time.Second {
					t.Errorf("the node's clock is taken to be ahead by %v, want %v", r.Offset, want)
				}
				time.Sleep(time.Until(loaded.before.Add(l1TTL)))
				r, at = get()
				if r.Layer != "L2" {
					t.Errorf("%v after it came into L1: from %s, want L2", l1TTL, r.Layer)
				}
				loaded.to(t, at, "on the node, after the clock was set", r.Age)
			})
		}
	}
}

// twoSecondsAhead: a small difference is no reason to load again, or never: a thousand reads of an entry whose writer's clock is ahead of the readers', or behind, are
// a thousand hits and one load.
func twoSecondsAhead(t *testing.T, program string) {
	server := redistest.Start(t, redistest.Config{})
	offsets := []time.Duration{0, 2 * time.Second}
	processes := startWrongClocks(t, program, server, skew.Setup{Name: "x", TTL: time.Minute}, offsets...)
	for i, writer := range offsets {
		reader := offsets[1-i]
		key := writer.String()
		loads := processes.want(t, writer, skew.Order{Op: "get", Key: key}).Loads
		r := processes.want(t, reader, skew.Order{Op: "get", Key: key, Times: 1000, Over: time.Second})
		if r.Layers["L2"] != 1000 || r.Value != "by "+writer.String() {
			t.Errorf("writer off by %v, reader by %v: %v, %q", writer, reader, r.Layers, r.Value)
		}
		if n := processes.want(t, writer, skew.Order{Op: "clock"}).Loads - loads + r.Loads; n != uint64(i) { // the reader of the second turn has loaded the first key
			t.Errorf("writer off by %v, reader by %v: %d more loads, want none", writer, reader, n-uint64(i))
		}
	}
}
