// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/twin"
)

// depth 0 is for every day, 1 for `make explore`.
var depth = flag.Int("explore.depth", 0, "0: every scene, small; 1: larger, some minutes")

// most is where a search gives up: some 1.2 GB.
const most = 4_500_000

type per = [clients]uint8

// scenes are what takes part and how often: every day, and in a deep run. The guards below are taken away from these.
func scenes() []scene {
	l1 := rules{l1: true, strict: true}
	replay := rules{l1: true, replay: true}
	versions := rules{l1: true, versions: true, lag: true}
	all := []struct {
		scene
		small, deep size
	}{
		{scene{name: "L1 and pushes", rules: l1, cached: true},
			size{per{2, 1}, per{1, 0, 1}, budget{evictions: 1}, per{}}, size{per{2, 2}, per{1, 0, 1}, budget{evictions: 1}, per{}}},
		{scene{name: "flights", rules: l1},
			size{per{1}, per{1, 1}, budget{}, per{1}}, size{per{1, 1}, per{1, 1}, budget{}, per{2, 1}}},
		{scene{name: "flights and outbox", rules: rules{l1: true}},
			size{per{1}, per{2}, budget{fails: 1}, per{2}}, size{per{2}, per{2, 1}, budget{fails: 1}, per{2}}},
		{scene{name: "flights and failover", rules: replay, cached: true},
			size{per{1}, per{1}, budget{failovers: 1}, per{1}}, size{per{1}, per{1, 1}, budget{failovers: 1}, per{2}}},
		{scene{name: "lost connections", rules: l1, cached: true},
			size{per{2}, per{0, 1, 1}, budget{kills: 1}, per{}}, size{per{2}, per{0, 1, 1}, budget{kills: 2}, per{}}},
		{scene{name: "warm L1", rules: l1, warm: true},
			size{per{1, 1}, per{0, 0, 1}, budget{kills: 1}, per{}}, size{per{1, 1, 1}, per{1, 1}, budget{kills: 1}, per{}}},
		{scene{name: "late commands", rules: l1},
			size{per{1, 1}, per{0, 1, 1}, budget{lates: 2}, per{}}, size{per{2, 1}, per{1, 0, 1}, budget{lates: 2, evictions: 1}, per{}}},
		{scene{name: "walk and outbox", rules: rules{l1: true}, cached: true},
			size{per{2, 1}, per{2}, budget{fails: 2}, per{}}, size{per{2, 1}, per{2}, budget{fails: 2, lates: 1}, per{}}},
		{scene{name: "restart", rules: l1, cached: true},
			size{per{1, 1}, per{1}, budget{restarts: 1}, per{}}, size{per{1, 1}, per{1, 0, 1}, budget{restarts: 1}, per{}}},
		{scene{name: "restart, empty", rules: l1},
			size{per{1, 1}, per{1}, budget{restarts: 1}, per{}}, size{per{2, 1}, per{1, 0, 1}, budget{restarts: 1}, per{}}},
		{scene{name: "restart and outbox", rules: replay, cached: true},
			size{per{1}, per{1}, budget{restarts: 1, fails: 1}, per{}}, size{per{2}, per{1}, budget{restarts: 1, fails: 2, lates: 1}, per{}}},
		{scene{name: "failover", rules: replay, cached: true},
			size{per{1, 1}, per{1}, budget{failovers: 1}, per{}}, size{per{2}, per{1, 0, 1}, budget{failovers: 1}, per{}}},
		{scene{name: "two failovers", rules: replay, cached: true},
			size{per{1}, per{1}, budget{failovers: 2}, per{}}, size{per{1, 1}, per{1}, budget{failovers: 2}, per{}}},
		{scene{name: "restart and failover", rules: replay, cached: true},
			size{per{1}, per{0, 1}, budget{restarts: 1, failovers: 1}, per{}}, size{per{2}, per{1}, budget{restarts: 1, failovers: 1}, per{}}},
		{scene{name: "failover and outbox", rules: replay, cached: true},
			size{per{1}, per{1}, budget{failovers: 1, fails: 1}, per{}}, size{per{1, 1}, per{1}, budget{failovers: 1, fails: 1, lates: 1}, per{}}},
		{scene{name: "failover and lost connections", rules: replay, cached: true},
			size{per{1}, per{0, 1}, budget{failovers: 1, kills: 1}, per{}}, size{per{1, 1}, per{0, 1}, budget{failovers: 1, kills: 1}, per{}}},
		{scene{name: "lag, versions", rules: versions, cached: true},
			size{per{1, 1}, per{1, 0, 1}, budget{}, per{}}, size{per{1, 1, 1}, per{1, 0, 1}, budget{}, per{}}},
		{scene{name: "lag, refresh", rules: rules{l1: true, versions: true, lag: true, refresh: true}, cached: true, lagging: true},
			size{per{1, 1}, per{0, 0, 1}, budget{}, per{}}, size{per{2, 1}, per{1, 0, 1}, budget{}, per{}}},
		{scene{name: "lag, versions, failover", rules: rules{versions: true, lag: true, replay: true}, cached: true},
			size{per{1}, per{2}, budget{failovers: 1}, per{}}, size{per{2}, per{2}, budget{failovers: 1}, per{}}},
		{scene{name: "lag, versions, restart", rules: rules{versions: true, lag: true, replay: true}, cached: true},
			size{per{1, 1}, per{1}, budget{restarts: 1}, per{}}, size{per{1}, per{2}, budget{restarts: 1}, per{}}},
		{scene{name: "lag, second delete", rules: rules{l1: true, lag: true, second: true}, cached: true},
			size{per{1, 1}, per{1, 0, 1}, budget{}, per{}}, size{per{1, 1}, per{2, 0, 1}, budget{}, per{}}},
		{scene{name: "second delete and outbox", rules: rules{l1: true, lag: true, second: true}, cached: true},
			size{per{1, 1}, per{1}, budget{fails: 2}, per{}}, size{per{1, 1}, per{1}, budget{fails: 3, lates: 1}, per{}}},
		{scene{name: "second delete and failover", rules: rules{lag: true, second: true, replay: true}, cached: true},
			size{per{1}, per{1}, budget{failovers: 1}, per{}}, size{per{1, 1}, per{1}, budget{failovers: 1}, per{}}},
		{scene{name: "clear", rules: rules{generations: true, strict: true}, cached: true},
			size{per{1, 1}, per{1, 0, 1}, budget{evictions: 1}, per{}}, size{per{2, 1}, per{1, 0, 1}, budget{evictions: 1}, per{}}},
		{scene{name: "clear and L1", rules: rules{generations: true, l1: true, strict: true}, cached: true},
			size{per{2, 1}, per{0, 1, 1}, budget{}, per{}}, size{per{2, 1}, per{1, 1}, budget{}, per{}}},
		{scene{name: "clear and lost connections", rules: rules{generations: true, l1: true, strict: true}, warm: true},
			size{per{1}, per{1, 1}, budget{kills: 1}, per{}}, size{per{1, 1}, per{0, 1}, budget{kills: 1, evictions: 1}, per{}}},
		{scene{name: "clear and restart", rules: rules{generations: true, strict: true}, cached: true},
			size{per{1, 1}, per{1}, budget{restarts: 1}, per{}}, size{per{1, 1}, per{1, 0, 1}, budget{restarts: 1}, per{}}},
		{scene{name: "clear and failover", rules: rules{generations: true, replay: true}, cached: true},
			size{per{1, 1}, per{1}, budget{failovers: 1}, per{}}, size{per{1}, per{1, 0, 1}, budget{failovers: 1}, per{}}},
		{scene{name: "write through", rules: rules{l1: true, strict: true, through: true}, cached: true},
			size{per{1, 1}, per{1, 0, 1}, budget{}, per{}}, size{per{2, 1}, per{1, 0, 1}, budget{evictions: 1}, per{}}},
		{scene{name: "write through and outbox", rules: rules{l1: true, through: true}, cached: true},
			size{per{1, 1}, per{1}, budget{fails: 2, lates: 1}, per{}}, size{per{1, 1}, per{1, 0, 1}, budget{fails: 2, lates: 1}, per{}}},
		{scene{name: "write through and failover", rules: rules{l1: true, through: true, replay: true}, cached: true},
			size{per{1}, per{1}, budget{failovers: 1}, per{}}, size{per{1, 1}, per{1}, budget{failovers: 1}, per{}}},
	}
	var out []scene
	for _, c := range all {
		if c.size = c.small; *depth > 0 {
			c.size = c.deep
		}
		out = append(out, c.scene)
	}
	return out
}

func named(t *testing.T, name string) scene {
	t.Helper()
	for _, c := range scenes() {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("no scene %q", name)
	return scene{}
}

// verdicts are what the tests have shown. With -v they are printed when all is over, the last one first: that of all guards in place ends it.
var verdicts []string

func verdict(format string, args ...any) { verdicts = append(verdicts, fmt.Sprintf(format, args...)) }

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	switch {
	case !testing.Verbose() || len(verdicts) == 0:
	case code != 0:
		fmt.Println("explore: FAIL")
	default:
		fmt.Println("state: all that processes, nodes and database hold at one moment; end: a state with nothing under way any more; bad: an end that would serve an old value, or a promise broken on the way")
		for _, v := range slices.Backward(verdicts) {
			fmt.Println("explore: " + v)
		}
	}
	os.Exit(code)
}

func run(t *testing.T, c scene, one bool) *model {
	t.Helper()
	runtime.GC() // what the last scene has left
	began := time.Now()
	m, err := c.explore(one, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d ends, %d bad, %v", m.count, m.ends, m.bad, time.Since(began).Round(time.Millisecond))
	return m
}

// TestNoInterleavingServesAnOldValue: with all guards there is no bad state in any scene.
func TestNoInterleavingServesAnOldValue(t *testing.T) {
	explored, states, ends, bad := 0, 0, 0, 0
	for _, c := range scenes() {
		t.Run(c.name, func(t *testing.T) {
			m := run(t, c, false)
			explored, states, ends, bad = explored+1, states+m.count, ends+m.ends, bad+m.bad
			if m.bad > 0 {
				t.Errorf("%d bad states, the shortest way:\n  %s", m.bad, strings.Join(m.way, "\n  "))
			}
		})
	}
	verdict("no interleaving serves an old value: %d scenes, %d states, %d ends, %d bad", explored, states, ends, bad)
}

// TestEveryGuardIsNeeded takes the guards away, one at a time: each time the exploration finds a bad state.
func TestEveryGuardIsNeeded(t *testing.T) {
	taken := 0
	for _, g := range []struct {
		name, scene string
		off         func(*rules)
	}{
		{"fill without a look at the lease", "L1 and pushes", func(r *rules) { r.off = twin.Guards{AnyLease: true} }},
		{"invalidate leaves the lease", "L1 and pushes", func(r *rules) { r.off = twin.Guards{KeepLease: true} }},
		{"a token that is sent again", "late commands", func(r *rules) { r.retriedToken = true }},
		{"a fill under a lease whose request was not answered", "late commands", func(r *rules) { r.unproven = true }},
		{"fill without a look at the mark", "lag, versions", func(r *rules) { r.off = twin.Guards{NoMark: true} }},
		{"the later mark wins", "lag, versions", func(r *rules) { r.off = twin.Guards{LastMark: true} }},
		{"the later version wins", "lag, refresh", func(r *rules) { r.off = twin.Guards{NoStored: true} }},
		{"a push leaves tickets", "L1 and pushes", func(r *rules) { r.pushedTickets = true }},
		{"an own invalidation leaves tickets", "L1 and pushes", func(r *rules) { r.ownTickets = true }},
		{"an own invalidation leaves the copy", "L1 and pushes", func(r *rules) { r.noLocal = true }},
		{"an own invalidation drops the copy first", "L1 and pushes", func(r *rules) { r.localFirst = true }},
		{"L1 takes what a loader returned", "L1 and pushes", func(r *rules) { r.loaderIntoL1 = true }},
		{"a lost fill connection is not noticed", "lost connections", func(r *rules) { r.deafFill = true }},
		{"copies outlive their Tracking", "warm L1", func(r *rules) { r.keepL1 = true }},
		{"who joins a flight late takes what it brings", "flights", func(r *rules) { r.lateJoin = true }},
		{"reads while an invalidation is pending", "walk and outbox", func(r *rules) { r.noBypass = true }},
		{"no retry", "walk and outbox", func(r *rules) { r.noRetry = true }},
		{"a retry of the owner alone", "walk and outbox", func(r *rules) { r.retryOwnerOnly = true }},
		{"Done takes away what was put meanwhile", "walk and outbox", func(r *rules) { r.doneDespitePut = true }},
		{"no second delete", "lag, second delete", func(r *rules) { r.second = false }},
		{"a second delete only after a success", "second delete and outbox", func(r *rules) { r.secondIfGood = true }},
		{"a restarted primary is trusted", "restart", func(r *rules) { r.trustAll = true }},
		{"no replay", "failover", func(r *rules) { r.replay = false }},
		{"reads while the log is void", "failover", func(r *rules) { r.noReplayBypass = true }},
		{"a replay of an older version stands for a newer one", "lag, versions, failover", func(r *rules) { r.shorterReplay = true }},
		{"the log forgets before the replica has it", "failover", func(r *rules) { r.leaveAtOnce = true }},
		{"a late confirmation of a run that is gone", "failover", func(r *rules) { r.lateAddIsGood = true }},
		{"a reader asks, and then reads from whatever run is there", "failover", func(r *rules) { r.askOnce = true }},
		{"Done before Add", "failover and outbox", func(r *rules) { r.doneBeforeAdd = true }},
		{"a write stores under a lease that it forced after the write", "write through", func(r *rules) { r.lateForce = true }},
		{"what a write has stored is not in the log", "write through and failover", func(r *rules) { r.throughUnlogged = true }},
		{"pushes of the generation are ignored", "clear and L1", func(r *rules) { r.deafView = true }},
		{"a reply's generation counts whatever was pushed since its ticket", "clear and L1", func(r *rules) { r.viewOfReply = true }},
		{"a process does not learn of its own clearing", "clear and lost connections", func(r *rules) { r.viewOfOthers = true }},
		{"no replay of a clearing", "clear and failover", func(r *rules) { r.replay = false }},
		{"a promoted replica is trusted with what a restarted primary had", "restart and failover", func(r *rules) { r.floorIsForgiven = true }},
	} {
		t.Run(g.name, func(t *testing.T) {
			c := named(t, g.scene)
			g.off(&c.rules)
			m := run(t, c, true)
			if m.bad == 0 {
				t.Errorf("nothing bad in scene %q: the guard is not needed there, or the exploration is blind", g.scene)
			}
			t.Logf("the shortest way:\n  %s", strings.Join(m.way, "\n  "))
			taken++
		})
	}
	verdict("every guard is needed: %d taken away one at a time, and each time an interleaving serves an old value", taken)
}

// TestGuardsBehindGuards: some guards have another behind them, so that nothing bad happens when they alone are taken away.
// Then the one behind is taken away too.
func TestGuardsBehindGuards(t *testing.T) {
	for _, g := range []struct {
		name, scene   string
		first, behind func(*rules)
	}{
		{"a fill goes to another run, which looks at when its load began", "restart, empty",
			func(r *rules) { r.anySession = true }, func(r *rules) { r.agedByFill = true }},
		{"flights outlive an own invalidation, but who joins late wants proof", "flights",
			func(r *rules) { r.keepFlights = true }, func(r *rules) { r.lateJoin, r.strict = true, false }},
		{"a fill without a look at the generation, at which readers look too", "clear",
			func(r *rules) { r.off = twin.Guards{AnyGen: true} }, func(r *rules) { r.anyGeneration = true }},
	} {
		t.Run(g.name, func(t *testing.T) {
			c := named(t, g.scene)
			g.first(&c.rules)
			if m := run(t, c, false); m.bad > 0 {
				t.Errorf("the guard behind does not hold:\n  %s", strings.Join(m.way, "\n  "))
			}
			g.behind(&c.rules)
			m := run(t, c, true)
			if m.bad == 0 {
				t.Error("nothing bad without both")
			}
			t.Logf("the shortest way:\n  %s", strings.Join(m.way, "\n  "))
		})
	}
}

// TestLimits: what is known not to hold, and is said in the documentation. Where this finds nothing bad any more, the limit is gone:
// then the row belongs to the scenes, and the sentence away.
func TestLimits(t *testing.T) {
	versions := rules{l1: true, versions: true, lag: true}
	through, brittle := versions, versions
	through.through, brittle.brittle = true, true
	for _, c := range []scene{
		{name: "a loader that lags, without versions and second deletes", rules: rules{lag: true}, cached: true, size: size{per{1}, per{0, 1}, budget{}, per{}}},
		{name: "a loader that lags, and the mark is evicted", rules: brittle, cached: true, size: size{per{1}, per{0, 1}, budget{evictions: 1}, per{}}},
		{name: "a loader that lags for longer than marks live", rules: versions, lagging: true, size: size{per{1}, per{}, budget{}, per{}}},
		{name: "a loader that lags, and rows that are written through", rules: through, cached: true, size: size{per{1}, per{1, 0, 1}, budget{}, per{}}},
		{name: "a failover, until the log is replayed", rules: rules{replay: true, strict: true}, cached: true, size: size{per{1}, per{0, 1}, budget{failovers: 1}, per{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := run(t, c, true)
			if m.bad == 0 {
				t.Error("nothing bad: the limit is gone")
			}
			t.Logf("the shortest way:\n  %s", strings.Join(m.way, "\n  "))
		})
	}
}
