// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"errors"
	"fmt"
	"time"
)

// FilterStats is a snapshot of what a filter is and has done since it was made.
type FilterStats struct {
	Complete bool      // it is consulted now
	Why      string    // why it is not, or why the last build failed, or another process's was refused, though an older one still serves, or that the scan found no keys (FilterFoundNoKeys); "": all is well
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
	s.Why = f.whyNot(s.Complete, now)
	s.Scanned, s.Owed = f.scanned, len(f.owed)+f.dropped
	return s
}

// whyNot is FilterStats.Why. f.mu is held.
func (f *Filter) whyNot(consulted bool, now time.Time) string {
	why := f.why
	switch {
	case f.cfg.Keys == nil:
		why = errNoBuilds
	case consulted || f.sets.Load().current == nil:
	case now.Sub(f.scanned) >= 2*f.cfg.RebuildEvery:
		why = errors.Join(errOld, why)
	default:
		why = errors.Join(errSilent, why)
	}
	if f.deaf != nil && !consulted {
		why = errors.Join(why, fmt.Errorf("the feed cannot be followed: %w", f.deaf))
	}
	if why == nil {
		return ""
	}
	return why.Error()
}

// filterTold is what was told of a filter the last time.
type filterTold struct {
	consulted bool
	why       string
	at        time.Time // zero: never
}

// The shortest time between two tellings: a feed that comes and goes would otherwise be told twice a second. The text of one trouble may differ from call to call.
const (
	tellEvery = 10 * time.Second
	whyEvery  = time.Minute
)

// tell tells what has changed.
func (f *Filter) tell(told *filterTold, now time.Time) {
	if f.cfg.Tell == nil {
		return
	}
	consulted := f.believed(now)
	f.mu.Lock()
	why := f.whyNot(consulted, now)
	f.mu.Unlock()
	rest := tellEvery
	if consulted == told.consulted {
		if why == told.why {
			return
		}
		rest = whyEvery
	}
	if !told.at.IsZero() && now.Sub(told.at) < rest {
		return
	}
	*told = filterTold{consulted, why, now}
	f.cfg.Tell(consulted, why)
}
