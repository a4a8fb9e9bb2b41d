// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

// What tests of copies need: to say that a key is split, which the measured rate of the fleet says otherwise; to choose the copy, which chance does
// otherwise; and to know where it lies.

// Split is split.
func (c *Cache[V]) Split(key string, k int) { c.split(key, k) }

// Choose sets what a cache draws from [0, 1) for all its random choices. Before its first use.
func (c *Cache[V]) Choose(draw func() float64) { c.draw = draw }

// CopyAt is the id of the node that is the i-th of a key's walk, and the name of a copy there.
func (c *Cache[V]) CopyAt(key string, i int) (node, name string) {
	nodes := c.nodesOf(c.names.data(key), i+1)
	return c.client.nodeID(nodes[i]), c.names.copyKeys(key).Data
}

// SplitRecord is the name of a key's split record, on its owner.
func (c *Cache[V]) SplitRecord(key string) string { return splitPrefix + c.names.data(key) }

// Copying is how many copies are being made now.
func (c *Cache[V]) Copying() int { return c.copies.flight.Running() }
