// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"strings"
	"testing"
	"time"
	"unsafe"
)

// TestKeysAreCopied: the key of an entry does not keep the string alive that it was cut out of, whether it is short enough to lie in the entry or not, also when the entry
// is replaced. An entry is one allocation, and one more for a long key.
func TestKeysAreCopied(t *testing.T) {
	for _, tc := range []struct {
		key    string
		allocs float64
	}{{"", 1}, {"key", 1}, {strings.Repeat("k", 32), 1}, {strings.Repeat("k", 33), 2}, {strings.Repeat("k", 1000), 2}} {
		c, err := New[int](Config{})
		if err != nil {
			t.Fatal(err)
		}
		request := strings.Repeat("x", 1<<20) + tc.key + "x"
		cut := request[1<<20 : len(request)-1]
		now := time.Now()
		store := func() {
			if !c.Commit(c.Begin(cut), 1, 8, now.Add(time.Hour), now) {
				t.Error("refused")
			}
		}
		for range 2 {
			store()
			if held := c.shard(c.hash(cut)).held.oldest.key; held != cut || cut != "" && unsafe.StringData(held) == unsafe.StringData(cut) {
				t.Errorf("%q is part of the request", held)
			}
		}
		if n := testing.AllocsPerRun(100, store); n > tc.allocs {
			t.Errorf("%d bytes: %v allocations to replace an entry, want %v", len(cut), n, tc.allocs)
		}
	}
}
