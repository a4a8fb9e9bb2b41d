// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import "fmt"

// checkCopies checks what says on how many nodes an entry is.
func (c *CacheConfig[V]) checkCopies() error {
	for _, f := range []struct {
		field string
		value int
	}{{"HotCopies", c.HotCopies}, {"Copies", c.Copies}, {"CopiesVoided", c.CopiesVoided}} {
		switch {
		case f.value < 0:
			return &ConfigError{"CacheConfig." + f.field, f.value, "must not be negative (0 means no copies)"}
		case f.value > 0 && c.Truth:
			return &ConfigError{"CacheConfig." + f.field, f.value, "must be 0 in a cache that is itself the truth (Truth): a copy is of what a loader can bring again"}
		}
	}
	if c.CopiesVoided != 0 && c.CopiesVoided < c.Copies {
		return &ConfigError{"CacheConfig.CopiesVoided", c.CopiesVoided, fmt.Sprintf("must be 0 or at least Copies (%d): copies would be left behind", c.Copies)}
	}
	return nil
}
