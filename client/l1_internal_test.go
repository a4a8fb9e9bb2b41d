// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"math"
	"testing"
	"unsafe"

	"github.com/go-shelf/shelf/ring"
)

// TestL1EntryIsNarrow: behind a key that takes one cache line, what a hit looks at ends in the second, and the whole is three, which is a size that the allocator
// aligns to lines.
func TestL1EntryIsNarrow(t *testing.T) {
	var e l1Entry[string]
	if hot := unsafe.Offsetof(e.tags); hot > 64 {
		t.Errorf("a hit looks at %d bytes, want 64 at most", hot)
	}
	if size := unsafe.Sizeof(e); size > 96 {
		t.Errorf("it has %d bytes, want 96 at most: with those of localcache 192", size)
	}
	if ring.MaxNodes > math.MaxUint16+1 {
		t.Errorf("there may be %d nodes: owner has no room for that", ring.MaxNodes)
	}
}
