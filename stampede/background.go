// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

// TryAcquireBelow takes a place for work in the background: only where fewer than limit places are taken, by anybody, and nobody waits for one. It
// never waits itself, and never shares a place. So those who wait are served first, and Max-limit places are never the background's to take. While the
// cap is below Max, limit is as much smaller, but not below 1.
func (l *Limiter) TryAcquireBelow(limit int) (*Place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cap < l.config.Max && limit > 0 {
		limit = max(1, limit*l.cap/l.config.Max)
	}
	if l.stats.Running >= min(limit, l.cap) {
		return nil, false
	}
	return l.seated(), true
}
