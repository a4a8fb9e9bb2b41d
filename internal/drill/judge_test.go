// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/stalecheck"
)

const (
	ms     = time.Millisecond
	second = time.Second
)

// steady is a run in which all was well: 1,000 reads a second for 20 s, struck at 7 s, mended at 14 s; one in ten took 10 ms.
func steady() *outcome {
	o := &outcome{struck: 7 * second, healed: 14 * second, over: 20 * second, highest: 7, limit: 40, loads: map[int]int{0: 1}, ttl: 2 * second}
	for i := range 20_000 {
		s := sample{at: time.Duration(i) * ms, took: ms, rank: int32(i % 50), end: fromNode}
		if i%10 == 0 {
			s.took, s.end = 10*ms, fromLoad
		}
		o.samples = append(o.samples, s)
	}
	for i := range 201 {
		o.source = append(o.source, tick{at: time.Duration(i) * pollEvery, queries: uint64(i * 10)})
	}
	o.report = stalecheck.Report{Reads: 20_000, Rules: []stalecheck.RuleReport{{}}}
	return o
}

// each changes the samples that were due in a span.
func (o *outcome) each(from, to time.Duration, change func(i int, s *sample)) {
	for i := range in(o.samples, span{from, to}) {
		change(i, &in(o.samples, span{from, to})[i])
	}
}

// TestChecks: each criterion is met by a run in which all is well, and by none that is worse than it allows.
func TestChecks(t *testing.T) {
	for _, c := range []struct {
		name  string
		check func(*outcome) check
		make  func(o *outcome) // nil: the steady run
		want  bool
		text  string
	}{
		{"no errors", noErrors, nil, true, "0 errors of 20,000 reads"},
		{"an error", noErrors, func(o *outcome) {
			o.samples[700].end = failed
			o.errors = map[string]int{"read: broken": 1}
		}, false, "1 errors of 20,000 reads (1 times: read: broken)"},
		{"a refusal", noErrors, func(o *outcome) { o.samples[700].end = refused }, false, "1 errors of 20,000 reads (1 refused for want of room)"},
		{"a write's error", noErrors, func(o *outcome) { o.errors = map[string]int{"write: broken": 2} }, false, "0 errors of 20,000 reads and 2 of writes"},
		{"no reads", noErrors, func(o *outcome) { o.samples = nil }, false, "0 errors of 0 reads"},

		{"a refusal where that may be", onlyOverload, func(o *outcome) { o.samples[700].end = refused }, true, "1 of 20,000 reads refused, 0 other errors"},
		{"an error where refusals may be", onlyOverload, func(o *outcome) { o.samples[700].end = failed }, false, "0 of 20,000 reads refused, 1 other errors"},

		{"the first second", firstSecond, nil, true, "p99 10 ms, in the first second 10 ms (at most 60 ms)"},
		{"the first second, an operation longer", firstSecond, func(o *outcome) { o.each(7*second, 8*second, slower(60*ms)) }, true, "in the first second 60 ms (at most 60 ms)"},
		{"the first second, more than that", firstSecond, func(o *outcome) { o.each(7*second, 8*second, slower(61*ms)) }, false, "in the first second 61 ms"},
		{"the first second, without reads", firstSecond, func(o *outcome) { o.samples = o.samples[:7000] }, false, "in the first second 0"},

		{"as before", thenAsBefore, nil, true, "then 10 ms (at most 15 ms)"},
		{"half again as long", thenAsBefore, func(o *outcome) { o.each(8*second, 14*second, slower(15*ms)) }, true, "then 15 ms"},
		{"more than that", thenAsBefore, func(o *outcome) { o.each(8*second, 14*second, slower(16*ms)) }, false, "then 16 ms"},
		{"two bad windows of five", thenAsBefore, func(o *outcome) { o.each(9*second, 11*second, slower(second)) }, true, "then 10 ms"},
		{"three bad windows of five", thenAsBefore, func(o *outcome) { o.each(9*second, 12*second, slower(second)) }, false, "then 1.0 s"},
		{"two bad windows before", thenAsBefore, func(o *outcome) { o.each(3*second, 4*second, slower(second)) }, true, "then 10 ms (at most 15 ms)"},

		{"within the cap", capKept, func(o *outcome) { o.highest = 40 }, true, "database at most 40 at once (cap 40)"},
		{"above the cap", capKept, func(o *outcome) { o.highest = 41 }, false, "database at most 41 at once (cap 40)"},
		{"a database that was not asked", capKept, func(o *outcome) { o.highest = 0 }, false, "at most 0"},

		{"fresh", fresh, nil, true, "0 of 20,000 answers too old or wrong"},
		{"an answer too old", fresh, func(o *outcome) {
			o.report.Rules[0].Broken, o.report.Rules[0].Examples = 1, []string{"key 7"}
		}, false, "1 of 20,000 answers too old or wrong: key 7"},
		{"a wrong answer", fresh, func(o *outcome) { o.report.Wrong, o.report.WrongExamples = 1, []string{"key 8"} }, false, "1 of 20,000 answers too old or wrong: key 8"},
		{"nothing judged", fresh, func(o *outcome) { o.report.Reads = 0 }, false, "0 of 0"},

		{"hits back at once", hitsBack(3 * second), nil, true, "hit ratio 85.5 % again 0 after the end (at most 3.0 s)"},
		{"hits back in time", hitsBack(3 * second), func(o *outcome) { o.each(14*second, 17*second, missed) }, true, "again 3.0 s after"},
		{"hits back too late", hitsBack(2 * second), func(o *outcome) { o.each(14*second, 17*second, missed) }, false, "again 3.0 s after"},
		{"hits back for a second", hitsBack(5 * second), func(o *outcome) { o.each(14*second, 15*second, missed); o.each(16*second, 20*second, missed) }, false,
			"hit ratio not at 85.5 % again within 6.0 s: 0.0 % in the last second"},
		{"only old ones back", hitsBack(5 * second), func(o *outcome) { o.each(14*second, 20*second, old(3*second)) }, false, "not at 85.5 % again"},
		{"nothing to come back to", hitsBack(5 * second), func(o *outcome) { o.each(0, 20*second, missed) }, false, ""},

		{"at the cap's speed", atTheCap(400 * ms), nil, true, "100 queries a second (the cap's speed is 100, at least 80.0 %)"},
		{"slower than the cap", atTheCap(300 * ms), nil, false, "100 queries a second (the cap's speed is 133"},

		{"refused at once", refusedAtOnce, func(o *outcome) { o.each(9*second, 10*second, turnedAway(ms)) }, true, "half of the 1,000 refused learnt it within 1.0 ms (at most 1.0 ms)"},
		{"refused late", refusedAtOnce, func(o *outcome) { o.each(9*second, 10*second, turnedAway(ms+1)) }, false, "half of the 1,000 refused"},
		{"the machine's lateness", refusedAtOnce, func(o *outcome) {
			o.each(9*second, 10*second, func(i int, s *sample) { turnedAway(20*ms)(i, s); s.late = 20*ms - 10 })
		}, true, "within 0 us"},
		{"nobody refused", refusedAtOnce, nil, false, "half of the 0 refused"},

		{"no second wave", noSecondWave, asked(15*second, 20), true, "120 queries a second at most in the 3.0 s after the end, then 100"},
		{"a little more", noSecondWave, asked(18*second, 10), true, "then 110"},
		{"a second wave", noSecondWave, asked(18*second, 11), false, "100 queries a second at most in the 3.0 s after the end, then 111"},
		{"no wave at all", noSecondWave, func(o *outcome) { o.source = nil }, false, "0 queries"},

		{"hot keys answered", hotAnswered, nil, true, "0 of 2,400 reads of hot keys not answered"},
		{"hot keys not answered for a moment", hotAnswered, func(o *outcome) { o.each(9*second, 9*second+2*ms, refusedRead) }, true, "2 of 2,400 reads of hot keys not answered (at most 2)"},
		{"a hot key not answered", hotAnswered, func(o *outcome) { o.each(9*second, 9*second+3*ms, refusedRead) }, false, "3 of 2,400 reads"},
		{"a cold key not answered", hotAnswered, func(o *outcome) { o.samples[9040].end = failed }, true, "0 of 2,400 reads"},
		{"no reads of hot keys", hotAnswered, func(o *outcome) { o.samples = o.samples[:8010] }, false, "0 of 10 reads"},
		{"hot keys old", hotStale, func(o *outcome) { o.each(9*second, 14*second, old(3*second)) }, true, "83.3 % of them past their time, which is 2.0 s, and 3.0 s old at most"},
		{"nothing old", hotStale, nil, false, "0.0 % of them"},
		{"called old before its time", hotStale, func(o *outcome) { o.each(9*second, 14*second, old(2*second)) }, false, "2.0 s old at most"},

		{"no herd", noHerd(2), func(o *outcome) { o.loads[3] = 4 }, true, "afterwards a hot key loaded 4 times in a second at most (4)"},
		{"a herd", noHerd(2), func(o *outcome) { o.loads[3] = 5 }, false, "afterwards a hot key loaded 5 times"},
		{"nothing counted", noHerd(2), func(o *outcome) { o.loads = nil }, false, ""},

		{"a gutter", gutterHits, ofNode(1), true, "hit ratio of the dead node's keys 60.0 % in the last 10 s of 7.0 s (above 50.0 %)"},
		{"no gutter", gutterHits, func(o *outcome) { ofNode(1)(o); o.each(13*second, 14*second, missed) }, false, "hit ratio of the dead node's keys 50.0 %"},
		{"no reads of the dead node's keys", gutterHits, func(o *outcome) { o.targeted = 1 }, false, ""},
		{"connections made anew", connectAnew(600), func(o *outcome) { o.connects = 600 }, true, "600 connections made anew (at least 600)"},
		{"nothing to connect anew", connectAnew(600), func(o *outcome) { o.connects = 599 }, false, "599 connections"},

		{"even reads", evenReads, asks(0.3, 0.48), true, "node-1 gets 1.60 of its reads before (at most 1.6)"},
		{"uneven reads", evenReads, asks(0.3, 0.49), false, "node-1 gets 1.63"},
		{"no reads", evenReads, nil, false, ""},
	} {
		o := steady()
		if c.make != nil {
			c.make(o)
		}
		if got := c.check(o); got.ok != c.want || !strings.Contains(got.text, c.text) {
			t.Errorf("%s: %v, %q; want %v, %q", c.name, got.ok, got.text, c.want, c.text)
		}
	}
}

// ofNode gives half of the reads to a node, of which six in ten are hits.
func ofNode(n int) func(*outcome) {
	return func(o *outcome) {
		o.targeted = n
		o.each(0, 20*second, func(i int, s *sample) {
			if s.node = int16(i % 2); i%20 < 8 {
				s.end = fromLoad
			}
		})
	}
}

// asks lets a share of the reads be asked of node 1, another one once the node 0 is struck, and the rest of node 2.
func asks(before, struck float64) func(*outcome) {
	return func(o *outcome) {
		o.size = 3
		for i := range o.samples {
			s := &o.samples[i]
			s.from = 2
			want := before
			if s.at >= 7*second {
				want = struck
			}
			if i%100 < int(100*want) {
				s.from = 1
			}
		}
	}
}

// asked adds queries of the database at a time.
func asked(at time.Duration, n uint64) func(*outcome) {
	return func(o *outcome) {
		for i := range o.source {
			if o.source[i].at > at {
				o.source[i].queries += n
			}
		}
	}
}

func slower(d time.Duration) func(int, *sample) { return func(_ int, s *sample) { s.took = d } }

func refusedRead(_ int, s *sample) { s.end = refused }

func missed(_ int, s *sample) { s.end = fromLoad }

func turnedAway(d time.Duration) func(int, *sample) {
	return func(_ int, s *sample) { s.end, s.took = refused, d }
}

func old(age time.Duration) func(int, *sample) {
	return func(_ int, s *sample) { s.end, s.age = fromStale, age }
}

// TestWindows: those before the fault end before it, those behind it are within it, also where a run is short.
func TestWindows(t *testing.T) {
	for _, o := range []*outcome{
		{struck: 7 * second, healed: 14 * second},
		{struck: 3 * second, healed: 5 * second},
		{struck: second, healed: second + 500*ms},
	} {
		b, f, l := o.before(), o.first(), o.later()
		if len(b) != windows || b[0].from < 0 || b[windows-1].to >= o.struck {
			t.Errorf("struck at %v: before: %v", o.struck, b)
		}
		if f.from != o.struck || f.to > o.healed || f.to-f.from > second {
			t.Errorf("struck at %v: first: %v", o.struck, f)
		}
		if len(l) != windows || l[0].from != f.to || l[windows-1].to > o.healed {
			t.Errorf("healed at %v: later: %v", o.healed, l)
		}
	}
}

func TestQuantile(t *testing.T) {
	var all []sample
	if got := quantile(all, 0.99, took); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 200 {
		all = append(all, sample{took: time.Duration((i*77)%200 + 1)}) // 1 to 200, in no order
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 100, 0.99: 198, 0.995: 199, 1: 200} {
		if got := quantile(all, q, took); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}

func TestIn(t *testing.T) {
	all := []sample{{at: 1}, {at: 2}, {at: 2}, {at: 3}, {at: 5}}
	for _, c := range []struct {
		span
		want int
	}{{span{0, 9}, 5}, {span{2, 3}, 2}, {span{2, 2}, 0}, {span{3, 2}, 0}, {span{4, 5}, 0}, {span{5, 6}, 1}, {span{6, 9}, 0}} {
		if got := in(all, c.span); len(got) != c.want {
			t.Errorf("%v: %v, want %d", c.span, got, c.want)
		}
	}
}

// TestVerdict: a line fails by one check, but for those that need a quiet machine, in the short form.
func TestVerdict(t *testing.T) {
	good, bad := check{text: "good", ok: true}, check{text: "bad"}
	slow := check{text: "slow", quiet: true}
	for _, c := range []struct {
		checks       []check
		full, short  bool
		line, inFull string
	}{
		{[]check{good}, true, true, "x PASS  good", "PASS"},
		{[]check{good, slow}, false, true, "PASS  good; slow [not judged]", "FAIL  good; FAILED: slow"},
		{[]check{good, bad, slow}, false, false, "FAIL  good; FAILED: bad; slow [not judged]", "FAIL"},
		{nil, false, false, "FAIL", "FAIL"},
	} {
		v := verdict{name: "x", checks: c.checks}
		if v.passed(false) != c.full || v.passed(true) != c.short {
			t.Errorf("%v: passed: %v, %v in short", c.checks, v.passed(false), v.passed(true))
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
		if got := squeeze(v.line(true)); !strings.Contains(got, squeeze(c.line)) {
			t.Errorf("%q, want %q", got, c.line)
		}
		if got := squeeze(v.line(false)); !strings.Contains(got, squeeze(c.inFull)) {
			t.Errorf("%q, want %q", got, c.inFull)
		}
	}
}

// TestPlayedAgain: only what a busy machine may have spoilt is played again, and not for ever.
func TestPlayedAgain(t *testing.T) {
	good, bad, slow, wrong := check{ok: true}, check{}, check{quiet: true}, check{always: true}
	busy, stalled := busyAbove+1, stalledAbove+1
	for _, c := range []struct {
		name  string
		plays []verdict
		want  int
		pass  bool
	}{
		{"good", []verdict{{checks: []check{good}}}, 1, true},
		{"slow on a quiet machine", []verdict{{checks: []check{slow}, late: busyAbove, stall: stalledAbove}}, 1, false},
		{"slow on a busy one, then good", []verdict{{checks: []check{slow}, late: busy}, {checks: []check{good}}}, 2, true},
		{"slow on one that stalls, then slow on a quiet one", []verdict{{checks: []check{slow}, stall: stalled}, {checks: []check{slow}}}, 2, false},
		{"always slow on a busy one", []verdict{{checks: []check{slow}, late: busy}, {checks: []check{slow}, late: busy}, {checks: []check{slow}, late: busy}}, plays, false},
		{"bad on a busy one", []verdict{{checks: []check{bad, slow}, late: busy, stall: stalledAbove}}, 1, false},
		{"bad on one that stalls, then good", []verdict{{checks: []check{bad, slow}, stall: stalled}, {checks: []check{good}}}, 2, true},
		{"wrong on one that stalls", []verdict{{checks: []check{wrong, bad}, late: stalled, stall: stalled}}, 1, false},
	} {
		n := 0
		d := drill{own: func(context.Context, config, *drill) (verdict, error) {
			n++
			return c.plays[n-1], nil
		}}
		v, err := (&config{}).judge(t.Context(), &d)
		if err != nil || n != c.want || v.passed(false) != c.pass {
			t.Errorf("%s: played %d times, want %d; passed %v, %v", c.name, n, c.want, v.passed(false), err)
		}
	}
}

// TestFailoverChecks: each figure of the failovers has its limit.
func TestFailoverChecks(t *testing.T) {
	quick := func() *failovers {
		f := &failovers{goroutines: [2]int{100, 110}, connections: [2]int{50, 60}, reads: make([]sample, 1000)}
		for range 20 {
			f.seen = append(f.seen, followed{shelf: 300 * ms, driver: 500 * ms})
		}
		return f
	}
	for i, spoil := range []func(f *failovers){
		func(f *failovers) {
			for i := range 11 {
				f.seen[i] = followed{301 * ms, 600 * ms}
			}
		},
		func(f *failovers) {
			for i := range 11 {
				f.seen[i].driver = 499 * ms
			}
		},
		func(f *failovers) { f.reads[7].end = failed },
		func(f *failovers) { f.goroutines[1]++ },
		func(f *failovers) { f.connections[1]++ },
	} {
		f := quick()
		for _, c := range f.checks(20) {
			if !c.ok {
				t.Errorf("a good run fails: %s", c.text)
			}
		}
		spoil(f)
		for j, c := range f.checks(20) {
			if c.ok == (i == j) {
				t.Errorf("spoilt in %d: check %d is %v: %s", i, j, c.ok, c.text)
			}
		}
	}
	if f := quick(); f.checks(21)[0].ok {
		t.Error("a failover that is missing passes")
	}
	if f := quick(); (func() bool { f.reads = nil; return f.checks(20)[2].ok })() {
		t.Error("without reads it passes")
	}
}

// TestNothingSeen: a run that was too short to see anything meets no criterion, and no judge breaks.
func TestNothingSeen(t *testing.T) {
	for _, o := range []*outcome{{}, {struck: second, healed: second, over: second}, {struck: second, healed: 2 * second, over: 2*second + ms}} {
		for _, d := range drills() {
			for i, f := range d.checks {
				if c := f(o); c.ok {
					t.Errorf("%s: check %d is met by nothing: %s", d.name, i, c.text)
				}
			}
		}
	}
}
