// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"time"

	"github.com/go-shelf/shelf/hotkey"
)

// KeyRate is a key and how often it is read, with the bounds of that.
type KeyRate = hotkey.KeyRate

// TopKeys returns the n keys that this process reads most, highest rate first, at most 1,024; keys that are read less than a sixteenth of HotRate are not known. Nil but with
// L1Hot. It sorts all keys that are tracked, some 100 us: for reports.
func (c *Cache[V]) TopKeys(n int) []KeyRate {
	if c.hot == nil {
		return nil
	}
	return c.hot.Top(n, time.Now())
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

// countSize counts the read of a large value once more, by its size.
func (c *Cache[V]) countSize(key string, size int, now time.Time) {
	if c.hot != nil && size >= largeRead {
		c.hot.Count(key, size, now)
	}
}

// largeRead is the size, in bytes, from which a value counts by it.
const largeRead = 4096

// keeps says whether this process keeps copies of a key.
func (c *Cache[V]) keeps(key string, now time.Time) bool {
	return c.l1 != nil && (c.hot == nil || c.hot.Hot(key, now))
}
