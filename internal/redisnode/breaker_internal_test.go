// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// bench is a breaker on a test bench: time passes by hand.
type bench struct {
	*breaker
	now   time.Time
	heard []string // the changes
}

var errEOF = &Error{Node: "a", Op: "GET", Err: io.EOF}

func newBench(t *testing.T) *bench {
	t.Helper()
	r := &bench{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	r.breaker = newBreaker("a", func(c StateChange) { r.heard = append(r.heard, fmt.Sprintf("%v-%v", c.From, c.To)) })
	r.draw = rand.New(rand.NewPCG(1, 2)).Float64
	t.Cleanup(r.run())
	return r
}

func (r *bench) pass(d time.Duration) { r.now = r.now.Add(d) }

// fail and succeed are operations; beatFail and beatGood heartbeats.
func (r *bench) fail()     { r.failed(r.now, bad, errEOF) }
func (r *bench) beatFail() { r.beat(r.now, bad, errEOF); r.tick(r.now) }
func (r *bench) beatGood() {
	if r.watching.Load() {
		r.succeeded(r.now)
	}
	r.beat(r.now, good, nil)
	r.tick(r.now)
}

func (r *bench) is(t *testing.T, want State) {
	t.Helper()
	if got := State(r.state.Load()); got != want {
		t.Fatalf("%v, want %v; so far %v", got, want, r.heard)
	}
}

// goDown lets it fail until it is Down.
func (r *bench) goDown(t *testing.T) {
	t.Helper()
	for State(r.state.Load()) != Down {
		r.fail()
		r.pass(beatSoon)
	}
}

// comeUp lets heartbeats be answered until it is Up, and says how long it took.
func (r *bench) comeUp(t *testing.T) time.Duration {
	t.Helper()
	began := r.now
	for State(r.state.Load()) != Up {
		r.beatGood()
		r.pass(r.pause())
		if r.now.Sub(began) > time.Hour {
			t.Fatal("never")
		}
	}
	return r.now.Sub(began)
}

func TestSilenceOpens(t *testing.T) {
	r := newBench(t)
	for i, want := range []State{Up, Up, Suspect, Down} {
		r.fail()
		r.is(t, want)
		if sent := r.admit("GET") == nil; sent != (want != Down) {
			t.Fatalf("failure %d: sent %t", i+1, sent)
		}
		r.pass(downSilence/(downMisses-1) + 1)
	}
	r.is(t, Down)
	if want := []string{"up-suspect", "suspect-down"}; !slices.Equal(r.heard, want) {
		t.Errorf("heard %v, want %v", r.heard, want)
	}
}

// TestManyFailuresInNoTime: failures that are quick, as refused connections are, open it only when they have gone on for a while.
func TestManyFailuresInNoTime(t *testing.T) {
	r := newBench(t)
	for range downSilence / oneMoment {
		r.fail()
		r.pass(oneMoment)
	}
	r.is(t, Suspect)
	r.fail()
	r.is(t, Down)
}

// TestOneMomentIsOneFailure: a pause of this process, or of the server, fails everything that is under way, once.
func TestOneMomentIsOneFailure(t *testing.T) {
	r := newBench(t)
	for range 2 { // though not many succeed in between
		for range 64 {
			r.fail()
			r.pass(oneMoment / 100)
		}
		for range 10 {
			r.is(t, Up)
			r.pass(beatSoon)
			r.beatGood()
		}
	}
}

func TestSuccessEndsSuspicion(t *testing.T) {
	r := newBench(t)
	for range suspectMisses {
		r.fail()
		r.pass(beatSoon)
	}
	r.is(t, Suspect)
	if p := r.pause(); p != beatSoon {
		t.Errorf("a suspect is asked in %v", p)
	}
	for range suspectFor/beatSoon - 1 {
		r.beatGood()
		r.is(t, Suspect)
		r.pass(beatSoon)
	}
	r.pass(beatSoon)
	r.beatGood()
	r.is(t, Up)
	r.pass(windowSlots * slotLength)
	r.beatGood()
	if p := r.pause(); p != beatEvery || r.watching.Load() {
		t.Errorf("asked in %v, watching %t", p, r.watching.Load())
	}
}

func TestRefusal(t *testing.T) {
	r := newBench(t)
	r.goDown(t)
	for _, op := range []string{"GET", "MGET", "EVALSHA", ""} {
		err := r.admit(op)
		var e *Error
		if !IsDown(err) || !errors.As(err, &e) || e.Node != "a" || e.Op != op || r.shut(op) == nil {
			t.Errorf("%s: %v", op, err)
		}
		if !IsTrouble(err) || IsTimeout(err) || IsPoolTimeout(err) || IsRefusal(err) || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v passes for something else", op, err)
		}
		for _, part := range []string{"the node is down since 2030-01-02T03:04:05.2Z", "EOF"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = r.admit("GET") }); n != 0 {
		t.Errorf("%v allocations to refuse a read", n)
	}
}

func TestRecovers(t *testing.T) {
	r := newBench(t)
	r.goDown(t)
	for range 3 {
		r.beatFail()
		r.is(t, Down)
		if p := r.pause(); p < beatEvery-beatSoon || p > beatEvery+beatSoon {
			t.Errorf("asked in %v", p)
		}
	}
	for i := range recoverGood {
		if r.admit("GET") == nil {
			t.Error("an operation is sent before the node is up")
		}
		r.beatGood()
		if want := map[bool]State{true: Up, false: Recovering}[i == recoverGood-1]; State(r.state.Load()) != want {
			t.Fatalf("after %d: %v", i+1, r.heard)
		}
		r.pass(r.pause())
	}
	if err := r.admit("GET"); err != nil {
		t.Error(err)
	}
	if took := r.comeUp(t); took != 0 {
		t.Error(took)
	}
	if want := []string{"up-suspect", "suspect-down", "down-recovering", "recovering-up"}; !slices.Equal(r.heard, want) {
		t.Errorf("heard %v, want %v", r.heard, want)
	}
}

// TestLateFailures: what was sent before it went down ends later, and says nothing about the node that has come back.
func TestLateFailures(t *testing.T) {
	r := newBench(t)
	r.goDown(t)
	r.beatGood()
	r.is(t, Recovering)
	for range 10 {
		r.fail()
		r.pass(oneMoment)
	}
	r.is(t, Recovering)
	r.comeUp(t)
	r.fail()
	r.is(t, Up)
}

func TestFlapping(t *testing.T) {
	r := newBench(t)
	r.goDown(t)
	if took := r.comeUp(t); took > 400*time.Millisecond {
		t.Errorf("the first time it took %v", took)
	}
	for _, want := range []time.Duration{flapHold, 2 * flapHold, 4 * flapHold, 8 * flapHold, 16 * flapHold, flapHoldMost, flapHoldMost, flapHoldMost} {
		r.goDown(t)
		if took := r.comeUp(t); took < want-beatSoon || took > want+time.Second {
			t.Errorf("it stayed down for %v, want %v", took, want)
		}
	}
	r.pass(flapWithin)
	r.goDown(t)
	if took := r.comeUp(t); took > 400*time.Millisecond {
		t.Errorf("after it had been well: %v", took)
	}
	r.goDown(t)
	r.pass(flapHold)
	r.beatGood()
	r.is(t, Recovering)
	r.beatFail()
	r.is(t, Down)
	if took := r.comeUp(t); took < 2*flapHold {
		t.Errorf("after a recovery that failed: %v", took)
	}
}

// TestShare: of a node that fails at random as many operations are sent as it can be hoped to answer; it is not Down, and one that fails a fifth is sent everything.
func TestShare(t *testing.T) {
	for _, failing := range []float64{0, 0.1, 0.15, 0.3, 0.5, 0.7, 0.85, 1} {
		r := newBench(t)
		draw := rand.New(rand.NewPCG(3, 4)).Float64
		sent, asked := 0, 0
		for i := range 20_000 { // one a millisecond
			r.pass(time.Millisecond)
			if i >= 4000 {
				asked++
			}
			if r.admit("GET") == nil {
				if i >= 4000 {
					sent++
				}
				if draw() < failing {
					r.fail()
				} else if r.watching.Load() {
					r.succeeded(r.now)
				}
			}
			if i%50 == 0 {
				r.tick(r.now)
			}
		}
		got, want := float64(sent)/float64(asked), min(1, lenience*(1-failing))
		if got < want-0.05 || got > want+0.05 {
			t.Errorf("%.0f %% fail: %.3f sent, want %.3f", 100*failing, got, want)
		}
		if down := State(r.state.Load()) == Down; down != (failing == 1) {
			t.Errorf("%.0f %% fail: %v", 100*failing, r.heard)
		}
		if s := State(r.state.Load()); failing > 0 && failing < 0.2 && s != Up || failing > 0.25 && failing < 1 && s != Suspect {
			t.Errorf("%.0f %% fail: %v", 100*failing, s)
		}
		if err := r.gate.Load(); err != nil && err.share > 0 && !strings.Contains(err.why.Error(), " % of the reads are sent") {
			t.Error(err.why)
		}
		r.pass(windowSlots * slotLength)
		r.tick(r.now)
		if failing < 1 && r.admit("GET") != nil {
			t.Errorf("%.0f %% fail: not sent after it is well", 100*failing)
		}
	}
}

// TestHopeless: a node of which nearly everything fails is down, though now and then something gets through.
func TestHopeless(t *testing.T) {
	r := newBench(t)
	for i := range 1000 {
		r.pass(time.Millisecond)
		r.fail()
		if i%100 == 0 {
			r.succeeded(r.now)
		}
		if i%50 == 0 {
			r.tick(r.now)
		}
	}
	r.is(t, Down)
}

func TestReadableButNotWritable(t *testing.T) {
	r := newBench(t)
	r.failed(r.now, unwritable, errEOF)
	r.is(t, Down)
	r = newBench(t)
	for i, want := range []State{Up, Up, Suspect, Down} {
		r.beat(r.now, writesHang, errEOF)
		r.tick(r.now)
		r.is(t, want)
		for range 10 { // reads go on
			r.pass(beatSoon / 10)
			r.succeeded(r.now)
			r.tick(r.now)
		}
		if i == 0 { // a single one is nothing
			r.beatGood()
			r.beat(r.now, writesHang, errEOF)
		}
	}
}

func TestReset(t *testing.T) {
	r := newBench(t)
	r.reset(r.now)
	if len(r.heard) != 0 {
		t.Errorf("heard %v", r.heard)
	}
	r.goDown(t)
	r.comeUp(t)
	r.goDown(t)
	r.reset(r.now)
	r.is(t, Up)
	if err := r.admit("GET"); err != nil {
		t.Error(err)
	}
	r.goDown(t)
	if took := r.comeUp(t); took > 400*time.Millisecond {
		t.Errorf("another server stays down for %v", took)
	}
}

// TestNotJudgedWithoutRun: nobody would notice that the node is back.
func TestNotJudgedWithoutRun(t *testing.T) {
	b := newBreaker("a", nil)
	now := time.Now()
	for i := range 100 {
		b.failed(now.Add(time.Duration(i)*beatSoon), unwritable, errEOF)
	}
	if b.admit("GET") != nil {
		t.Error("down without Run")
	}
	stop := b.run()
	b.failed(now, unwritable, errEOF)
	if b.admit("GET") == nil {
		t.Error("not down")
	}
	stop()
	if b.admit("GET") != nil || State(b.state.Load()) != Up {
		t.Error("down after Run")
	}
}

// TestChangesAreToldInOrder: by whomever they are brought about, each begins where the one before has ended.
func TestChangesAreToldInOrder(t *testing.T) {
	state, told := Up, 0
	b := newBreaker("a", func(c StateChange) {
		if c.From != state || c.To == state {
			t.Errorf("%v-%v, it was %v", c.From, c.To, state)
		}
		state, told = c.To, told+1
	})
	stop := b.run()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 2000 {
				now := time.Now().Add(time.Duration(i) * time.Hour)
				b.failed(now, unwritable, errEOF)
				b.beat(now, good, nil)
				b.tick(now)
			}
		})
	}
	wg.Wait()
	stop()
	b.deliver()
	if told < 100 {
		t.Errorf("%d changes", told)
	}
}

func TestHealthyPathCosts(t *testing.T) {
	b := newBreaker("a", nil)
	defer b.run()()
	if n := testing.AllocsPerRun(1000, func() { _ = b.admit("GET"); b.answered() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBreakerClosed(b *testing.B) {
	br := newBreaker("a", nil)
	b.Run("serial", func(b *testing.B) {
		for b.Loop() {
			_ = br.admit("GET")
			br.answered()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_ = br.admit("GET")
				br.answered()
			}
		})
	})
}

// TestBeatAcrossAMove: a heartbeat that the old server leaves unanswered says nothing about the one that the node has moved to.
func TestBeatAcrossAMove(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	n, err := New(Config{ID: "a", Addr: silent.Addr().String(), Timeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	defer n.breaker.run()()
	var h health
	h.beat(t.Context(), n)
	if n.breaker.misses != 1 {
		t.Fatalf("%d misses after a beat that was not answered", n.breaker.misses)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.beat(t.Context(), n)
	}()
	for deadline := time.Now().Add(10 * time.Second); n.Session().asking.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no beat")
		}
	}
	n.Move(Unknown, "")
	<-done
	n.breaker.mu.Lock()
	defer n.breaker.mu.Unlock()
	if n.breaker.misses != 0 || n.breaker.watching.Load() {
		t.Errorf("%d misses are held against the new server: %v", n.breaker.misses, n.breaker.why)
	}
}

// TestBodiesAreNotShed: where a share of the reads is sent, that is drawn for once for an entry, and not once more for its body; and a body that is not put is
// no read at all.
func TestBodiesAreNotShed(t *testing.T) {
	n, err := New(Config{ID: "a", Addr: miniredis.RunT(t).Addr(), Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	n.breaker.draw = func() float64 { return 1 }
	n.breaker.gate.Store(n.breaker.newGate(time.Now(), 0.5))
	if _, _, err := n.Get(t.Context(), "b"); !IsDown(err) {
		t.Fatalf("a read that is shed: %v", err)
	}
	id := [bodyIDBytes]byte{7}
	if err := n.PutBody(t.Context(), "b", append(id[:], make([]byte, 1000)...), time.Minute); err != nil {
		t.Errorf("putting a body: %v", err)
	}
	if b, err := n.GetBody(t.Context(), "b", id, 1000); err != nil || len(b.Bytes) != 1000 {
		t.Errorf("reading it: %d bytes, %v", len(b.Bytes), err)
	}
}
