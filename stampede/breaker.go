// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// BreakerState is what a [Breaker] does with calls.
type BreakerState uint8

// The states of a breaker.
const (
	BreakerClosed     BreakerState = iota // all calls are let through
	BreakerOpen                           // none is
	BreakerProbing                        // one at a time
	BreakerRecovering                     // a few at a time, more and more
)

// String names the state.
func (s BreakerState) String() string {
	names := [...]string{"closed", "open", "probing", "recovering"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("BreakerState(%d)", uint8(s))
}

// BreakerConfig are the settings of a [Breaker]. The zero value has the defaults;
// negative values are errors.
type BreakerConfig struct {
	// Failures is how many calls must have failed in the last 10 s before it opens, and
	// Share which share of those that ended. 0 means 10, and 0.5.
	Failures int
	Share    float64
	// Pause is how long it stays open at first, MaxPause at most: it doubles from
	// one failed probe to the next, and a random half of it is taken off ([Backoff]). 0 means 1 s and 5 s
	// (or Pause, where that is longer). MaxPause must not be below Pause.
	Pause, MaxPause time.Duration
	// Probes is how many probes in a row must succeed. 0 means 3.
	Probes int
	// Step is how long each step of the recovery takes, which lets 1, 2, 4, ... calls through at a time,
	// until that is Full. 0 means 250 ms, and 64.
	Step time.Duration
	Full int
	// Draw returns uniform random numbers in [0, 1), for the jitter of the pauses;
	// concurrency-safe. nil means math/rand/v2.
	Draw func() float64
}

func (c BreakerConfig) withDefaults() BreakerConfig {
	for _, d := range []struct {
		field *time.Duration
		def   time.Duration
	}{{&c.Pause, time.Second}, {&c.MaxPause, max(5*time.Second, c.Pause)}, {&c.Step, 250 * time.Millisecond}} {
		if *d.field == 0 {
			*d.field = d.def
		}
	}
	for _, n := range []struct {
		field *int
		def   int
	}{{&c.Failures, 10}, {&c.Probes, 3}, {&c.Full, 64}} {
		if *n.field == 0 {
			*n.field = n.def
		}
	}
	if c.Share == 0 {
		c.Share = 0.5
	}
	if c.Draw == nil {
		c.Draw = rand.Float64
	}
	return c
}

func (c BreakerConfig) validate() error {
	for _, f := range []struct {
		field string
		value any
		bad   bool
	}{
		{"Failures", c.Failures, c.Failures < 0}, {"Probes", c.Probes, c.Probes < 0}, {"Full", c.Full, c.Full < 0},
		{"Pause", c.Pause, c.Pause < 0}, {"MaxPause", c.MaxPause, c.MaxPause < 0}, {"Step", c.Step, c.Step < 0},
		{"Share", c.Share, !(c.Share >= 0 && c.Share <= 1)},
	} {
		if f.bad {
			rule := "must not be negative"
			if f.field == "Share" {
				rule = "must be from 0 to 1"
			}
			return fmt.Errorf("stampede: BreakerConfig.%s is %v: %s", f.field, f.value, rule)
		}
	}
	if d := c.withDefaults(); d.MaxPause < d.Pause {
		return fmt.Errorf("stampede: BreakerConfig.MaxPause is %v: must be at least Pause (%v)", d.MaxPause, d.Pause)
	}
	return nil
}

// Breaker keeps calls away from a source that fails. It is closed until many calls of the last 10 s
// have failed, then open for a while, then lets one call at a time through as a probe,
// and when some have succeeded lets more and more through, so that a source which has
// just come back is not met by everybody at once. A failure among the
// probes opens it again; so do failures in the recovery, where they reach Share.
//
// It is a state machine without a clock and a goroutine: every method is told the
// time. Methods are safe for concurrent use and cost a lock.
type Breaker struct {
	config BreakerConfig

	mu     sync.Mutex
	state  BreakerState
	era    uint64    // counts the changes of state: a call that was let through in another one says nothing in this
	inside int       // calls of this era that are under way
	good   int       // calls of this era that have ended, and how; while closed the window has them
	bad    int       //
	until  time.Time // when open: when that ends
	pauses int       // since it was closed last
	room   int       // of the recovery: how many calls at a time
	step   time.Time // when that was last raised
	window tally
}

// NewBreaker returns a closed breaker, or an error that names the wrong field.
func NewBreaker(config BreakerConfig) (*Breaker, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Breaker{config: config.withDefaults()}, nil
}

// Ending is how a call ended.
type Ending uint8

// The ways in which a call ends.
const (
	// Neither says nothing of the source: the call was cancelled, or not made after all.
	Neither Ending = iota
	// Succeeded is an answer, whatever it says.
	Succeeded
	// Failed is an error of the source, or none in time.
	Failed
)

// Pass is the right to make one call. Whoever has one must end it, with Neither if
// need be: a probe that never ends keeps all others out.
type Pass struct {
	breaker *Breaker
	era     uint64
	over    bool // guarded by breaker.mu
}

// Refuses says whether Allow would refuse a call at now. It changes nothing.
func (b *Breaker) Refuses(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refuses(now)
}

func (b *Breaker) refuses(now time.Time) bool {
	switch b.state {
	case BreakerOpen:
		return now.Before(b.until)
	case BreakerProbing:
		return b.inside > 0
	case BreakerRecovering:
		return b.inside >= b.room
	default:
		return false
	}
}

// Allow lets a call through, or refuses it (false).
func (b *Breaker) Allow(now time.Time) (*Pass, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuses(now) {
		return nil, false
	}
	if b.state == BreakerOpen {
		b.change(BreakerProbing)
	}
	b.inside++
	return &Pass{breaker: b, era: b.era}, true
}

// State returns the present state.
func (b *Breaker) State() BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// End takes in how the call ended, and says whether that has changed the
// breaker's state, and to what. The first End of a Pass counts.
func (p *Pass) End(how Ending, now time.Time) (to BreakerState, changed bool) {
	b := p.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.over || p.era != b.era {
		return b.state, false
	}
	p.over = true
	b.inside--
	if how == Neither {
		return b.state, false
	}
	before := b.era
	switch b.state {
	case BreakerClosed:
		good, bad := b.window.add(now, how == Failed)
		if how == Failed && b.tooMany(good, bad) && bad >= b.config.Failures {
			b.open(now)
		}
	case BreakerProbing:
		b.probed(how, now)
	case BreakerRecovering:
		b.recovered(how, now)
	case BreakerOpen: // nobody has a Pass of this era
	}
	return b.state, b.era != before
}

func (b *Breaker) tooMany(good, bad int) bool {
	return bad > 0 && float64(bad) >= b.config.Share*float64(good+bad)
}

// probed takes in a probe.
func (b *Breaker) probed(how Ending, now time.Time) {
	if how == Failed {
		b.open(now)
		return
	}
	if b.good++; b.good >= b.config.Probes {
		good := b.good
		b.change(BreakerRecovering)
		b.good, b.room, b.step = good, 1, now
	}
}

// recovered takes in a call of the recovery. Only a success raises the room, so that a source which does not answer yet gets no more calls.
func (b *Breaker) recovered(how Ending, now time.Time) {
	if how == Failed {
		if b.bad++; b.tooMany(b.good, b.bad) {
			b.open(now)
		}
		return
	}
	b.good++
	if now.Sub(b.step) < b.config.Step {
		return
	}
	if b.room, b.step = 2*b.room, now; b.room >= b.config.Full {
		b.change(BreakerClosed)
		b.pauses, b.window = 0, tally{}
	}
}

// open opens it, for longer each time.
func (b *Breaker) open(now time.Time) {
	b.change(BreakerOpen)
	b.pauses++
	b.until = now.Add(Backoff(b.pauses, b.config.Pause, b.config.MaxPause, b.config.Draw()))
}

// change begins another era. Calls that are under way belong to the old one, and are not counted as inside.
func (b *Breaker) change(to BreakerState) {
	b.state, b.inside, b.good, b.bad = to, 0, 0, 0
	b.era++
}

// tally counts the calls of the last ten seconds, by second.
type tally struct {
	origin  time.Time
	last    int64 // the second of the newest bucket
	buckets [10]struct{ good, bad int }
}

// add counts a call and returns what has been counted in the window.
func (t *tally) add(now time.Time, failed bool) (good, bad int) {
	if t.origin.IsZero() {
		t.origin = now
	}
	const n = int64(len(t.buckets))
	second := max(int64(now.Sub(t.origin)/time.Second), t.last)
	for i := max(t.last+1, second-n+1); i <= second; i++ {
		t.buckets[i%n] = struct{ good, bad int }{}
	}
	t.last = second
	if failed {
		t.buckets[second%n].bad++
	} else {
		t.buckets[second%n].good++
	}
	for _, b := range t.buckets {
		good, bad = good+b.good, bad+b.bad
	}
	return good, bad
}
