// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import "time"

// minTTL is the shortest lifetime that Jitter gives; nodes count in milliseconds
// and refuse 0.
const minTTL = time.Millisecond

// Jitter shortens ttl by a random part of at most share, so that entries
// which were stored together do not expire together. It never lengthens: a TTL is
// a promise of how old an entry can get.
//
// The result is uniform in [ttl*(1-share), ttl]; its mean is ttl*(1-share/2). It is
// exactly ttl when share is 0. Below 1 ms it is 1 ms, whatever ttl. share outside [0, 1]
// counts as the nearer end, NaN as 0; draw is uniform in [0, 1), as from
// rand.Float64. It is a pure function.
func Jitter(ttl time.Duration, share, draw float64) time.Duration {
	off := float64(ttl) * unit(share) * unit(draw)
	if off >= float64(ttl) { // also keeps 2^63, which is no int64, from the conversion
		return minTTL
	}
	return max(ttl-time.Duration(off), minTTL)
}

// unit clamps x to [0, 1], NaN to 0.
func unit(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, 1)
}
