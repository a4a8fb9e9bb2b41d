// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/hotkey"
	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

var heatStart = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

// heatNode is a node whose clock the test sets, and that counts what is asked of it.
type heatNode struct {
	t      *testing.T
	server *miniredis.Miniredis
	client *redis.Client
	now    time.Time
	writes int // additions to a counter
}

func newHeatNode(t *testing.T) *heatNode {
	t.Helper()
	server := miniredis.RunT(t)
	n := &heatNode{t: t, server: server, client: redis.NewClient(&redis.Options{Addr: server.Addr()})}
	t.Cleanup(func() { _ = n.client.Close() })
	n.pass(0)
	return n
}

// pass lets time pass on the node.
func (n *heatNode) pass(d time.Duration) {
	if n.now.IsZero() {
		n.now = heatStart
	}
	n.now = n.now.Add(d)
	n.server.SetTime(n.now)
	n.server.FastForward(d)
}

func (n *heatNode) eval(c redisnode.Call) any {
	n.t.Helper()
	for i := range c.Keys {
		if c.Args[4+4*i] != 0.0 || c.Args[5+4*i] != 0.0 {
			n.writes++
		}
	}
	reply, err := n.client.Eval(n.t.Context(), c.Script.Source, c.Keys, c.Args...).Result()
	if err != nil {
		n.t.Fatal(err)
	}
	return reply
}

// add adds to one counter and returns what the node says of it.
func (n *heatNode) add(all, asked, each float64, most int) heard {
	n.t.Helper()
	return n.call(&warmKey{counter: "~h:x"}, rates{all, asked}, each, most)
}

// says is what the node says of a reporter's key.
func (n *heatNode) says(key string) heard {
	n.t.Helper()
	return n.call(&warmKey{counter: "~h:x:" + key + ":v0"}, rates{}, 1, 1)
}

func (n *heatNode) call(k *warmKey, add rates, each float64, most int) heard {
	n.t.Helper()
	w := &warmth{copyRate: each, copies: most}
	h, ok := parseHeat(n.eval(heatCall([]telling{{w: w, k: k, add: add}}, time.Time{})), 1)
	if !ok {
		n.t.Fatal("not a reply")
	}
	return h[0]
}

// reporter is one simulated process with one cache and one node.
type reporter struct {
	h    *heat
	w    *warmth
	last map[string]time.Time // when a key was told
}

func newReporter(t *testing.T) *reporter {
	t.Helper()
	small := hotkey.Config{SketchWidth: 64, Capacity: 16} // there are five hundred of them, with a key or two each
	w := &warmth{names: newNaming("", "x", 0), owner: func(string) int { return 0 }, hotRate: DefaultHotRate, copies: 1, copyRate: DefaultHotCopyRate,
		keys: make(map[string]*warmKey), read: make(map[string]rates)}
	w.hot.Store(new(map[string]struct{}))
	for _, d := range []**hotkey.Detector{&w.all, &w.asked} {
		var err error
		if *d, err = hotkey.New(small); err != nil {
			t.Fatal(err)
		}
	}
	r := &reporter{h: newHeat(make([]*redisnode.Node, 1), nil), w: w, last: make(map[string]time.Time)}
	r.h.posts[0].due = heatStart.Add(rand.N(heatEvery)) // any moment of a second
	r.h.join(w)
	return r
}

// look is one turn of the loop, with its call.
func (r *reporter) look(n *heatNode) {
	n.t.Helper()
	batch := r.h.look(n.now)[0]
	if len(batch) == 0 {
		return
	}
	for _, t := range batch {
		if last, again := r.last[t.k.key]; again && n.now.Sub(last) < time.Second {
			n.t.Fatalf("%s was told twice within %v", t.k.key, n.now.Sub(last))
		}
		r.last[t.k.key] = n.now
	}
	r.h.take(0, batch, n.eval(heatCall(batch, time.Time{})), nil, n.now)
}

func (r *reporter) hot(key string) bool {
	_, is := (*r.w.hot.Load())[key]
	return is
}

// run lets each of the reporters read a key at a steady rate for some time. What is hot is answered in the process.
func run(n *heatNode, reporters []*reporter, key string, rate float64, long time.Duration) {
	for end := n.now.Add(long); n.now.Before(end); {
		for i, r := range reporters {
			phase := float64(i%100) / 100
			before := math.Floor(rate*n.now.Sub(heatStart).Seconds() + phase)
			after := math.Floor(rate*n.now.Add(heatLook).Sub(heatStart).Seconds() + phase)
			for j := before; j < after; j++ {
				at := n.now.Add(time.Duration((j - before + 1) / (after - before) * float64(heatLook)))
				if r.w.all != nil {
					r.w.all.Count(key, 0, at)
				}
				if !r.hot(key) {
					r.w.asked.Count(key, 0, at)
				}
			}
		}
		n.pass(heatLook)
		for _, r := range reporters {
			r.look(n)
		}
	}
}

func hotIn(reporters []*reporter, key string) (hot int) {
	for _, r := range reporters {
		if r.hot(key) {
			hot++
		}
	}
	return hot
}

// TestFleetOfColdReaders: 500 processes that read a key 99 times a second each make it hot in each of them within three seconds, and it stays so though no read reaches the node any more. Their
// additions to the counter are few, and the node's sum is right. When they stop it is hot nowhere, and the counter is gone.
func TestFleetOfColdReaders(t *testing.T) {
	const processes = 500
	n := newHeatNode(t)
	var all []*reporter
	for range processes {
		all = append(all, newReporter(t))
	}
	run(n, all, "k", 99, 3*time.Second)
	if hot := hotIn(all, "k"); hot != processes {
		t.Fatalf("hot in %d of %d processes after 3 s", hot, processes)
	}
	run(n, all, "k", 99, time.Second)
	n.writes = 0
	run(n, all, "k", 99, 3*time.Second)
	h := n.says("k")
	t.Logf("%d additions in 3 s; the node says %v a second of %d", n.writes, h.all, 99*processes)
	if hot := hotIn(all, "k"); hot != processes {
		t.Errorf("hot in %d of %d processes after 7 s", hot, processes)
	}
	if n.writes > 3*2*heatWrites {
		t.Errorf("%d additions in 3 s, want %d a second", n.writes, heatWrites)
	}
	if h.all < 0.8*99*processes || h.all > 1.15*99*processes {
		t.Errorf("the node says %v a second, the processes read %d", h.all, 99*processes)
	}
	if h.asked > 0.05*99*processes {
		t.Errorf("the node says that %v reads a second reach it, and none does", h.asked)
	}

	for range 300 { // nobody reads
		n.pass(heatLook)
		for _, r := range all[:5] { // the others have died
			r.look(n)
		}
	}
	if hot := hotIn(all[:5], "k"); hot != 0 {
		t.Errorf("hot in %d processes 30 s after the last read", hot)
	}
	n.pass(heatKeep)
	if keys := n.server.Keys(); len(keys) != 0 {
		t.Errorf("%v is left on the node", keys)
	}
	for _, r := range all[:5] {
		if len(r.w.keys) != 0 {
			t.Errorf("%d keys are still followed", len(r.w.keys))
		}
	}
}

// TestFleetOfFewReads: nobody tells of a key that it reads every other second, however many there are.
func TestFleetOfFewReads(t *testing.T) {
	n := newHeatNode(t)
	var all []*reporter
	for range 500 {
		all = append(all, newReporter(t))
	}
	run(n, all, "k", 0.5, 6*time.Second)
	if hot := hotIn(all, "k"); hot != 0 || n.writes != 0 {
		t.Errorf("hot in %d processes, %d additions", hot, n.writes)
	}
}

// TestFleetThreshold: nine processes at 99 reads are 891 a second, which is not hot; twelve are.
func TestFleetThreshold(t *testing.T) {
	for processes, want := range map[int]int{9: 0, 12: 12} {
		n := newHeatNode(t)
		var all []*reporter
		for range processes {
			all = append(all, newReporter(t))
		}
		run(n, all, "k", 99, 6*time.Second)
		if hot := hotIn(all, "k"); hot != want {
			t.Errorf("%d processes: hot in %d, want %d", processes, hot, want)
		}
	}
}

// TestJump: a key whose rate jumps is told within 300 ms, and with its whole rate, also if it was known before.
func TestJump(t *testing.T) {
	n := newHeatNode(t)
	r := newReporter(t)
	var split []int
	r.w.copies, r.w.split = 10, func(_ string, k int) { split = append(split, k) }
	run(n, []*reporter{r}, "known", 50, 3*time.Second)
	for r.last["known"].Add(time.Second - heatLook).After(n.now) { // its second is nearly over
		run(n, []*reporter{r}, "known", 50, heatLook)
	}
	r.w.all = nil // as without L1Hot: nobody but the nodes answers
	for _, key := range []string{"known", "new"} {
		split = nil
		began := n.now
		r.h.posts[0].due = began // the node's turn is the worst one: before the jump is known for one
		for n.now.Sub(began) < 300*time.Millisecond {
			run(n, []*reporter{r}, key, 12_000, heatLook)
		}
		if told := r.last[key].Sub(began); told < 0 || told > 300*time.Millisecond {
			t.Errorf("%s: told %v after the jump", key, told)
		}
		if len(split) == 0 || split[0] < 6 || split[0] > 7 {
			t.Errorf("%s: to be on %v nodes, want 6 for 12,000 reads a second", key, split)
		}
		if got := r.w.keys[key].fleet.asked; got < 11_000 || got > 13_000 {
			t.Errorf("%s: the node says %v, want 12,000", key, got)
		}
	}
}

// TestSteadyRate: what a single process tells adds up to what it reads, and a rate that falls takes back what was said.
func TestSteadyRate(t *testing.T) {
	n := newHeatNode(t)
	r := newReporter(t)
	for _, rate := range []float64{400, 3000, 150} {
		run(n, []*reporter{r}, "k", rate, 8*time.Second)
		if got := r.w.keys["k"].fleet.all; math.Abs(got-rate) > 0.1*rate {
			t.Errorf("the node says %v after 8 s of %v reads a second", got, rate)
		}
	}
}

// TestDrawIsRightInTheMean: additions that are made seldom are larger for it, so that the mean is what it should be, of positive and of negative ones.
func TestDrawIsRightInTheMean(t *testing.T) {
	now := heatStart
	for _, said := range []float64{0, 40} {
		k := &warmKey{share: rates{said, said / 2}, saidAt: now.Add(-time.Second), fleet: rates{all: 100_000}}
		r := rates{20, 5}
		want := rates{20 - said*math.Exp2(-0.2), 5 - said/2*math.Exp2(-0.2)}
		sum, made := rates{}, 0
		const draws = 100_000
		for i := range draws {
			add := k.draw(r, DefaultHotRate, now, (float64(i)+0.5)/draws)
			if sum.all, sum.asked = sum.all+add.all, sum.asked+add.asked; add != (rates{}) {
				made++
			}
		}
		if math.Abs(sum.all/draws-want.all) > 0.01 || math.Abs(sum.asked/draws-want.asked) > 0.01 {
			t.Errorf("adds %v, %v in the mean; want %v", sum.all/draws, sum.asked/draws, want)
		}
		if made == 0 || made > draws/5 {
			t.Errorf("%d of %d draws added: want few", made, draws)
		}
	}
}

// TestHeatForgets: a node that came back empty is told the whole rate again, not what has decayed since.
func TestHeatForgets(t *testing.T) {
	n := newHeatNode(t)
	r := newReporter(t)
	run(n, []*reporter{r}, "k", 1000, 4*time.Second)
	n.server.FlushAll()
	run(n, []*reporter{r}, "k", 1000, 3*time.Second)
	if got := n.says("k").all; got < 780 || got > 1050 {
		t.Errorf("the node says %v, 3 s after it came back empty; want 1000", got)
	}
}

// TestHeatHysteresis: hot from ten times HotRate on, until below five times, and no longer than it is heard.
func TestHeatHysteresis(t *testing.T) {
	k := &warmKey{toldAt: heatStart}
	for _, step := range []struct {
		fleet float64
		hot   bool
	}{{999, false}, {1000, true}, {501, true}, {499, false}, {999, false}, {5000, true}} {
		if k.hear(rates{}, heard{rates: rates{all: step.fleet}}, DefaultHotRate, heatStart); k.hot != step.hot {
			t.Errorf("%v a second: hot is %t", step.fleet, k.hot)
		}
	}
	r := newReporter(t)
	r.w.keys["k"] = k
	for _, step := range []struct {
		after time.Duration
		hot   bool
	}{{0, true}, {heatBelief - 1, true}, {heatBelief, false}} {
		r.w.all.Count("k", 4096*50, heatStart.Add(step.after)) // it is still read
		if r.w.look(heatStart.Add(step.after)); r.hot("k") != step.hot {
			t.Errorf("%v after it was heard: hot is %t", step.after, r.hot("k"))
		}
	}
}

// TestHeatScript: sums, decay by the node's time, never below zero, no write for a look, and an end.
func TestHeatScript(t *testing.T) {
	n := newHeatNode(t)
	if h := n.add(0, 0, 1, 1); h != (heard{copies: 1}) || n.server.Exists("~h:x") {
		t.Errorf("a look at nothing: %+v, and left something: %t", h, n.server.Exists("~h:x"))
	}
	n.add(600, 100, 1, 1)
	if h := n.add(400.5, 100, 1, 1); h != (heard{rates{1000, 200}, 1}) {
		t.Errorf("600 and 400.5: %+v", h)
	}
	n.pass(heatHalf)
	if h := n.add(0, 0, 1, 1); h != (heard{rates{500, 100}, 1}) {
		t.Errorf("half a life later: %+v", h)
	}
	if ttl := n.server.TTL("~h:x"); ttl != heatKeep-heatHalf {
		t.Errorf("a look has changed when the counter ends: in %v", ttl)
	}
	if h := n.add(-700, 100, 1, 1); h != (heard{rates{0, 200}, 1}) {
		t.Errorf("less than nothing: %+v", h)
	}
	n.server.SetTime(n.now.Add(-time.Hour)) // a replica with another clock was promoted
	if h := n.add(10, 0, 1, 1); h != (heard{rates{10, 200}, 1}) {
		t.Errorf("after the clock was set back: %+v", h)
	}
	n.server.FastForward(heatKeep)
	if n.server.Exists("~h:x") {
		t.Error("the counter does not end")
	}
}

// TestHeatCopies: the number of copies grows at once, up to the most; it falls when for heatCalm fewer would do even with a quarter more reads, to the most that was needed meanwhile.
func TestHeatCopies(t *testing.T) {
	n := newHeatNode(t)
	sum := 0.0
	to := func(rate float64) int { // tops up to a rate
		n.t.Helper()
		add := rate - sum
		sum = rate
		return n.add(rate, add, 1000, 10).copies
	}
	pass := func(d time.Duration) {
		n.pass(d)
		sum = halved(sum, d, heatHalf)
	}
	for _, step := range []struct {
		passed time.Duration
		rate   float64
		want   int
		why    string
	}{
		{0, 900, 1, "one node is enough"},
		{time.Second, 3500, 4, "it grows at once"},
		{time.Second, 99_000, 10, "to the most"},
		{time.Second, 9100, 10, "with a quarter more, ten are needed"},
		{20 * time.Second, 9100, 10, "however long"},
		{time.Second, 3900, 10, "five would do, since now"},
		{9 * time.Second, 2000, 10, "nine seconds are not enough"},
		{time.Second, 2000, 5, "ten seconds: the most that was needed meanwhile, not what is now"},
		{time.Second, 2000, 5, "three would do, since now"},
		{5 * time.Second, 4500, 5, "more are needed again"},
		{6 * time.Second, 2000, 5, "so the time begins anew"},
		{5 * time.Second, 100, 5, "not yet"},
		{5 * time.Second, 100, 3, "ten seconds"},
		{time.Second, 100, 3, "since now"},
		{10 * time.Second, 100, 1, "and in the end its owner is enough"},
	} {
		pass(step.passed)
		if k := to(step.rate); k != step.want {
			t.Errorf("%s: %d copies for %v reads a second, want %d", step.why, k, step.rate, step.want)
		}
	}
	if k := to(99_000); k != 10 {
		t.Errorf("%d copies, want 10", k)
	}
	pass(time.Second)
	to(100) // fewer would do, since now
	n.now = n.now.Add(-time.Hour)
	n.server.SetTime(n.now) // a replica with another clock was promoted
	sum = 100               // nothing decays
	to(100)
	for range heatCalm / time.Second {
		pass(time.Second)
		to(100)
	}
	if k := to(100); k != 1 {
		t.Errorf("%d copies ten seconds after the clock was set back", k)
	}
	if k := n.add(0, 50_000, 1000, 1).copies; k != 1 {
		t.Errorf("%d copies for a cache that has none", k)
	}
}

// TestSplitsHoldBetweenTurns: what a node has said of a key holds for as long as it is believed, also where it is not the key's turn to be told for many seconds.
func TestSplitsHoldBetweenTurns(t *testing.T) {
	r := newReporter(t)
	var latest time.Time
	now := heatStart
	r.w.copies, r.w.split = 10, func(_ string, k int) {
		if latest = now; k != 4 {
			t.Errorf("split over %d nodes, want 4", k)
		}
	}
	r.w.keys["k"] = &warmKey{key: "k", toldAt: now, said: rates{50, 50}, saidAt: now, copies: 4, heardAt: now}
	for ; now.Before(heatStart.Add(heatBelief)); now = now.Add(heatLook) {
		for range 5 {
			r.w.asked.Count("k", 0, now)
		}
		if r.w.look(now); now.Sub(latest) > heatEvery+heatLook {
			t.Fatalf("%v after it was heard nobody has said it for %v", now.Sub(heatStart), now.Sub(latest))
		}
	}
	until := latest
	for ; now.Before(heatStart.Add(2 * heatBelief)); now = now.Add(heatLook) {
		r.w.look(now)
	}
	if latest != until {
		t.Errorf("said again %v after it was heard", latest.Sub(heatStart))
	}
}

// TestHeatScriptOnRedis: a real server takes the script as the embedded one does, by its own clock.
func TestHeatScriptOnRedis(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	call := func(add float64) heard {
		t.Helper()
		w := &warmth{copyRate: 1000, copies: 10}
		c := heatCall([]telling{{w: w, k: &warmKey{counter: "~h:other"}}, {w: w, k: &warmKey{counter: "~h:x"}, add: rates{add, add}}}, time.Time{})
		reply, err := s.Client().Eval(t.Context(), c.Script.Source, c.Keys, c.Args...).Result()
		if err != nil {
			t.Fatal(err)
		}
		h, ok := parseHeat(reply, 2)
		if !ok || h[0] != (heard{copies: 1}) {
			t.Fatalf("%v", reply)
		}
		return h[1]
	}
	began := time.Now()
	call(6500)
	for time.Since(began) < 500*time.Millisecond {
		time.Sleep(10 * time.Millisecond)
	}
	h := call(0)
	least := halved(6500, time.Since(began)+10*time.Millisecond, heatHalf)
	if most := halved(6500, 490*time.Millisecond, heatHalf); h.all < least-1 || h.all > most || h.asked != h.all || h.copies != 7 {
		t.Errorf("%+v, want %.0f to %.0f and 7 copies", h, least, most)
	}
	ttl, err := s.Client().PTTL(t.Context(), "~h:x").Result()
	if err != nil || ttl > heatKeep || ttl < heatKeep-10*time.Second {
		t.Errorf("ends in %v, %v", ttl, err)
	}
	if n, err := s.Client().Exists(t.Context(), "~h:other").Result(); err != nil || n != 0 {
		t.Errorf("a look has left something: %d, %v", n, err)
	}
}

// TestHeatIsBounded: of very many keys at most heatKeys are told between two turns, and in the end each of them was.
func TestHeatIsBounded(t *testing.T) {
	n := newHeatNode(t)
	r := newReporter(t)
	var err error
	if r.w.all, err = hotkey.New(hotkey.Config{}); err != nil {
		t.Fatal(err)
	}
	const keys = 150
	told := func() uint64 { u, _, _ := r.h.figures(); return u }
	since, before := n.now, uint64(0)
	for step := range 140 {
		for i := range keys {
			for range 2 + i%3 {
				r.w.all.Count(fmt.Sprint("k", i), 0, n.now)
			}
		}
		n.pass(heatLook)
		r.look(n)
		if r.h.posts[0].left == heatKeys || n.now.Sub(since) >= time.Second {
			if d := told() - before; d > 2*heatKeys {
				t.Fatalf("step %d: %d keys told within a second", step, d)
			}
			since, before = n.now, told()
		}
	}
	if len(r.last) != keys {
		t.Errorf("%d of %d keys were told in 14 s", len(r.last), keys)
	}
}

// TestLoads: a node is told of when it was twice as busy as the others for two readings in a row, by weight, and not below the floor; and that it is over.
func TestLoads(t *testing.T) {
	l := &loads{known: make([]nodeLoad, 3), weights: []float64{1, 1, 2}}
	now := heatStart
	for i, step := range []struct {
		loads   [3]float64
		changed [3]bool
	}{
		{[3]float64{1000, 1000, 9000}, [3]bool{}}, // below the floor
		{[3]float64{1000, 1000, 9000}, [3]bool{}},
		{[3]float64{10_000, 10_000, 35_000}, [3]bool{}}, // weight 2: 1.75 times as busy
		{[3]float64{10_000, 10_000, 35_000}, [3]bool{}},
		{[3]float64{10_000, 40_000, 20_000}, [3]bool{}}, // once is not enough
		{[3]float64{10_000, 10_000, 20_000}, [3]bool{}},
		{[3]float64{10_000, 40_000, 20_000}, [3]bool{}},
		{[3]float64{10_000, 40_000, 20_000}, [3]bool{false, true, false}},
		{[3]float64{10_000, 16_000, 20_000}, [3]bool{}}, // above 1.5
		{[3]float64{10_000, 16_000, 20_000}, [3]bool{}},
		{[3]float64{10_000, 14_000, 20_000}, [3]bool{}}, // once
		{[3]float64{10_000, 14_000, 20_000}, [3]bool{false, true, false}},
	} {
		now = now.Add(loadEvery)
		for node, load := range step.loads {
			if changed, _ := l.take(node, load, now); changed != step.changed[node] {
				t.Errorf("step %d: %v: node %d is told of: %t", i, step.loads, node, changed)
			}
		}
	}
	if _, known := l.peers(0, now.Add(loadKnown)); known {
		t.Error("loads from long ago are compared")
	}
	if peers, _ := l.peers(2, now); peers != 24_000 {
		t.Errorf("peers of the node of weight 2: %v, want 24,000", peers)
	}
}

// TestLoadIsLogged: in whole numbers.
func TestLoadIsLogged(t *testing.T) {
	var log bytes.Buffer
	cl, err := New(t.Context(), Config{Nodes: []ring.Node{{ID: "a", Addr: miniredis.RunT(t).Addr()}}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.Close(t.Context()); err != nil { // nobody else logs from here on
		t.Fatal(err)
	}
	cl.tellLoad(0, true, 23456.789, 1234.5678)
	cl.tellLoad(0, false, 99.5, 80.49)
	for _, want := range []string{"load=23457 others=1235 keys=[]", "load=100 others=80\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("logged %q, want %q", log.String(), want)
		}
	}
}
