// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of a [Filter].
const (
	// FilterTrust is for how long a filter says "absent" after its feed was last read to the end, counted from when that was asked for.
	FilterTrust = 2 * time.Second

	filterPoll       = FilterTrust / 4 // between two readings of the feed
	minRebuildEvery  = time.Second
	maxExpectedKeys  = 1 << 32
	minFalsePositive = 1e-9
	maxFalsePositive = 0.5
)

// FilterConfig configures a [Filter]. ExpectedKeys must be given; every other zero means the default that its field names.
type FilterConfig struct {
	// ExpectedKeys is how many keys there are, or will be soon: 1 to 2^32. The filter takes ExpectedKeys*ln(1/FalsePositives)/(ln 2)^2 bits: 1.2 MB for a million keys at a
	// hundredth; while it is rebuilt, twice that. Where there are more keys the next build takes room for them and a quarter more, and it comes at once when there are one and a half times
	// as many.
	ExpectedKeys int

	// FalsePositives is the share of absent keys that the filter takes for known ones when it holds ExpectedKeys; 0 means 0.01; from 1e-9 to 0.5.
	FalsePositives float64

	// Keys gives all known keys to yield, in any order; more than once does no harm. It stops when yield returns false, and returns an error if it could not give
	// them all. It must see every row that was committed before it was called: ask the database's primary, not a replica that lags. It runs behind the
	// readers' backs, one call at a time, and its context ends with Run. nil: no filter is built; the additions of this process are told all the same.
	Keys func(ctx context.Context, yield func(key string) bool) error

	// RebuildEvery is how old a build may get, counted from when its scan began: by then a new one begins beside it, which forgets deleted rows and learns of rows that nobody added. A random tenth is taken
	// off. A filter of twice that age (its builds fail) is not consulted. 0 means 1 h; at least 1 s.
	RebuildEvery time.Duration

	// Feed tells other processes of additions, and this one of theirs. nil: there is no other process that adds rows.
	Feed FilterFeed
	// Store keeps what one process has built for the others. nil: each builds its own. Only with a Feed.
	Store FilterStore

	// Draw gives numbers in [0, 1), as rand.Float64. It must be given.
	Draw func() float64
}

// Filter is a Bloom filter of all known keys (B. Bloom, 1970): it says of a key that it is certainly absent, or that it may be there. It is
// safe for concurrent use. It says "absent" only while all of this holds, else everything may be there:
//
//   - it is complete: a scan of all keys has ended, and whatever was added since the scan began is in it;
//   - it has heard what others add: its feed was read to the end by a read that was sent less than [FilterTrust] ago, in the same history of the feed as before, with
//     nothing missing in between;
//   - its scan began less than twice RebuildEvery ago.
//
// So a row that was committed before Add was called is found by this process at once, and by every other FilterTrust after Add returned nil at the latest. A
// row that was inserted without Add stays absent until the next build: RebuildEvery and what a scan takes, and never for longer than twice RebuildEvery.
//
// Why that is so, for a row K that is committed, then added by process P, and read by Q:
//
//   - Q's scan began after the commit: it has seen K.
//   - Q's scan began before the commit: before it began, Q published the new set to all who add. So P's entry, which comes after the commit, is behind the
//     place from which Q has followed the feed, and is put into the new set when it is read, whatever the scan does.
//   - P's entry is lost with its node, or with a primary whose replica is promoted: the feed has another history. Q believes nothing any more until it has scanned
//     again, which it does after that; and P, when it sees the new history, sends again what it had sent in the old one.
//   - P could not send it: Add's error says so, and it is sent as soon as the feed answers again. P dies before that: as if nobody had called Add.
//   - The node forgets the feed (evicted, flushed, restarted), or its beginning up to behind the last entry that Q has read: that entry is not there when Q reads on
//     from it, and Q starts again from nothing.
type Filter struct {
	cfg  FilterConfig
	base time.Time // what until counts from
	news chan struct{}

	sets  atomic.Pointer[filterSets]
	until atomic.Int64 // until when absences are believed, since base; 0: they are not

	lookups, absents, falses, builds, loads, saves, gaps, failures atomic.Uint64

	mu       sync.Mutex // guards what follows; held for moments only
	era      uint64     // counts gaps: what was begun in an earlier one is void
	why      error      // of the last gap, or build that failed; nil after a build
	capacity int        // of the next build
	tried    int        // of the last that was begun
	scanned  time.Time  // when the scan began that the present set comes from
	due      time.Time  // of the next build
	at       FilterPosition
	last     []byte    // the entry there
	proven   time.Time // when the reading was sent that last came to the end
	deaf     error     // why the feed could not be followed, the last time; nil since it was read to the end
	owed     []digest  // additions that could not be sent; only Run takes some away
	dropped  int       // how many more there were than are kept
	recent   []digest  // additions that were sent in this history
	many     bool      // there were more than are kept
	basis    string    // the id of the build that the present set comes from
	offer    time.Time // when to look at a newer build that somebody has stored; zero: there is none
}

// filterSets are the set that is asked and the one that is being built. Additions go to both.
type filterSets struct{ current, building *filterBits }

// NewFilter makes a filter that knows nothing yet: everything may be there until [Filter.Run] has built it.
func NewFilter(cfg FilterConfig) (*Filter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Filter{cfg: cfg, base: time.Now(), news: make(chan struct{}, 1), capacity: cfg.ExpectedKeys, why: errNotBuilt}
	f.sets.Store(&filterSets{})
	return f, nil
}

func (c FilterConfig) withDefaults() (FilterConfig, error) {
	if c.FalsePositives == 0 {
		c.FalsePositives = 0.01
	}
	if c.RebuildEvery == 0 {
		c.RebuildEvery = time.Hour
	}
	switch {
	case c.ExpectedKeys < 1 || c.ExpectedKeys > maxExpectedKeys:
		return c, fmt.Errorf("stampede: ExpectedKeys is %d: must be from 1 to %d", c.ExpectedKeys, maxExpectedKeys)
	case !(c.FalsePositives >= minFalsePositive && c.FalsePositives <= maxFalsePositive): // also catches NaN
		return c, fmt.Errorf("stampede: FalsePositives is %v: must be 0 (meaning 0.01) or from %v to %v", c.FalsePositives, minFalsePositive, maxFalsePositive)
	case c.RebuildEvery < minRebuildEvery:
		return c, fmt.Errorf("stampede: RebuildEvery is %v: must be 0 (meaning 1h) or at least %v", c.RebuildEvery, minRebuildEvery)
	case c.Keys == nil && c.Feed == nil:
		return c, errors.New("stampede: Keys is nil: must be given where Feed is nil")
	case c.Store != nil && c.Feed == nil:
		return c, errors.New("stampede: Feed is nil: must be given where Store is")
	case c.Draw == nil:
		return c, errors.New("stampede: Draw is nil: must be given")
	}
	return c, nil
}

var (
	errNotBuilt = errors.New("the first build has not ended")
	errSilent   = fmt.Errorf("the feed was last read to the end more than %v ago", FilterTrust)
	errOld      = errors.New("no build has succeeded for twice RebuildEvery")
)

// Absent reports that a key is certainly not known; false says that it may be. now is when the reader asks: what it must not miss was added before. It
// takes a hash, a lock of one of the stripes for as long as its bits are read, and no memory.
func (f *Filter) Absent(key string, now time.Time) bool {
	if !f.believed(now) {
		return false
	}
	set := f.sets.Load().current // after until, so that it is as complete as until says, or newer: see install and gap
	if set == nil {
		return false
	}
	f.lookups.Add(1)
	if set.has(digestOf(key)) {
		return false
	}
	f.absents.Add(1)
	return true
}

func (f *Filter) believed(now time.Time) bool {
	until := f.until.Load()
	return until > 0 && int64(now.Sub(f.base)) < until
}

// Missed counts a key that was not there though the filter has not said so: for the share of false positives that Stats tells. Call it for keys
// that Absent was asked for.
func (f *Filter) Missed(now time.Time) {
	if f.believed(now) {
		f.falses.Add(1)
	}
}

// Add makes keys known, to this process at once and to the others through the feed; call it when the rows have been committed. The error says that the feed did not take them: others may say
// "absent" of them until it does. They are sent again as soon as it answers. One append for each 64 keys.
func (f *Filter) Add(ctx context.Context, keys ...string) error {
	digests := make([]digest, len(keys))
	for i, key := range keys {
		digests[i] = digestOf(key)
	}
	f.put(digests)
	if f.cfg.Feed == nil {
		return nil
	}
	err := f.announce(ctx, digests)
	// Once more, for a set that was published since. One that comes from a snapshot is brought up to date by reading the feed, after it was published:
	// either this sees it, or what it reads has the entry, or finds the keys owed.
	f.put(digests)
	return err
}

// Found tells the filter of a key that a row was loaded for. One that it takes for absent was inserted without Add: it is added here, and
// sent to the others when it can be.
func (f *Filter) Found(key string) {
	set, d := f.sets.Load().current, digestOf(key)
	if set == nil || set.has(d) {
		return
	}
	f.put([]digest{d})
	if f.cfg.Feed != nil {
		f.mu.Lock()
		f.owe(d)
		f.mu.Unlock()
		f.signal()
	}
}

// Forget makes every filter of the feed forget what it knows, until it has been built anew: for keys that were added in bulk by somebody who cannot say which. The error says that the feed did not
// take it: others go on as before until it does. It is sent again as soon as it answers.
func (f *Filter) Forget(ctx context.Context) error {
	var err error
	if f.cfg.Feed != nil {
		_, err = f.cfg.Feed.Append(ctx, []byte{entryGap})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forget(errTold); err != nil {
		f.dropped++
	}
	f.signal()
	return err
}

func (f *Filter) put(digests []digest) {
	s := f.sets.Load()
	for _, set := range []*filterBits{s.current, s.building} {
		if set == nil {
			continue
		}
		for _, d := range digests {
			set.add(d)
		}
	}
}

// believe sets until when absences are believed. f.mu is held.
func (f *Filter) believe() {
	until := time.Duration(0)
	if f.sets.Load().current != nil {
		until = f.scanned.Add(2 * f.cfg.RebuildEvery).Sub(f.base)
		if f.cfg.Feed != nil {
			until = min(until, f.proven.Add(FilterTrust).Sub(f.base)) // long ago before the first reading
		}
	}
	f.until.Store(int64(max(0, until)))
}

func (f *Filter) signal() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// FilterStats is a snapshot of what a filter is and has done since it was made.
type FilterStats struct {
	Complete bool      // it is consulted now
	Why      string    // why it is not, or why the last build failed though an older one still serves; "": all is well
	Keys     int       // that the present set holds, about
	Capacity int       // of the present set; the share of false positives grows when there are more keys
	Bytes    int64     // of memory, the set that is being built included
	Scanned  time.Time // when the scan began that the present set comes from; zero: there is none

	Builds    uint64  // sets built by a scan of this process
	Loads     uint64  // sets taken over from another process's build
	Saves     uint64  // sets built by this process and stored for the others
	Failures  uint64  // builds that failed
	Gaps      uint64  // times that additions of others may have been lost
	Owed      int     // additions of this process that the feed has not taken yet
	Lookups   uint64  // questions while it was consulted
	Absents   uint64  // those answered "absent"
	Misses    uint64  // keys that were not there though it had not said so (Missed), deleted rows included
	Estimated float64 // the share of false positives that the number of keys makes likely; 0 without a set
}

// Measured is the measured share of false positives: of the questions for keys that were not there, how many were not answered "absent". 0 before the
// first such question. It tells of FalsePositives from some 10,000 of them on.
func (s FilterStats) Measured() float64 {
	if s.Misses == 0 {
		return 0
	}
	return float64(s.Misses) / float64(s.Misses+s.Absents)
}

// Stats returns the filter's figures. It looks at every stripe, some microseconds.
func (f *Filter) Stats() FilterStats {
	now, sets := time.Now(), f.sets.Load()
	s := FilterStats{
		Complete: f.believed(now), Builds: f.builds.Load(), Loads: f.loads.Load(), Saves: f.saves.Load(), Failures: f.failures.Load(), Gaps: f.gaps.Load(),
		Lookups: f.lookups.Load(), Absents: f.absents.Load(), Misses: f.falses.Load(),
	}
	for _, set := range []*filterBits{sets.current, sets.building} {
		if set != nil {
			s.Bytes += set.size()
		}
	}
	if set := sets.current; set != nil {
		s.Keys, s.Capacity, s.Estimated = set.keys(), set.capacity, set.likely()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	why := f.why
	switch {
	case s.Complete || sets.current == nil:
	case now.Sub(f.scanned) >= 2*f.cfg.RebuildEvery:
		why = errors.Join(errOld, why)
	default:
		why = errors.Join(errSilent, why)
	}
	if f.deaf != nil && !s.Complete {
		why = errors.Join(why, fmt.Errorf("the feed cannot be followed: %w", f.deaf))
	}
	if why != nil {
		s.Why = why.Error()
	}
	s.Scanned, s.Owed = f.scanned, len(f.owed)+f.dropped
	return s
}
