// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

// TryAcquireBelow takes a place for work in the background: only where fewer than limit places are taken, by anybody, and nobody waits for one. It
// never waits itself, and never shares a place. So those who wait are served first, and Max-limit places are never the background's to take.
//
// An Acquire that goes on at this very moment may count a little later: then one place more is taken. Between callers of this method
// the count is exact.
func (l *Limiter) TryAcquireBelow(limit int) (*Place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stats.Running >= limit || !l.free.TryAcquire(1) { // the semaphore says no while somebody is in its queue
		return nil, false
	}
	return l.seated(), true
}
