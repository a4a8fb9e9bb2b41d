// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// leadFor is for how long a process that builds keeps the others from building, each time that it says so: every third of it.
const leadFor = 30 * time.Second

var (
	errVoid   = errors.New("the build was given up: additions may have been lost since it began")
	errOthers = errors.New("another process builds")
	errOffer  = errors.New("the build that was offered cannot be used; the present one is not over")
)

// Run builds the filter, follows the feed and builds again, until ctx ends. Then it waits for the call of Keys that is under way. It is called once.
func (f *Filter) Run(ctx context.Context) {
	ticks := time.NewTicker(filterPoll)
	defer ticks.Stop()
	var b *filterBuild
	defer func() { b.end() }()
	failed, told := 0, filterTold{why: f.Stats().Why}
	for ctx.Err() == nil {
		if f.cfg.Feed != nil {
			f.follow(ctx)
		}
		if b != nil && f.past(b.era) {
			b.cancel()
		}
		if b == nil && f.isDue(time.Now()) {
			b = f.begins(ctx)
		}
		b.lead(ctx)
		f.tell(&told, time.Now())
		select {
		case <-ctx.Done():
		case <-f.news:
		case <-ticks.C:
		case err := <-b.ended():
			failed, b = f.took(err, failed), nil
		}
	}
}

// isDue says whether a build is to begin. Where there is a feed it must be followed before.
func (f *Filter) isDue(now time.Time) bool {
	if f.cfg.Keys == nil {
		return false
	}
	set, keys := f.sets.Load().current, 0
	if set != nil {
		keys = set.keys()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped > 0 || f.cfg.Feed != nil && f.at.ID == "" {
		return false
	}
	return set != nil && keys > set.capacity+set.capacity/2 && f.crowded(keys) || !now.Before(f.due) || !f.offer.IsZero() && !now.Before(f.offer)
}

// crowded makes room for so many keys in the next build, and says whether no build has been tried that has it. f.mu is held.
func (f *Filter) crowded(keys int) bool {
	f.capacity = max(f.capacity, keys+keys/4)
	return f.capacity > f.tried
}

func (f *Filter) past(era uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.era != era
}

// took notes how a build has ended, and says how many have failed in a row.
func (f *Filter) took(err error, failed int) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errOffer):
		return failed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(err, errOthers) { // it says when it has ended
		f.due = time.Now().Add(Backoff(1, 2*time.Second, 2*time.Second, f.cfg.Draw()))
		return failed
	}
	failed++
	if !errors.Is(err, errVoid) { // else the gap has said why
		f.failures.Add(1)
		f.why = err
	}
	f.due = time.Now().Add(Backoff(failed, time.Second, time.Minute, f.cfg.Draw()))
	return failed
}

// filterBuild is a build under way, in a goroutine of its own.
type filterBuild struct {
	f       *Filter
	era     uint64
	cancel  context.CancelFunc
	done    chan error
	leading atomic.Bool
	led     time.Time // when that was last said; only Run uses it
	offered bool      // it begins since somebody has stored a build, and is not to scan
}

func (f *Filter) begins(ctx context.Context) *filterBuild {
	b := &filterBuild{f: f, done: make(chan error, 1), led: time.Now()}
	f.mu.Lock()
	b.era, f.tried = f.era, f.capacity
	b.offered, f.offer = !f.offer.IsZero() && time.Now().Before(f.due), time.Time{}
	f.mu.Unlock()
	ctx, b.cancel = context.WithCancel(ctx)
	go protect(
		func() (struct{}, error) { return struct{}{}, b.run(ctx) },
		func(_ struct{}, err error) { b.done <- err },
	)
	return b
}

// ended is nil, which is never ready, where no build is under way.
func (b *filterBuild) ended() <-chan error {
	if b == nil {
		return nil
	}
	return b.done
}

func (b *filterBuild) end() {
	if b != nil {
		b.cancel()
		<-b.done //nolint:errcheck // nobody waits for it any more
	}
}

// lead tells the others, from time to time, that this process is still building for them. An error is as good as none: somebody else may build as well then.
func (b *filterBuild) lead(ctx context.Context) {
	if b != nil && b.leading.Load() && time.Since(b.led) > leadFor/3 {
		b.led = time.Now()
		_, _ = b.f.cfg.Store.Lead(ctx, leadFor)
	}
}

// run takes over what another process has built, or waits for it, or scans.
func (b *filterBuild) run(ctx context.Context) error {
	defer b.cancel()
	if b.f.cfg.Store != nil {
		err := b.takeOver(ctx)
		if err == nil {
			return nil
		}
		b.refused(err)
		if b.offered {
			return errOffer
		}
		leads, err := b.f.cfg.Store.Lead(ctx, leadFor)
		if err == nil && !leads {
			return errOthers
		}
		if b.leading.Store(leads); leads {
			defer func() { // the context may be over
				b.leading.Store(false)
				_, _ = b.f.cfg.Store.Lead(context.WithoutCancel(ctx), 0)
			}()
		}
	}
	return b.scan(ctx)
}

// refused keeps for Stats that a build that is stored is of no use. That there is none, or that nobody answers, is no news.
func (b *filterBuild) refused(err error) {
	if !errors.Is(err, errBadSnapshot) {
		return
	}
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if b.f.era != b.era { // the gap has said why
		return
	}
	b.f.why = err
	b.f.signal() // for Tell: the scan that follows may be quick
}

// scan builds a set of what Keys gives, and stores it for the others.
func (b *filterBuild) scan(ctx context.Context) error {
	f := b.f
	f.mu.Lock()
	set := newFilterBits(f.capacity, f.cfg.FalsePositives)
	f.mu.Unlock()
	if !f.publish(set, b.era) {
		return errVoid
	}
	defer f.drop(set)
	known, s := f.knows(), newSnapshot(ctx, f, set)
	began, given := time.Now(), new(atomic.Int64)
	err := f.cfg.Keys(ctx, func(key string) bool {
		set.add(digestOf(key))
		given.Add(1)
		return ctx.Err() == nil
	})
	switch {
	case f.past(b.era):
		return errVoid
	case err != nil:
		return fmt.Errorf("stampede: Keys: %w", err)
	case ctx.Err() != nil:
		return ctx.Err() // Keys was stopped, and has not given them all
	}
	found := min(int(given.Load()), set.keys()) // one may be given twice, and the set has additions too
	if err := f.weigh(s.ID, found, known); err != nil {
		return fmt.Errorf("stampede: Keys: %w", err)
	}
	if !f.install(set, b.era, began, s.ID, found) {
		return errVoid
	}
	f.builds.Add(1)
	s.save(ctx, time.Since(began))
	return nil
}

// publish lets additions go to a set that is being built, from before anything is read that it is made of. What this process has added and others may not have
// been told of is put into it.
func (f *Filter) publish(set *filterBits, era uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.era != era || f.dropped > 0 {
		return false
	}
	f.sets.Store(&filterSets{f.sets.Load().current, set})
	for _, own := range [][]digest{f.owed, f.recent.old.digests, f.recent.young.digests} {
		for _, d := range own {
			set.add(d)
		}
	}
	return true
}

// install makes a set that has been built, from so many keys, the one that is asked.
func (f *Filter) install(set *filterBits, era uint64, began time.Time, id string, found int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.era != era {
		return false
	}
	f.scanned, f.basis, f.why = began, id, nil
	if f.counted, f.doubted = found, (doubt{}); found == 0 {
		f.why = errEmpty
	}
	f.due = began.Add(f.cfg.RebuildEvery - time.Duration(f.cfg.Draw()*float64(f.cfg.RebuildEvery)/10))
	if keys := set.keys(); keys > f.capacity {
		f.capacity = keys + keys/4
	}
	f.sets.Store(&filterSets{current: set})
	f.believe()
	return true
}

// drop forgets a set that was not finished; it does nothing to one that was.
func (f *Filter) drop(set *filterBits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sets.Load(); s.building == set {
		f.sets.Store(&filterSets{current: s.current})
	}
}
