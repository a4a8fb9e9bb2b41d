// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// breakerAt is a breaker and its time.
type breakerAt struct {
	*stampede.Breaker
	t   *testing.T
	now time.Time
}

func newBreaker(t *testing.T, c stampede.BreakerConfig) *breakerAt {
	t.Helper()
	if c.Draw == nil {
		c.Draw = func() float64 { return 0 }
	}
	b, err := stampede.NewBreaker(c)
	if err != nil {
		t.Fatal(err)
	}
	return &breakerAt{b, t, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (b *breakerAt) sleep(d time.Duration) { b.now = b.now.Add(d) }

// calls makes n calls, one after the other, that all end so, and says how many were let through.
func (b *breakerAt) calls(n int, how stampede.Ending) (through int) {
	for range n {
		if p, ok := b.Allow(b.now); ok {
			through++
			p.End(how, b.now)
			p.End(stampede.Failed, b.now) // the first counts
		}
	}
	return through
}

// room is how many calls it lets through at a time, up to most. They end with Neither.
func (b *breakerAt) room(most int) (n int) {
	b.t.Helper()
	var inside []*stampede.Pass
	for ; n < most; n++ {
		p, ok := b.Allow(b.now)
		if !ok {
			break
		}
		inside = append(inside, p)
	}
	for _, p := range inside {
		p.End(stampede.Neither, b.now)
	}
	return n
}

func (b *breakerAt) want(state stampede.BreakerState, room int) {
	b.t.Helper()
	if got := b.State(); got != state {
		b.t.Errorf("it is %v, want %v", got, state)
	}
	if refuses := b.Refuses(b.now); refuses != (room == 0) {
		b.t.Errorf("Refuses says %t, room is %d", refuses, room)
	}
	if got := b.room(100); got != room {
		b.t.Errorf("room for %d calls, want %d", got, room)
	}
}

// TestBreaker walks through the states: it opens, a probe fails and doubles the pause, probes succeed, and the recovery doubles what it lets through.
func TestBreaker(t *testing.T) {
	b := newBreaker(t, stampede.BreakerConfig{Full: 8})
	b.calls(10, stampede.Succeeded)
	b.calls(9, stampede.Failed)
	b.want(stampede.BreakerClosed, 100) // 9 failures
	b.calls(1, stampede.Failed)
	b.want(stampede.BreakerOpen, 0)
	b.sleep(time.Second - 1)
	b.want(stampede.BreakerOpen, 0)
	b.sleep(1)
	if got := b.room(100); got != 1 {
		t.Errorf("%d probes at a time, want 1", got)
	}
	b.calls(1, stampede.Failed)
	b.sleep(2*time.Second - 1)
	b.want(stampede.BreakerOpen, 0)
	b.sleep(1)
	b.calls(2, stampede.Succeeded)
	b.want(stampede.BreakerProbing, 1)
	b.calls(1, stampede.Succeeded)
	for room := 1; room < 8; room *= 2 {
		b.want(stampede.BreakerRecovering, room)
		b.calls(1, stampede.Succeeded) // within the step: no more room
		b.want(stampede.BreakerRecovering, room)
		b.sleep(250 * time.Millisecond)
		b.want(stampede.BreakerRecovering, room) // time alone gives none
		b.calls(1, stampede.Succeeded)
	}
	b.want(stampede.BreakerClosed, 100)
	b.calls(9, stampede.Failed) // what was before is forgotten
	b.want(stampede.BreakerClosed, 100)
	b.calls(1, stampede.Failed)
	b.sleep(time.Second) // the pause is the first again
	b.calls(1, stampede.Neither)
	b.want(stampede.BreakerProbing, 1)
}

// TestBreaker_ShareAndWindow: few failures among many calls never open it, nor do those of more than ten seconds ago.
func TestBreaker_ShareAndWindow(t *testing.T) {
	b := newBreaker(t, stampede.BreakerConfig{})
	for range 1000 {
		b.calls(1, stampede.Failed)
		b.calls(2, stampede.Succeeded)
		b.sleep(10 * time.Millisecond)
	}
	b.want(stampede.BreakerClosed, 100)
	b = newBreaker(t, stampede.BreakerConfig{})
	for range 100 {
		b.calls(9, stampede.Failed)
		b.sleep(10 * time.Second)
	}
	for range 100 { // some seven in ten seconds
		b.calls(1, stampede.Failed)
		b.sleep(1300 * time.Millisecond)
	}
	b.want(stampede.BreakerClosed, 100)
	b.calls(10, stampede.Failed)
	b.want(stampede.BreakerOpen, 0)
}

// TestRB34_NeitherSuccessNorFailure: what says nothing of the source neither opens nor closes it, and a probe that is cancelled gives its place back.
func TestRB34_NeitherSuccessNorFailure(t *testing.T) {
	b := newBreaker(t, stampede.BreakerConfig{Failures: 5})
	b.calls(100, stampede.Neither)
	b.calls(100, stampede.Succeeded)
	b.want(stampede.BreakerClosed, 100)
	b.calls(100, stampede.Failed)
	b.want(stampede.BreakerOpen, 0)
	b.sleep(time.Second)
	for range 10 {
		probe, ok := b.Allow(b.now)
		if !ok {
			t.Fatal("the place of a cancelled probe was lost")
		}
		if _, ok := b.Allow(b.now); ok {
			t.Fatal("two probes at a time")
		}
		probe.End(stampede.Neither, b.now)
	}
	b.calls(3, stampede.Succeeded)
	b.want(stampede.BreakerRecovering, 1)
}

// TestBreaker_OldCalls: a call that was let through before the last change of state says nothing about what came after: a slow failure from before the
// outage is no failed probe, and an old success closes nothing.
func TestBreaker_OldCalls(t *testing.T) {
	b := newBreaker(t, stampede.BreakerConfig{})
	var old []*stampede.Pass
	for range 10 {
		p, _ := b.Allow(b.now)
		old = append(old, p)
	}
	b.calls(10, stampede.Failed)
	b.sleep(time.Second)
	probe, _ := b.Allow(b.now)
	for i, p := range old {
		if _, changed := p.End([]stampede.Ending{stampede.Failed, stampede.Succeeded}[i%2], b.now); changed {
			t.Errorf("old call %d has changed the state to %v", i, b.State())
		}
	}
	if _, ok := b.Allow(b.now); ok {
		t.Error("an old call gave the probe's place away")
	}
	probe.End(stampede.Succeeded, b.now)
	b.want(stampede.BreakerProbing, 1)
}

// TestBreaker_RelapseInTheRecovery: failures in the recovery open it again where they reach the share, for longer; single ones do not.
func TestBreaker_RelapseInTheRecovery(t *testing.T) {
	b := newBreaker(t, stampede.BreakerConfig{})
	b.calls(10, stampede.Failed)
	b.sleep(time.Second)
	b.calls(3, stampede.Succeeded)
	b.calls(2, stampede.Failed)
	b.want(stampede.BreakerRecovering, 1) // 2 of 5
	b.calls(1, stampede.Failed)
	b.want(stampede.BreakerOpen, 0) // 3 of 6
	b.sleep(2*time.Second - 1)
	b.want(stampede.BreakerOpen, 0)
	b.sleep(1)
	b.calls(3, stampede.Succeeded)
	b.want(stampede.BreakerRecovering, 1)
}

// TestBreaker_PausesAreJittered: from half to all of the pause.
func TestBreaker_PausesAreJittered(t *testing.T) {
	for range 100 {
		draw := rand.Float64()
		b := newBreaker(t, stampede.BreakerConfig{Pause: 4 * time.Second, Draw: func() float64 { return draw }})
		b.calls(10, stampede.Failed)
		end := stampede.Backoff(1, 4*time.Second, 5*time.Second, draw)
		b.sleep(end - 1)
		b.want(stampede.BreakerOpen, 0)
		b.sleep(1)
		if b.Refuses(b.now) {
			t.Errorf("draw %v: still open after %v", draw, end)
		}
	}
}

func TestNewBreaker_Invalid(t *testing.T) {
	for field, c := range map[string]stampede.BreakerConfig{
		"Failures is -1": {Failures: -1}, "Probes is -1": {Probes: -1}, "Full is -1": {Full: -1}, "Share is 1.5": {Share: 1.5}, "Share is -0.5": {Share: -0.5},
		"MaxPause is 1s: must be at least Pause (2s)": {Pause: 2 * time.Second, MaxPause: time.Second}, "MaxPause is 500ms: must be at least Pause (1s)": {MaxPause: 500 * time.Millisecond},
		"Pause is -1s": {Pause: -time.Second}, "MaxPause is -1s": {MaxPause: -time.Second}, "Step is -1s": {Step: -time.Second},
	} {
		if _, err := stampede.NewBreaker(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
