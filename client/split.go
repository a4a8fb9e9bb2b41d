// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

// split says that the fleet's rate of a key wants it on k nodes now, its owner counted; below 2: on the owner alone. It holds for splitHold and is
// to be said again while that is so; it is cheap enough to be called once a second a key. Without CacheConfig.HotCopies it does nothing.
func (c *Cache[V]) split(key string, k int) { //nolint:unused // nobody says so yet
	_, _ = key, k
}
