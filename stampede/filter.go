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

	filterPoll = FilterTrust / 4 // between two readings of the feed
)

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
	found atomic.Int64 // when a load has last found a row, since base; 0: none has, since a Clear

	lookups, absents, falses, builds, loads, saves, gaps, failures atomic.Uint64

	mu       sync.Mutex // guards what follows; held for moments only
	era      uint64     // counts gaps: what was begun in an earlier one is void
	why      error      // of the last gap, or build that failed; nil after a build
	capacity int        // of the next build
	tried    int        // of the last that was begun
	scanned  time.Time  // when the scan began that the present set comes from
	due      time.Time  // of the next build
	at       FilterPosition
	last     []byte     // the entry there
	proven   time.Time  // when the reading was sent that last came to the end
	deaf     error      // why the feed could not be followed, the last time; nil since it was read to the end
	owed     []digest   // additions that could not be sent; only Run takes some away
	dropped  int        // how many more there were than are kept
	cleared  int        // those of them that are Forgets
	recent   sentLately // additions that were sent in this history
	basis    string     // the id of the build that the present set comes from
	offer    time.Time  // when to look at a newer build that somebody has stored; zero: there is none
	counted  int        // the keys of the last build that was used; 0 after a Forget
	known    int        // the keys of the last set when it was dropped; 0 after a Forget
	doubted  doubt      // a build that was not used
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

var (
	errNotBuilt = errors.New("the first build has not ended")
	errNoBuilds = errors.New("AnnounceOnly: no filter is built here")
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
	f.found.Store(int64(max(1, time.Since(f.base))))
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
		_, err = f.cfg.Feed.Append(ctx, []byte{entryCleared})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forget(errCleared); err != nil {
		f.dropped++
		f.cleared++
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
