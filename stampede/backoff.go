// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import "time"

// Backoff is how long to leave something alone that has failed n times in a row
// (n from 1): first doubled n-1 times, at most most, of which a random half is taken
// off, so that those who failed together do not try again together. The result lies in
// [d/2, d] for d = min(first * 2^(n-1), most). draw is uniform in [0, 1), as from
// rand.Float64. It is a pure function.
func Backoff(n int, first, most time.Duration, draw float64) time.Duration {
	d := min(first, most)
	for ; n > 1 && d < most; n-- {
		d += min(d, most-d) // doubles without overflow
	}
	return d - time.Duration(float64(d/2)*unit(draw))
}
