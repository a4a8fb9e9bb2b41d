// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import "strings"

// pushed takes in what a node says has changed: entries that this process keeps a copy of, entries and leases that somebody waits for, generations.
// nil names: whatever was watched may have changed, and what was read through that Tracking is not served any more. It runs on the
// listener's goroutine, so that a copy is gone before the next push, and before the ping behind it, are read.
func (c *Client) pushed(node int, names []string) {
	if names == nil {
		c.wakes.all()
		return
	}
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, generationPrefix):
			for _, cache := range c.cachesOf(strings.TrimPrefix(name, generationPrefix), ":v") {
				cache.generationPushed(node, name)
			}
			continue
		case strings.HasPrefix(name, leasePrefix):
		default:
			for _, cache := range c.cachesOf(name, ":") {
				cache.entryPushed(name)
			}
		}
		c.wakes.pushed(name) // last: who wakes must not find the old copy
	}
}

// cachesOf are the caches whose name stands at the beginning of a node's name, before end. There is one for each schema.
func (c *Client) cachesOf(name, end string) []registered {
	cache, _, _ := strings.Cut(name, end)
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byName[cache]
}

func (c *Cache[V]) generationPushed(node int, name string) {
	if name == c.names.of.Generation {
		c.views[node].pushes.Add(1)
		c.counters.pushes.Add(1)
	}
}

func (c *Cache[V]) entryPushed(name string) {
	if key, ok := c.names.key(name); ok && c.l1 != nil {
		c.l1.Invalidate(key)
		c.counters.pushes.Add(1)
	}
}
