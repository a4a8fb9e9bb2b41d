// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"strings"
	"testing"
	"time"
	"unsafe"
)

// TestKeysAreCopied: the key of an entry does not keep the string alive that it was cut out of, also when the entry is replaced; and only a new
// entry pays for the copy.
func TestKeysAreCopied(t *testing.T) {
	c, err := New[int](Config{})
	if err != nil {
		t.Fatal(err)
	}
	request := strings.Repeat("x", 1<<20) + "key"
	cut := request[1<<20:]
	now := time.Now()
	store := func() {
		if !c.Commit(c.Begin(cut), 1, 8, now.Add(time.Hour), now) {
			t.Error("refused")
		}
	}
	for range 2 {
		store()
		if held := c.shard(cut).held.oldest.key; held != cut || unsafe.StringData(held) == unsafe.StringData(cut) {
			t.Errorf("%q is part of the request", held)
		}
	}
	if n := testing.AllocsPerRun(100, store); n > 0 {
		t.Errorf("%v allocations to replace an entry", n)
	}
}
