// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"time"

	"github.com/go-shelf/shelf/hotkey"
)

// KeyRate is a key and how often it is read: by this process, with the bounds of that, and by all of them, as was last heard. Each 4 KiB of a value counts as one more read: one of 300 KiB that is read once
// a second has a rate of 76.
type KeyRate struct {
	hotkey.KeyRate
	Fleet      float64 // reads a second by all processes that read it at an eighth of HotRate or more; up to 7 % low. 0 where this is not known
	FleetNodes float64 // those of them that went to a node: no process had a copy of its own
	FleetHot   bool    // whether the fleet's rate makes it hot, see CacheConfig.HotRate; a key that is kept for this process's own rate, or by Pin, has false
	Copies     int     // on how many nodes it should be for that, its owner counted; 0 where this is not known. See CacheConfig.HotCopies
}

// TopKeys returns the n keys that this process reads most, highest rate first, at most 1,024; keys that are read less than a sixteenth of HotRate are not known. Nil but with
// L1Hot, or HotCopies of 2 or more: without L1Hot it is those that this process asks the nodes for. It sorts all keys that are tracked, some 100 us: for reports.
func (c *Cache[V]) TopKeys(n int) []KeyRate {
	detector := c.hot
	if detector == nil && c.warmth != nil {
		detector = c.warmth.asked
	}
	if detector == nil {
		return nil
	}
	top := detector.Top(n, time.Now())
	rates := make([]KeyRate, len(top))
	for i, r := range top {
		rates[i] = KeyRate{KeyRate: r}
	}
	c.client.heat.fill(c.warmth, rates)
	return rates
}

// Pin makes keys hot whatever their rates, until Unpin: this process keeps its own copies of them. It loads nothing. For a few keys that are known beforehand; no effect but
// with L1Hot.
func (c *Cache[V]) Pin(keys ...string) {
	if c.hot != nil {
		c.hot.Pin(keys...)
	}
}

// Unpin takes pins back.
func (c *Cache[V]) Unpin(keys ...string) {
	if c.hot != nil {
		c.hot.Unpin(keys...)
	}
}

// count counts one read of a key.
func (c *Cache[V]) count(key string, now time.Time) {
	if c.hot != nil {
		c.hot.Count(key, 0, now)
	}
}

// countSize counts the read of a large value that a node sent once more, by its size: each largeRead bytes are one read.
func (c *Cache[V]) countSize(key string, size int, now time.Time) {
	if size >= largeRead {
		c.countKept(key, size, now)
		c.countAsked(key, size-largeRead, now) // which the read itself makes up for
	}
}

// countKept is countSize for this process's own copy, which is large.
func (c *Cache[V]) countKept(key string, size int, now time.Time) {
	if c.hot != nil {
		c.hot.Count(key, size-largeRead, now)
	}
}

// largeRead is the size, in bytes, from which a value counts by it.
const largeRead = 4096

// keeps says whether this process keeps copies of a key.
func (c *Cache[V]) keeps(key string, now time.Time) bool {
	return c.l1 != nil && (c.hot == nil || c.hot.Hot(key, now) || c.fleetHot(key))
}
