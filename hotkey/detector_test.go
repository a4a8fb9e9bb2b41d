// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/hotkey"
)

var start = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

func mustNew(t testing.TB, cfg hotkey.Config) *hotkey.Detector {
	t.Helper()
	d, err := hotkey.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// steady reads key at an even rate from one time to another and returns the last answer.
func steady(d *hotkey.Detector, key string, rate float64, from time.Time, long time.Duration) (hot bool) {
	gap := time.Duration(float64(time.Second) / rate)
	for at := time.Duration(0); at < long; at += gap {
		hot = d.Observe(key, from.Add(at))
	}
	return hot
}

// rateOf is the key's rate in Top, or 0.
func rateOf(d *hotkey.Detector, key string, now time.Time) float64 {
	for _, kr := range d.Top(1<<16, now) {
		if kr.Key == key {
			return kr.Rate
		}
	}
	return 0
}

func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		cfg  hotkey.Config
		want string // part of the error; "" for none
	}{
		{hotkey.Config{}, ""},
		{hotkey.Config{Enter: 10, Leave: 10}, ""},
		{hotkey.Config{Capacity: 1, SketchWidth: 64}, ""},
		{hotkey.Config{HalfLife: time.Millisecond}, ""},
		{hotkey.Config{Enter: -1}, "Enter is -1: must be a positive number"},
		{hotkey.Config{Enter: math.NaN()}, "Enter is NaN"},
		{hotkey.Config{Enter: math.Inf(1)}, "Enter is +Inf"},
		{hotkey.Config{Leave: -2}, "Leave is -2: must be a positive number"},
		{hotkey.Config{Leave: math.NaN()}, "Leave is NaN"},
		{hotkey.Config{Enter: 10, Leave: 11}, "Leave is 11: must not be above Enter (10)"},
		{hotkey.Config{HalfLife: -time.Second}, "HalfLife is -1s"},
		{hotkey.Config{HalfLife: 1}, "HalfLife is 1ns"},
		{hotkey.Config{HalfLife: 25 * time.Hour}, "HalfLife is 25h0m0s"},
		{hotkey.Config{Capacity: -1}, "Capacity is -1"},
		{hotkey.Config{Capacity: 1 << 17}, "Capacity is 131072"},
		{hotkey.Config{SketchWidth: -64}, "SketchWidth is -64"},
		{hotkey.Config{SketchWidth: 100}, "SketchWidth is 100: must be a power of two"},
		{hotkey.Config{SketchWidth: 32}, "SketchWidth is 32"},
	} {
		_, err := hotkey.New(tc.cfg)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%+v: %v", tc.cfg, err)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "hotkey: ") || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%+v: error %v, want one with %q", tc.cfg, err, tc.want)
		}
	}
}

// A steady rate measures as itself: right after a read it is half a read's worth high, right before the next one half
// a read's worth low, and the steps of the clock add their 0.6 %, or up to 1.1 % where a half-life has few reads.
func TestSteadyRate(t *testing.T) {
	for _, halfLife := range []time.Duration{20 * time.Millisecond, time.Second, time.Minute} {
		for _, perHalfLife := range []float64{2, 10, 100, 3000} {
			gap := time.Duration(float64(halfLife) / perHalfLife)
			rate := 1 / gap.Seconds()
			steps := 0.0111
			if perHalfLife >= 100 {
				steps = 0.006
			}
			y := math.Ln2 / perHalfLife // y/(1-exp(-y)) = 1 + y/2 + y*y/12 - ...
			slack := rate * (steps + y/2 + y*y/12)

			d := mustNew(t, hotkey.Config{Enter: rate, HalfLife: halfLife})
			n := int(20 * perHalfLife)
			for i := range n {
				at := start.Add(time.Duration(i) * gap)
				d.Observe("k", at)
				if i < max(n/2, n-200) {
					continue
				}
				after, before := rateOf(d, "k", at), rateOf(d, "k", at.Add(gap-1))
				if math.Abs(after-rate) > slack || math.Abs(before-rate) > slack {
					t.Fatalf("half-life %v, rate %v: measured %v after a read, %v before the next; off by more than %v",
						halfLife, rate, after, before, slack)
				}
			}
		}
	}
}

// A key that starts at x times Enter is hot after the time that Config.HalfLife gives.
func TestTimeToHot(t *testing.T) {
	const enter = 200.0
	for _, halfLife := range []time.Duration{200 * time.Millisecond, time.Second} {
		for _, x := range []float64{1.1, 1.5, 2, 10, 100} {
			d := mustNew(t, hotkey.Config{Enter: enter, HalfLife: halfLife})
			gap := time.Duration(float64(time.Second) / (x * enter))
			took := time.Duration(0)
			for !d.Observe("k", start.Add(took)) {
				if took += gap; took > time.Minute {
					t.Fatalf("x=%v: not hot after a minute", x)
				}
			}
			halfLives := math.Log2(x/(x-1)) + math.Log2(8*x/(8*x-1))
			want := time.Duration(halfLives * float64(halfLife))
			if slack := want/12 + halfLife/64 + 3*gap; took > want+slack || took < want-slack {
				t.Errorf("half-life %v, %v times Enter: hot after %v, want %v +- %v", halfLife, x, took, want, slack)
			}
		}
	}
}

// Between Leave and Enter the last verdict stands.
func TestEnterAndLeave(t *testing.T) {
	d := mustNew(t, hotkey.Config{Enter: 100, Leave: 50})
	now := start
	for i, tc := range []struct {
		rate float64
		want bool
	}{{75, false}, {95, false}, {130, true}, {75, true}, {56, true}, {40, false}, {75, false}, {95, false}, {105, true}} {
		got := steady(d, "k", tc.rate, now, 10*time.Second)
		now = now.Add(10 * time.Second)
		if got != tc.want || d.Hot("k", now) != tc.want {
			t.Errorf("part %d: at %v reads a second Observe says %v, Hot %v, want %v", i, tc.rate, got, d.Hot("k", now), tc.want)
		}
	}
}

// A key that is no longer read leaves after log2(rate/Leave) half-lives, and asking does not keep it.
func TestForgotten(t *testing.T) {
	const rate = 3200.0
	d := mustNew(t, hotkey.Config{}) // Enter 100, Leave 50: six half-lives of 1 s
	steady(d, "k", rate, start, 12*time.Second)
	end := start.Add(12 * time.Second)
	for _, tc := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {3 * time.Second, true}, {5900 * time.Millisecond, true}, {6100 * time.Millisecond, false}, {time.Hour, false}} {
		if got := d.Hot("k", end.Add(tc.after)); got != tc.want {
			t.Errorf("%v after the last read: hot %v, want %v", tc.after, got, tc.want)
		}
	}
	if top := d.Top(10, end.Add(time.Hour)); len(top) != 0 {
		t.Errorf("an hour later Top lists %v", top)
	}
	if d.Hot("never read", end) {
		t.Error("a key that was never read is hot")
	}
}

// decayed is the obvious way: one exact decaying count a key.
type decayed struct {
	count map[string]float64
	at    map[string]time.Time
}

func (e *decayed) rate(key string, now time.Time) float64 {
	return e.count[key] * math.Exp2(-now.Sub(e.at[key]).Seconds()) * math.Ln2
}

func (e *decayed) observe(key string, now time.Time) {
	e.count[key] = e.count[key]*math.Exp2(-now.Sub(e.at[key]).Seconds()) + 1
	e.at[key] = now
}

// On a skewed trace (Zipf 1.1 over 100,000 keys, 50,000 reads a second for 12 s) Top gives the true order and rates,
// and no key is called hot that is not or the other way round, outside the band in which the history decides.
func TestZipfAgainstExact(t *testing.T) {
	const reads, perSecond, keys = 600_000, 50_000, 100_000
	const enter = 100.0
	rng := rand.New(rand.NewPCG(11, 13))
	zipf := rand.NewZipf(rng, 1.1, 1, keys-1)
	d := mustNew(t, hotkey.Config{Enter: enter})
	twin := decayed{count: map[string]float64{}, at: map[string]time.Time{}}
	now := start
	for range reads {
		now = now.Add(time.Duration(rng.ExpFloat64() * float64(time.Second) / perSecond))
		key := fmt.Sprint("k", zipf.Uint64())
		d.Observe(key, now)
		twin.observe(key, now)
	}
	truth := make([]hotkey.KeyRate, 0, len(twin.count))
	for key := range twin.count {
		truth = append(truth, hotkey.KeyRate{Key: key, Rate: twin.rate(key, now)})
	}
	slices.SortFunc(truth, func(a, b hotkey.KeyRate) int { return int(math.Copysign(1, b.Rate-a.Rate)) })

	hot, missed := 0, 0
	for _, kr := range truth {
		switch got := d.Hot(kr.Key, now); {
		case got && kr.Rate < enter/2*0.98:
			t.Errorf("%s is hot at %.1f", kr.Key, kr.Rate)
		case !got && kr.Rate > enter*1.05:
			missed++
			t.Errorf("%s is not hot at %.1f", kr.Key, kr.Rate)
		case got:
			hot++
		}
	}
	t.Logf("%d keys read, %d hot, %d missed", len(truth), hot, missed)
	if hot < 20 {
		t.Errorf("only %d hot keys: the trace tests little", hot)
	}

	for i, kr := range d.Top(40, now) {
		exact := twin.rate(kr.Key, now)
		if kr.Rate > exact*1.011 || kr.Rate < exact*0.98 {
			t.Errorf("place %d, %s: measured %.1f, exact %.1f", i, kr.Key, kr.Rate, exact)
		}
		if there := truth[i].Rate; math.Abs(kr.Rate-there) > 0.03*there {
			t.Errorf("place %d: %s with %.1f, true is %s with %.1f", i, kr.Key, kr.Rate, truth[i].Key, there)
		}
	}
}

// A million keys, each read once, among which ten hot ones must be found and nothing else: at 500,000 reads a second,
// more than twice what the sketch can keep apart, so that cold keys do compete for names.
func TestMillionColdKeys(t *testing.T) {
	const cold, perSecond = 1_000_000, 500_000
	names := make([]string, cold)
	for i := range names {
		names[i] = fmt.Sprint("cold", i)
	}
	d := mustNew(t, hotkey.Config{})
	before := heap()
	now := start
	falseHot, hotAnswers, hotReads := 0, 0, 0
	for i, key := range names {
		now = now.Add(time.Second / perSecond)
		if d.Observe(key, now) {
			falseHot++
		}
		if i%100 == 0 { // ten keys at 500 reads a second each
			hotReads++
			if d.Observe(fmt.Sprint("hot", i/100%10), now) {
				hotAnswers++
			}
		}
	}
	grown := heap() - before
	t.Logf("%d cold reads: %d called hot; %d of %d reads of hot keys called hot; heap grew by %d KiB",
		cold, falseHot, hotAnswers, hotReads, grown>>10)
	if falseHot != 0 {
		t.Errorf("%d cold reads were called hot", falseHot)
	}
	for i := range 10 {
		if !d.Hot(fmt.Sprint("hot", i), now) {
			t.Errorf("hot%d is not hot", i)
		}
	}
	if top := d.Top(10, now); len(top) != 10 || !strings.HasPrefix(top[9].Key, "hot") {
		t.Errorf("Top = %v", top)
	}
	if hotAnswers < hotReads*7/10 {
		t.Errorf("only %d of %d reads of hot keys were called hot", hotAnswers, hotReads)
	}
	if grown > 256<<10 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	runtime.KeepAlive(d)
	runtime.KeepAlive(names)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestTop(t *testing.T) {
	d := mustNew(t, hotkey.Config{Enter: 100})
	end := start.Add(8 * time.Second)
	if top := d.Top(5, start); len(top) != 0 {
		t.Errorf("of nothing: %v", top)
	}
	for ms := range 8000 {
		now := start.Add(time.Duration(ms) * time.Millisecond)
		for key, every := range map[string]int{"a": 2, "b": 5, "c": 20, "quiet": 1000} {
			if ms%every == 0 {
				d.Observe(key, now)
			}
		}
	}
	for _, n := range []int{-1, 0} {
		if top := d.Top(n, end); len(top) != 0 {
			t.Errorf("Top(%d) = %v", n, top)
		}
	}
	keys := func(krs []hotkey.KeyRate) (ks []string) {
		for _, kr := range krs {
			ks = append(ks, kr.Key)
		}
		return ks
	}
	for n, want := range map[int][]string{1: {"a"}, 2: {"a", "b"}, 100: {"a", "b", "c"}} {
		if got := keys(d.Top(n, end)); !slices.Equal(got, want) {
			t.Errorf("Top(%d) = %v, want %v", n, got, want)
		}
	}
}

// With room for two names the two hottest of a shard keep them.
func TestSmallTable(t *testing.T) {
	d := mustNew(t, hotkey.Config{Enter: 10, Capacity: 2})
	rates := map[string]float64{"a": 200, "b": 150, "c": 20, "d": 15, "e": 2}
	now := start
	rng := rand.New(rand.NewPCG(5, 6))
	for range 10_000 { // chance decides when, so that this does not hang on a phase
		now = now.Add(time.Millisecond)
		for key, rate := range rates {
			if rng.Float64() < rate/1000 {
				d.Observe(key, now)
			}
		}
	}
	top := d.Top(10, now)
	if len(top) > 2 || top[0].Rate < 100 || top[1].Rate < 75 {
		t.Errorf("Top = %v", top)
	}
	if !d.Hot("a", now) || !d.Hot("b", now) || d.Hot("e", now) {
		t.Errorf("hot: a %v, b %v, e %v", d.Hot("a", now), d.Hot("b", now), d.Hot("e", now))
	}
}

// Times that run backward, stand still, or leap do not upset anything.
func TestOddTimes(t *testing.T) {
	d := mustNew(t, hotkey.Config{})
	for _, now := range []time.Time{{}, start, start.Add(-time.Hour), start, {}, start.AddDate(1000, 0, 0), start, start.AddDate(5000, 0, 0)} {
		d.Observe("k", now)
		d.Hot("k", now)
		d.Top(3, now)
	}
	d = mustNew(t, hotkey.Config{Enter: 100})
	hot := false
	for range 1000 {
		hot = d.Observe("k", start) // all at one moment: 1000*ln2 a second
	}
	if got := rateOf(d, "k", start); !hot || math.Abs(got-1000*math.Ln2) > 13 {
		t.Errorf("hot %v, rate %v, want %v less what came before the name", hot, got, 1000*math.Ln2)
	}
	if !d.Hot("k", start.Add(-time.Minute)) {
		t.Error("not hot a minute ago, which counts as now")
	}
}

// Reads from many goroutines are all counted.
func TestConcurrent(t *testing.T) {
	const goroutines, reads, keys = 8, 20_000, 50
	d := mustNew(t, hotkey.Config{Enter: 1})
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range reads {
				key := fmt.Sprint("k", (i+g)%keys)
				d.Observe(key, start)
				if i%100 == 0 {
					d.Hot(key, start)
				}
				if i%5000 == 0 {
					d.Top(10, start)
				}
			}
		})
	}
	wg.Wait()
	top := d.Top(keys, start)
	if len(top) != keys {
		t.Fatalf("%d keys, want %d", len(top), keys)
	}
	want := goroutines * reads / keys * math.Ln2 // every key is named at its first read
	for _, kr := range top {
		if math.Abs(kr.Rate-want) > 1e-6*want {
			t.Errorf("%s: %v, want %v", kr.Key, kr.Rate, want)
		}
	}
}

func TestAllocs(t *testing.T) {
	d := mustNew(t, hotkey.Config{})
	now := start
	for range 1000 {
		d.Observe("hot", now)
	}
	names := make([]string, 4096)
	for i := range names {
		names[i] = fmt.Sprint("cold", i)
	}
	i := 0
	for what, f := range map[string]func(){
		"hot":        func() { now = now.Add(time.Microsecond); d.Observe("hot", now) },
		"cold":       func() { now = now.Add(time.Millisecond); d.Observe(names[i%len(names)], now); i++ },
		"ask":        func() { d.Hot("hot", now) },
		"count hot":  func() { now = now.Add(time.Microsecond); d.Count("hot", 100, now) },
		"count cold": func() { now = now.Add(time.Millisecond); d.Count(names[i%len(names)], 0, now); i++ },
	} {
		if n := testing.AllocsPerRun(5000, f); n != 0 {
			t.Errorf("%s: %v allocations, want 0", what, n)
		}
	}
}

// TestList: the same keys as Top, from a rate on, into a slice that is used again, without an allocation.
func TestList(t *testing.T) {
	d := mustNew(t, hotkey.Config{})
	now := start
	for i := range 3000 {
		now = now.Add(time.Millisecond)
		d.Observe("often", now)
		if i%20 == 0 {
			d.Observe("seldom", now)
		}
	}
	all := d.List(nil, 10, now)
	slices.SortFunc(all, func(a, b hotkey.KeyRate) int { return strings.Compare(a.Key, b.Key) })
	if !slices.Equal(all, d.Top(10, now)) || len(all) != 2 {
		t.Errorf("List: %+v\nTop: %+v", all, d.Top(10, now))
	}
	if some := d.List(all[:0], 500, now); len(some) != 1 || some[0].Key != "often" {
		t.Errorf("from 500 a second on: %+v", some)
	}
	if n := testing.AllocsPerRun(100, func() { all = d.List(all[:0], 1, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
