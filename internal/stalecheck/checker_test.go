// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/stalecheck"
)

func check(t *testing.T, s *sim) stalecheck.Report {
	t.Helper()
	c, err := stalecheck.New(stalecheck.Config{Processes: simProcs, Rules: simRules()})
	if err != nil {
		t.Fatal(err)
	}
	for p := range s.batches {
		if err := c.Add(p, s.batches[p]); err != nil {
			t.Fatal(err)
		}
	}
	return c.Finish()
}

const simSteps = 25_000 // 25 s

// TestGoodCachesPass: caches that keep the promises are clean, whatever the order of their steps.
func TestGoodCachesPass(t *testing.T) {
	for name, b := range map[string]broken{
		"all is well":                          {},
		"invalidations fail and say so":        {unconfirmed: true},
		"the source lags and versions show it": {lagging: true},
	} {
		var pushed uint64
		for seed := range uint64(6) {
			r := check(t, simulate(seed, b, simSteps))
			if faults := r.Faults(); len(faults) > 0 {
				t.Fatalf("%s, seed %d:\n%s\n%s", name, seed, strings.Join(faults, "\n"), r.Table())
			}
			for i := range r.Rules {
				if r.Rules[i].Near < 100 {
					t.Errorf("%s, seed %d: %s has seen %d reads near a write only", name, seed, r.Rules[i].Name, r.Rules[i].Near)
				}
			}
			pushed += r.Rules[2].Stale[0]
		}
		if pushed == 0 {
			t.Errorf("%s: a push takes time, and no read was stale for it", name)
		}
	}
}

// TestBrokenGuardsAreFound: without one of its guards a cache never passes, and the rules that stand on the guard are broken.
func TestBrokenGuardsAreFound(t *testing.T) {
	cases := []struct {
		name  string
		b     broken
		rules []string
	}{
		{"a fill without its lease", broken{lease: true, version: true}, []string{"P1"}},
		{"L1 without tickets", broken{ticket: true}, []string{"P2", "P3 push"}},
		{"an invalidation that forgets the own L1", broken{ownL1: true}, []string{"P2"}},
		{"lost pushes", broken{push: true}, []string{"P3 push"}},
		{"blind copies that live on", broken{blindTTL: true}, []string{"P3 blind"}},
		{"no TTL, and invalidations that fail", broken{ttl: true, unconfirmed: true}, []string{"TTL"}},
		{"negative entries that survive", broken{negative: true}, []string{"P1"}},
		{"invalidation before the write", broken{order: true}, []string{"P1"}},
		{"a source that lags, without versions", broken{version: true}, []string{"P1"}},
		{"another key's value", broken{alien: true}, nil},
	}
	for _, c := range cases {
		found := make(map[string]uint64)
		for seed := range uint64(3) {
			r := check(t, simulate(seed, c.b, simSteps))
			if len(r.Faults()) == 0 {
				t.Errorf("%s, seed %d: passed\n%s", c.name, seed, r.Table())
			}
			if c.b.alien != (r.Wrong > 0) {
				t.Errorf("%s, seed %d: %d values were wrong", c.name, seed, r.Wrong)
			}
			for i := range r.Rules {
				rule := &r.Rules[i]
				found[rule.Name] += rule.Broken
				if rule.Broken > 0 && len(rule.Examples) == 0 {
					t.Errorf("%s, seed %d: %s is broken, without an example", c.name, seed, rule.Name)
				}
			}
		}
		for _, rule := range c.rules {
			if found[rule] == 0 {
				t.Errorf("%s: %s was not found broken, of %v", c.name, rule, found)
			}
		}
	}
}

// TestStreamIsTheWhole: in whatever pieces the processes report, the result is that of all at once.
func TestStreamIsTheWhole(t *testing.T) {
	for seed := range uint64(5) {
		s := simulate(seed, broken{ticket: true, ownL1: true, unconfirmed: true}, simSteps/2)
		want := check(t, s)
		c, err := stalecheck.New(stalecheck.Config{Processes: simProcs, Rules: simRules()})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		// Each process reports at times of its own, and promises no more than it can.
		at := [simProcs]time.Duration{}
		for !slices.Equal(at[:], []time.Duration{s.now, s.now, s.now}) {
			p := rng.IntN(simProcs)
			from := at[p]
			at[p] = min(s.now, from+time.Duration(rng.IntN(int(time.Second))))
			if err := c.Add(p, reported(&s.batches[p], from, at[p], at[p] == s.now)); err != nil {
				t.Fatal(err)
			}
		}
		got := c.Finish()
		for i := range got.Rules { // examples come in another order, and functions do not compare
			got.Rules[i].Examples, want.Rules[i].Examples = nil, nil
			got.Rules[i].Covers, want.Rules[i].Covers = nil, nil
			clearBack(&got.Rules[i])
			clearBack(&want.Rules[i])
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("seed %d: in pieces\n%s\nat once\n%s", seed, got.Table(), want.Table())
		}
	}
}

// clearBack: which reads had already been judged when another one is, is not the same.
func clearBack(r *stalecheck.RuleReport) {
	r.Back = 0
	for k, t := range r.Phases {
		t.Back = 0
		r.Phases[k] = t
	}
}

// reported is what a process reports at to, having reported before at from: what has ended in between, and the promise that nothing is missing which
// began before the oldest that is still under way.
func reported(all *stalecheck.Batch, from, to time.Duration, last bool) stalecheck.Batch {
	b := stalecheck.Batch{Upto: to}
	in := func(began, ended time.Duration) bool {
		if ended > to && !last {
			if began <= to {
				b.Upto = min(b.Upto, began)
			}
			return false
		}
		return ended > from
	}
	for _, w := range all.Writes {
		if in(w.Began, w.Committed) {
			b.Writes = append(b.Writes, w)
		}
	}
	for _, i := range all.Invalidations {
		if in(i.Began, i.Returned) {
			b.Invalidations = append(b.Invalidations, i)
		}
	}
	for _, r := range all.Reads {
		if in(r.Began, r.Ended) {
			b.Reads = append(b.Reads, r)
		}
	}
	if last {
		b.Upto = stalecheck.Forever
	}
	return b
}

// TestEdges: short histories whose verdict is known.
func TestEdges(t *testing.T) {
	const ms = time.Millisecond
	w := func(version uint64, began, committed time.Duration) stalecheck.Write {
		return stalecheck.Write{Key: "k", Version: version, Value: version, Began: began, Committed: committed}
	}
	gone := func(version uint64, began, committed time.Duration) stalecheck.Write {
		return stalecheck.Write{Key: "k", Version: version, Value: version, Absent: true, Began: began, Committed: committed}
	}
	inv := func(began, returned time.Duration) stalecheck.Invalidation {
		return stalecheck.Invalidation{Keys: []string{"k"}, Began: began, Returned: returned}
	}
	read := func(version uint64, began, ended time.Duration) stalecheck.Read {
		return stalecheck.Read{Key: "k", Version: version, Value: version, Layer: stalecheck.L2, Began: began, Ended: ended}
	}
	type batch = stalecheck.Batch
	two := []stalecheck.Write{w(1, 1, 2), w(2, 100*ms, 110*ms)}
	cases := []struct {
		name  string
		a, b  batch  // what processes 0 and 1 did
		stale string // by rule: any, own, committed, each as the time by which the stalest was stale
		wrong uint64
	}{
		{"old, begun before the invalidation returned", batch{Writes: two, Invalidations: []stalecheck.Invalidation{inv(110*ms, 120*ms)}},
			batch{Reads: []stalecheck.Read{read(1, 119*ms, 500*ms)}}, "0s 0s 9ms", 0},
		{"old, begun at the very moment", batch{Writes: two, Invalidations: []stalecheck.Invalidation{inv(110*ms, 120*ms)}},
			batch{Reads: []stalecheck.Read{read(1, 120*ms, 500*ms)}}, "0s 0s 10ms", 0},
		{"old, begun after it", batch{Writes: two, Invalidations: []stalecheck.Invalidation{inv(110*ms, 120*ms)}},
			batch{Reads: []stalecheck.Read{read(1, 123*ms, 500*ms)}}, "3ms 0s 13ms", 0},
		{"the same in the writing process", batch{Writes: two, Invalidations: []stalecheck.Invalidation{inv(110*ms, 120*ms)}, Reads: []stalecheck.Read{read(1, 123*ms, 500*ms)}},
			batch{}, "3ms 3ms 13ms", 0},
		{"new, before anything was invalidated", batch{Writes: two, Invalidations: []stalecheck.Invalidation{inv(110*ms, 120*ms)}},
			batch{Reads: []stalecheck.Read{read(2, 101*ms, 102*ms)}}, "0s 0s 0s", 0},
		{"an invalidation that began before the commit", batch{Writes: two, Invalidations: []stalecheck.Invalidation{inv(109*ms, 120*ms)}},
			batch{Reads: []stalecheck.Read{read(1, 500*ms, 501*ms)}}, "0s 0s 390ms", 0},
		{"an invalidation that failed", batch{Writes: two, Invalidations: []stalecheck.Invalidation{{Keys: []string{"k"}, Failed: true, Began: 110 * ms, Returned: 120 * ms}}},
			batch{Reads: []stalecheck.Read{read(1, 500*ms, 501*ms)}}, "0s 0s 390ms", 0},
		{"one that failed and was repeated", batch{Writes: two, Invalidations: []stalecheck.Invalidation{{Keys: []string{"k"}, Failed: true, Began: 110 * ms, Returned: 120 * ms}, inv(300*ms, 400*ms)}},
			batch{Reads: []stalecheck.Read{read(1, 399*ms, 501*ms), read(1, 450*ms, 451*ms)}}, "50ms 0s 340ms", 0},
		{"another process's invalidation", batch{Writes: two},
			batch{Invalidations: []stalecheck.Invalidation{inv(200*ms, 210*ms)}, Reads: []stalecheck.Read{read(1, 211*ms, 212*ms)}}, "1ms 1ms 101ms", 0},
		{"by prefix", batch{Writes: two, Invalidations: []stalecheck.Invalidation{{Prefix: "k", Began: 110 * ms, Returned: 120 * ms}, {Prefix: "x", Began: 110 * ms, Returned: 112 * ms}}},
			batch{Reads: []stalecheck.Read{read(1, 123*ms, 500*ms)}}, "3ms 0s 13ms", 0},
		{"writes that overlap: either", batch{Writes: append(two, w(3, 101*ms, 111*ms)), Invalidations: []stalecheck.Invalidation{inv(112*ms, 300*ms)}},
			batch{Reads: []stalecheck.Read{read(2, 200*ms, 201*ms), read(3, 200*ms, 201*ms), read(2, 290*ms, 291*ms)}}, "0s 0s 179ms", 0},
		{"a write-through covers its own row and no later one",
			batch{Writes: append(two, w(3, 101*ms, 111*ms)), Invalidations: []stalecheck.Invalidation{{Keys: []string{"k"}, UpTo: 2, Began: 130 * ms, Returned: 140 * ms}}},
			batch{Reads: []stalecheck.Read{read(2, 200*ms, 201*ms)}}, "0s 0s 89ms", 0},
		{"and those before it",
			batch{Writes: append(two, w(3, 101*ms, 111*ms)), Invalidations: []stalecheck.Invalidation{{Keys: []string{"k"}, UpTo: 2, Began: 130 * ms, Returned: 140 * ms}}},
			batch{Reads: []stalecheck.Read{read(1, 200*ms, 201*ms)}}, "60ms 0s 90ms", 0},
		{"the earliest of several confirmations counts", batch{Writes: append(two, w(3, 200*ms, 210*ms)),
			Invalidations: []stalecheck.Invalidation{inv(210*ms, 220*ms), inv(110*ms, 500*ms)}},
			batch{Reads: []stalecheck.Read{read(1, 230*ms, 231*ms)}}, "10ms 0s 120ms", 0},
		{"a write that was noticed later than the next one", batch{Writes: append(two, w(4, 101*ms, 130*ms), w(3, 101*ms, 150*ms))},
			batch{Reads: []stalecheck.Read{read(2, 140*ms, 141*ms)}}, "0s 0s 10ms", 0},
		{"absent, and the row is there", batch{Writes: two, Invalidations: []stalecheck.Invalidation{inv(3, 4)}},
			batch{Reads: []stalecheck.Read{{Key: "k", Absent: true, Began: 50 * ms, Ended: 51 * ms}}}, "49.999996ms 0s 49.999998ms", 0},
		{"absent, while the row is being deleted", batch{Writes: []stalecheck.Write{w(1, 1, 2), gone(2, 100*ms, 110*ms)}, Invalidations: []stalecheck.Invalidation{inv(3, 4)}},
			batch{Reads: []stalecheck.Read{{Key: "k", Absent: true, Began: 50 * ms, Ended: 100 * ms}}}, "0s 0s 0s", 0},
		{"absent, and the row was put back", batch{Writes: []stalecheck.Write{gone(1, 1, 2), w(2, 100*ms, 110*ms)}, Invalidations: []stalecheck.Invalidation{inv(110*ms, 120*ms)}},
			batch{Reads: []stalecheck.Read{{Key: "k", Absent: true, Began: 125 * ms, Ended: 126 * ms}}}, "5ms 0s 15ms", 0},
		{"absent, as one of two absences", batch{Writes: []stalecheck.Write{gone(1, 1, 2), w(2, 10*ms, 11*ms), gone(3, 100*ms, 110*ms)}, Invalidations: []stalecheck.Invalidation{inv(12*ms, 13*ms), inv(110*ms, 120*ms)}},
			batch{Reads: []stalecheck.Read{{Key: "k", Absent: true, Began: 125 * ms, Ended: 126 * ms}}}, "0s 0s 0s", 0},
		{"a value of nobody", batch{Writes: two}, batch{Reads: []stalecheck.Read{read(7, 200*ms, 201*ms)}}, "0s 0s 0s", 1},
		{"another write's value", batch{Writes: two}, batch{Reads: []stalecheck.Read{{Key: "k", Version: 2, Value: 1, Began: 200 * ms, Ended: 201 * ms}}}, "0s 0s 0s", 1},
		{"a value of a row that is gone", batch{Writes: []stalecheck.Write{w(1, 1, 2), gone(2, 100*ms, 110*ms)}}, batch{Reads: []stalecheck.Read{read(2, 200*ms, 201*ms)}}, "0s 0s 0s", 1},
		{"from the future", batch{Writes: two}, batch{Reads: []stalecheck.Read{read(2, 98*ms, 99*ms)}}, "0s 0s 0s", 1},
		{"of an unknown key", batch{Writes: two}, batch{Reads: []stalecheck.Read{{Key: "x", Version: 1, Value: 1, Began: 5, Ended: 6}}}, "0s 0s 0s", 1},
		{"one version, two writes", batch{Writes: append(two, w(2, 300*ms, 301*ms))}, batch{}, "0s 0s 0s", 1},
	}
	for _, c := range cases {
		checker, err := stalecheck.New(stalecheck.Config{Processes: 2, Rules: []stalecheck.Rule{
			{Name: "any"}, {Name: "own", Since: stalecheck.OwnConfirmed}, {Name: "committed", Since: stalecheck.Committed},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := checker.Add(0, c.a); err != nil {
			t.Fatal(err)
		}
		if err := checker.Add(1, c.b); err != nil {
			t.Fatal(err)
		}
		r := checker.Finish()
		if got := fmt.Sprint(r.Rules[0].Max, r.Rules[1].Max, r.Rules[2].Max); strings.Join(strings.Fields(got), " ") != c.stale {
			t.Errorf("%s: stale by %s, want %s", c.name, got, c.stale)
		}
		if r.Wrong != c.wrong {
			t.Errorf("%s: %d wrong (%v), want %d", c.name, r.Wrong, r.WrongExamples, c.wrong)
		}
	}
}

// TestFailedCountsAsOwn: with an outbox a process's own reads must follow also when the invalidation failed.
func TestFailedCountsAsOwn(t *testing.T) {
	for _, count := range []bool{false, true} {
		c, err := stalecheck.New(stalecheck.Config{Processes: 2, FailedCountsAsOwn: count, Rules: []stalecheck.Rule{{Name: "own", Since: stalecheck.OwnConfirmed}}})
		if err != nil {
			t.Fatal(err)
		}
		old := stalecheck.Read{Key: "k", Version: 1, Value: 1, Began: 10, Ended: 11}
		c.Add(0, stalecheck.Batch{
			Writes:        []stalecheck.Write{{Key: "k", Version: 1, Value: 1}, {Key: "k", Version: 2, Value: 2, Began: 1, Committed: 2}},
			Invalidations: []stalecheck.Invalidation{{Keys: []string{"k"}, Failed: true, Began: 2, Returned: 3}},
			Reads:         []stalecheck.Read{old},
		})
		c.Add(1, stalecheck.Batch{Reads: []stalecheck.Read{old}})
		r := c.Finish()
		if got := r.Rules[0].Broken; got != map[bool]uint64{false: 0, true: 1}[count] {
			t.Errorf("counted %v: %d broken", count, got)
		}
		if r.Unconfirmed != 2 {
			t.Errorf("%d unconfirmed, want both", r.Unconfirmed)
		}
	}
}

// TestComesBack: a broken read whose newer version had been seen is told apart from one that just lingered.
func TestComesBack(t *testing.T) {
	for _, seen := range []bool{false, true} {
		c, err := stalecheck.New(stalecheck.Config{Processes: 1, Rules: []stalecheck.Rule{{Name: "any"}}})
		if err != nil {
			t.Fatal(err)
		}
		b := stalecheck.Batch{
			Writes:        []stalecheck.Write{{Key: "k", Version: 1, Value: 1}, {Key: "k", Version: 2, Value: 2, Began: 1, Committed: 2}},
			Invalidations: []stalecheck.Invalidation{{Keys: []string{"k"}, Began: 2, Returned: 3}},
			Reads:         []stalecheck.Read{{Key: "k", Version: 1, Value: 1, Began: 10, Ended: 11}},
		}
		if seen {
			b.Reads = append(b.Reads, stalecheck.Read{Key: "k", Version: 2, Value: 2, Began: 4, Ended: 5})
		}
		c.Add(0, b)
		if r := c.Finish(); r.Rules[0].Broken != 1 || r.Rules[0].Back != map[bool]uint64{false: 0, true: 1}[seen] {
			t.Errorf("seen %v: %d broken, %d came back", seen, r.Rules[0].Broken, r.Rules[0].Back)
		}
	}
}

// TestPhases: reads count in the phase in which they began, and in the sum.
func TestPhases(t *testing.T) {
	c, err := stalecheck.New(stalecheck.Config{Processes: 1, Rules: []stalecheck.Rule{
		{Name: "all reads, whatever they are"}, {Name: "reads in a fault", Short: "faulty", Covers: func(_ *stalecheck.Read, phase string) bool { return phase == "fault" }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		name string
		from time.Duration
	}{{"calm", 10}, {"fault", 20}, {"calm", 30}} {
		c.Phase(p.name, p.from)
	}
	b := stalecheck.Batch{Writes: []stalecheck.Write{{Key: "k", Version: 1, Value: 1}}, Upto: stalecheck.Forever}
	for at := range time.Duration(40) {
		b.Reads = append(b.Reads, stalecheck.Read{Key: "k", Version: 1, Value: 1, Began: at, Ended: at + 5})
	}
	c.Add(0, b)
	r := c.Report()
	if all := r.Rules[0]; all.Reads != 40 || all.Phases[""].Reads != 10 || all.Phases["calm"].Reads != 20 || all.Phases["fault"].Reads != 10 || r.Rules[1].Reads != 10 {
		t.Errorf("%+v", r.Rules)
	}
	if !reflect.DeepEqual(r.Phases, []string{"calm", "fault"}) {
		t.Errorf("phases %v", r.Phases)
	}
	if r.Writes != 1 || r.Unconfirmed != 1 {
		t.Errorf("%d writes, %d unconfirmed, want 1 and 1", r.Writes, r.Unconfirmed)
	}
	for _, want := range []string{
		"\nstale/broken/worst in           reads  all reads, what           faulty\n",
		"\nfault                              10            0/0/0            0/0/0\n",
	} {
		if table := r.Table(); !strings.Contains(table, want) {
			t.Errorf("table:\n%s\nwant in it:%s", table, want)
		}
	}
}

// TestNothingShownIsAFault: a rule that no read was covered by does not pass.
func TestNothingShownIsAFault(t *testing.T) {
	c, err := stalecheck.New(stalecheck.Config{Processes: 1, Rules: []stalecheck.Rule{{Name: "idle"}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Finish(); len(r.Faults()) != 1 || !strings.Contains(r.Faults()[0], "idle: no read") {
		t.Errorf("faults %q", r.Faults())
	}
}

func TestConfig(t *testing.T) {
	good := func() stalecheck.Config {
		return stalecheck.Config{Processes: 1, Rules: []stalecheck.Rule{{Name: "a"}}}
	}
	for want, change := range map[string]func(*stalecheck.Config){
		"Config.Processes is 0":          func(c *stalecheck.Config) { c.Processes = 0 },
		"Config.Processes is 1001":       func(c *stalecheck.Config) { c.Processes = 1001 },
		"Config.History is -1ns":         func(c *stalecheck.Config) { c.History = -1 },
		"Config.Rules is empty":          func(c *stalecheck.Config) { c.Rules = nil },
		`Config.Rules[0].Name is ""`:     func(c *stalecheck.Config) { c.Rules[0].Name = "" },
		`Config.Rules[1].Name is "a"`:    func(c *stalecheck.Config) { c.Rules = append(c.Rules, c.Rules[0]) },
		"Config.Rules[0].Bound is -1ns":  func(c *stalecheck.Config) { c.Rules[0].Bound = -1 },
		"Config.Rules[0].Bound is 5m0s":  func(c *stalecheck.Config) { c.Rules[0].Bound = 5 * time.Minute },
		"Config.Rules[0].Since is 3: mu": func(c *stalecheck.Config) { c.Rules[0].Since = 3 },
	} {
		cfg := good()
		change(&cfg)
		if _, err := stalecheck.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	c, err := stalecheck.New(good())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Add(1, stalecheck.Batch{}); err == nil || !strings.Contains(err.Error(), "process is 1") {
		t.Errorf("an unknown process: %v", err)
	}
}

// TestBoundIsInclusive: a read that is stale by just the bound keeps the promise.
func TestBoundIsInclusive(t *testing.T) {
	c, err := stalecheck.New(stalecheck.Config{Processes: 1, Rules: []stalecheck.Rule{{Name: "any", Bound: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	c.Add(0, stalecheck.Batch{
		Writes:        []stalecheck.Write{{Key: "k", Version: 1, Value: 1}, {Key: "k", Version: 2, Value: 2, Began: 1, Committed: 2}},
		Invalidations: []stalecheck.Invalidation{{Keys: []string{"k"}, Began: 2, Returned: 3}},
		Reads:         []stalecheck.Read{{Key: "k", Version: 1, Value: 1, Began: 8, Ended: 9}, {Key: "k", Version: 1, Value: 1, Began: 9, Ended: 9}},
	})
	if r := c.Finish(); r.Rules[0].Stale[0] != 2 || r.Rules[0].Broken != 1 || len(r.Rules[0].Examples) != 1 {
		t.Errorf("%+v", r.Rules[0])
	}
}
