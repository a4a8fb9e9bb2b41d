// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"time"
)

// leaseMargin is how much longer than a load a lease lives at least: time for
// the lease's reply and for the fill.
const leaseMargin = time.Second

// releaseLimit bounds the release of a lease, which does not follow the
// load's context because that may be over.
const releaseLimit = 500 * time.Millisecond

// LoopConfig are the settings of a lease loop. Limiter and Guard must be given;
// for the rest zero means the default, and negative values are errors.
type LoopConfig struct {
	Limiter *Limiter // caps the loads
	Guard   *Guard   // runs and counts them; closed by its owner

	// LoadTimeout bounds one load, a second reading included. 0 means 3 s.
	LoadTimeout time.Duration
	// LeaseTTL is how long a lease lives on the node if nobody removes it. It
	// must exceed LoadTimeout by 1 s. 0 means 5 s, or LoadTimeout + 1 s if that is longer.
	LeaseTTL time.Duration
	// MaxWait is how long one waits in all for another's load, before loading
	// without storing. 0 means LoadTimeout: a holder that lives is done by then.
	MaxWait time.Duration
	// PollMin and PollMax bound the pauses between two looks at a held lease,
	// which double from look to look. 0 means 5 ms and 250 ms.
	PollMin, PollMax time.Duration

	// Draw returns uniform random numbers in [0, 1), for the jitter of the
	// pauses; concurrency-safe. nil means math/rand/v2.
	Draw func() float64
	// NewToken returns tokens that are unique in the whole fleet, for ever;
	// concurrency-safe. nil means crypto/rand.Text.
	NewToken func() string
}

func (c LoopConfig) withDefaults() LoopConfig {
	if c.LoadTimeout == 0 {
		c.LoadTimeout = 3 * time.Second
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = max(5*time.Second, c.LoadTimeout+leaseMargin)
	}
	if c.MaxWait == 0 {
		c.MaxWait = c.LoadTimeout
	}
	if c.PollMin == 0 {
		c.PollMin = 5 * time.Millisecond
	}
	if c.PollMax == 0 {
		c.PollMax = max(250*time.Millisecond, c.PollMin)
	}
	if c.Draw == nil {
		c.Draw = rand.Float64
	}
	if c.NewToken == nil {
		c.NewToken = crand.Text
	}
	return c
}

// validate checks a configuration that has its defaults.
func (c LoopConfig) validate() error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"LoadTimeout", c.LoadTimeout}, {"LeaseTTL", c.LeaseTTL}, {"MaxWait", c.MaxWait},
		{"PollMin", c.PollMin}, {"PollMax", c.PollMax},
	} {
		if d.value < 0 {
			return fmt.Errorf("stampede: LoopConfig.%s is %v: must not be negative", d.field, d.value)
		}
	}
	switch {
	case c.Limiter == nil:
		return fmt.Errorf("stampede: LoopConfig.Limiter is nil: must be given")
	case c.Guard == nil:
		return fmt.Errorf("stampede: LoopConfig.Guard is nil: must be given")
	case c.LeaseTTL-leaseMargin < c.LoadTimeout:
		return fmt.Errorf("stampede: LoopConfig.LeaseTTL is %v: must be at least %v longer than LoadTimeout (%v)",
			c.LeaseTTL, leaseMargin, c.LoadTimeout)
	case c.PollMax < c.PollMin:
		return fmt.Errorf("stampede: LoopConfig.PollMax is %v: must not be below PollMin (%v)", c.PollMax, c.PollMin)
	}
	return nil
}

// Loop holds what all fetches of a cache have in common. It has no state of its
// own and is safe for concurrent use.
type Loop struct{ config LoopConfig }

// NewLoop returns a loop, or an error that names the wrong field.
func NewLoop(config LoopConfig) (*Loop, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Loop{config: config}, nil
}

// LeaseTTL returns the lifetime that a [Shelf] gives to its leases.
func (l *Loop) LeaseTTL() time.Duration { return l.config.LeaseTTL }

// pause returns how long to wait before look n (from 0) at a held lease: PollMin
// doubled n times, at most PollMax, of which a random half is taken off so
// that waiters drift apart.
func (l *Loop) pause(n int) time.Duration {
	d := l.config.PollMin
	for ; n > 0 && d < l.config.PollMax; n-- {
		d += min(d, l.config.PollMax-d) // doubles without overflow
	}
	return d - time.Duration(l.config.Draw()*float64(d)/2)
}

// Fetch brings one key's entry: from the shelf when it is there or comes while
// somebody else loads it, else from load, whose result it stores under a lease.
//
// It is meant to be the body of a [Flight]'s run: ctx is detached, r the run's.
// load reads the source and prepares the entry; it runs under LoadTimeout, in its
// own goroutine ([Call]), and may be called twice, except in mode Force. Its
// error is returned as it is and nothing is stored. Other errors are
// ErrOverloaded (ErrNoPlace in mode Expired), ErrLoadTimeout, *PanicError, ErrGoexit, ErrClosed, or the cause
// for which ctx was cancelled. A shelf that does not answer is no error: the entry is
// loaded and not stored.
//
// However Fetch ends, a panic or Goexit in the shelf's code included, it has
// given its place and its lease back; a hanging load alone keeps its place.
func Fetch[E any](ctx context.Context, l *Loop, s Shelf[E], mode Mode, r *Run, load func(ctx context.Context) (Loaded[E], error)) (Outcome[E], error) {
	f := fetch[E]{LoopConfig: l.config, loop: l, shelf: s, mode: mode, run: r, load: load}
	if mode == Expired {
		f.mode, f.spare = Miss, true
	}
	for {
		done, err := f.attempt(ctx)
		if done || err != nil {
			return f.out, err
		}
		// Somebody else has the lease. No place is held from here to the next attempt.
		done, err = f.wait(ctx)
		if done || err != nil {
			return f.out, err
		}
	}
}

// fetch is one call of Fetch.
type fetch[E any] struct {
	LoopConfig
	loop  *Loop
	shelf Shelf[E]
	mode  Mode
	spare bool // the mode was Expired: there is an entry to fall back on
	run   *Run
	load  func(ctx context.Context) (Loaded[E], error)

	out     Outcome[E]
	state   State[E]  // what the shelf said last; its floor stays true, floors only grow
	waitEnd time.Time // when patience ends; zero before the first wait
	looks   int       // at the held lease, so far
}

// attempt is one way through: place, lease, load, fill. done is false when
// the lease is held elsewhere.
func (f *fetch[E]) attempt(ctx context.Context) (done bool, err error) {
	// The place comes before the lease. The other way round a lease would tick
	// away in the limiter's queue while other processes wait for its holder.
	place, err := f.place(ctx)
	if err != nil || place == nil {
		return true, err
	}
	defer place.Release()

	if !f.waitEnd.IsZero() && !time.Now().Before(f.waitEnd) {
		return true, f.loadOnly(ctx, place)
	}

	// Each attempt has a new token. With a token that is sent again:
	//   1. our Take times out and is on its way still
	//   2. we send the token again, are granted the lease, load v1
	//   3. the row becomes v2; its invalidation removes the lease
	//   4. the first Take arrives and leaves the token as the lease again
	//   5. our fill finds its token and stores v1, for as long as the TTL lets it
	lease := held{token: f.NewToken()}
	defer f.giveBack(ctx, &lease)

	f.run.Looked()
	state, err := f.shelf.Take(ctx, lease.token, f.mode)
	if err != nil {
		// The lease may be ours, or become ours at any time later: after our load,
		// say, and after the invalidation that came in between. Only a lease that was
		// granted before the load began proves anything, so this token is never used
		// for a fill. It is released, in case the Take did arrive.
		f.out.ShelfErr, lease.unanswered = err, true
		if f.mode == Refresh {
			return true, nil
		}
		return true, f.loadOnly(ctx, place)
	}
	f.see(state)
	if state.Status == Granted {
		return true, f.loadAndFill(ctx, place, &lease)
	}
	lease.settled = true // a definite no
	switch {
	case state.Found && f.mode != Force:
		f.found()
		return true, nil
	case f.mode == Refresh:
		return true, nil // somebody refreshes, or it is of no use
	case state.Status == Held && f.mode == Miss:
		return false, nil
	default: // no-store marker
		return true, f.loadOnly(ctx, place)
	}
}

// see notes what the shelf said. A floor that it does not repeat, as a Watch cannot, is still true.
func (f *fetch[E]) see(state State[E]) {
	if f.state.HasFloor && (!state.HasFloor || state.Floor < f.state.Floor) {
		state.Floor, state.HasFloor = f.state.Floor, true
	}
	f.state = state
}

// place takes a place among the loads. Who has an entry does not queue for one: those who queue have none. Without a place
// a refresh ends with no error, and a reader whose entry is past its time with ErrNoPlace.
func (f *fetch[E]) place(ctx context.Context) (*Place, error) {
	if f.mode != Refresh && !f.spare {
		return f.Limiter.Acquire(ctx)
	}
	place, ok := f.Limiter.TryAcquire(ctx)
	switch {
	case ok:
		return place, nil
	case f.spare:
		return nil, ErrNoPlace
	default:
		return nil, nil //nolint:nilnil // as said above
	}
}

// loadAndFill reads the source under a granted lease and stores the result.
func (f *fetch[E]) loadAndFill(ctx context.Context, place *Place, lease *held) error {
	got, err := f.read(ctx, place)
	if err != nil {
		return err
	}
	lease.noStore = got.Unstorable
	if got.Unstorable || f.out.Stale {
		return nil
	}
	f.run.Looked()
	verdict, err := f.shelf.Fill(ctx, lease.token, got.Entry)
	if err != nil {
		// It may have been stored, or may arrive yet: then the lease decides, as it
		// would have now.
		f.out.ShelfErr, verdict, lease.unanswered = err, 0, true
	}
	f.out.Filled = verdict == Stored
	f.out.Refused = verdict == LeaseLost
	f.out.Older = verdict == Older
	lease.settled = f.out.Filled || f.out.Refused
	return nil
}

// loadOnly reads the source for this process alone and stores nothing.
func (f *fetch[E]) loadOnly(ctx context.Context, place *Place) error {
	_, err := f.read(ctx, place)
	return err
}

// read reads the source into out; once more if what came is older than the
// shelf's floor. It ends our share of the place: what follows, a fill or a release to
// a node that hangs perhaps, is no business of the source's.
func (f *fetch[E]) read(ctx context.Context, place *Place) (Loaded[E], error) {
	defer place.Release()
	type reading struct {
		Loaded[E]
		stale bool
	}
	below := func(got *Loaded[E]) bool { return got.below(f.state.Floor, f.state.HasFloor) }
	f.run.Began()
	// The load gets its own share of the place: if it hangs, it outlives us and
	// still occupies the source.
	share := place.seat.share()
	got, err := Call(share.With(ctx), f.Guard, f.LoadTimeout, func(ctx context.Context) (reading, error) {
		got, err := f.load(ctx)
		if err != nil || !below(&got) {
			return reading{got, false}, err
		}
		if f.mode != Force && ctx.Err() == nil { // a write is not repeated, nor what nobody waits for any more
			if again, err := f.load(ctx); err == nil {
				got = again
			}
		}
		return reading{got, below(&got)}, nil
	}, share.Release)
	if err == nil {
		f.out.Entry, f.out.Source, f.out.Stale = got.Entry, FromLoad, got.stale
	}
	return got.Loaded, err
}

// wait looks at the held lease until the entry appears (done), or until there is
// reason for a new attempt: the lease is gone, the node fails, or MaxWait is over.
func (f *fetch[E]) wait(ctx context.Context) (done bool, err error) {
	f.out.Waited = true
	if f.waitEnd.IsZero() {
		f.waitEnd = time.Now().Add(f.MaxWait)
	}
	for {
		pause := min(f.loop.pause(f.looks), time.Until(f.waitEnd))
		if err := sleep(ctx, pause, f.state.Changed); err != nil {
			return false, err
		}
		f.looks++
		f.run.Looked()
		state, err := f.shelf.Watch(ctx)
		if err != nil {
			f.out.ShelfErr = err
			return false, nil //nolint:nilerr // whether the node is gone, the next Take will tell
		}
		f.see(state)
		switch {
		case state.Found:
			f.found()
			return true, nil
		case state.Status != Held, !time.Now().Before(f.waitEnd):
			return false, nil
		}
	}
}

func (f *fetch[E]) found() { f.out.Entry, f.out.Source = f.state.Entry, FromShelf }

// sleep returns after d, or as soon as wake is closed, or with an error when ctx
// is over.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// held is a lease that may be on the shelf under token.
type held struct {
	token   string
	noStore bool // leave a marker instead
	settled bool // nothing to release: it was not granted, was used, or is lost
	// unanswered: the shelf did not answer the last request. Nobody waits for it once more to release.
	unanswered bool
}

// giveBack releases a lease that is not settled. Deferred before the Take, it sees
// every way out, panics and Goexit included.
func (f *fetch[E]) giveBack(ctx context.Context, h *held) {
	if h.settled {
		return
	}
	release := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		defer cancel()
		return f.shelf.Release(ctx, h.token, h.noStore)
	}
	if h.unanswered && f.Guard.crew.enter() {
		go func() { // the guard waits for it
			defer f.Guard.crew.leave()
			_ = release() // an error there is no news: it ends by its TTL
		}()
		return
	}
	if err := release(); err != nil {
		f.out.ShelfErr = err // it ends by its TTL
	}
}
