// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Absences decides which absences are worth remembering, so that a flood of random keys fills nothing: one that is told for the first time costs a token of one bucket, one that was refused a
// short while ago and is asked for again costs one of a second bucket, which such a flood does not reach. In any time t it lets at most 2*(rate*t + burst) through. It is
// safe for concurrent use and takes 64 KiB.
type Absences struct {
	seed          maphash.Seed
	first, repeat *rate.Limiter
	refused       [absencesKept]atomic.Uint64 // digests of keys that were refused; a newer one takes an older one's place
}

const absencesKept = 1 << 13

// NewAbsences makes one whose buckets get perSecond tokens a second and hold burst; both must be at least 1.
func NewAbsences(perSecond float64, burst int) *Absences {
	return &Absences{
		seed: maphash.MakeSeed(), first: rate.NewLimiter(rate.Limit(perSecond), burst), repeat: rate.NewLimiter(rate.Limit(perSecond), burst),
	}
}

// Admit says whether the absence of key, found at now, is to be stored.
func (a *Absences) Admit(key string, now time.Time) bool {
	d := max(1, maphash.String(a.seed, key)) // 0 is an empty place
	place := &a.refused[d%absencesKept]
	if place.CompareAndSwap(d, 0) {
		if a.repeat.AllowN(now, 1) {
			return true
		}
	} else if a.first.AllowN(now, 1) {
		return true
	}
	place.Store(d)
	return false
}
