// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"
)

// poor is a hash that puts many keys into few places, and some of them into the very same.
func poor(k int) uint64 { return uint64(k%97) | hashBit }

func poorItem(k int) *item[int] { return newItem(poor(k), fmt.Sprint("k", k), k, 0, 0) }

// A table does what a map does, also where hashes meet: of thousands of additions, replacements and removals none loses a neighbour, and
// what is gone does not use it up for ever.
func TestIndexIsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, keys := range []int{5, 40, 300} {
		var x index[int]
		x.clear()
		there := make(map[int]*item[int])
		for range 20_000 {
			k := rng.IntN(keys)
			old, is := there[k]
			switch i := poorItem(k); {
			case !is:
				x.add(i)
				there[k] = i
			case rng.IntN(3) == 0:
				x.replace(old, i)
				there[k] = i
			default:
				x.remove(old)
				delete(there, k)
			}
			k = rng.IntN(keys)
			if found := x.find(poor(k), fmt.Sprint("k", k)); found != there[k] {
				t.Fatalf("%d keys: found %v for %d, want %v", keys, found, k, there[k])
			}
		}
		checkIndex(t, &x, 0, len(there))
		for k, i := range there {
			if x.find(i.hash, i.key) != i {
				t.Errorf("%d keys: %d is not found", keys, k)
			}
		}
		if slots := len(x.table.Load().slots); slots > 4*keys+fewestSlots {
			t.Errorf("%d keys have come to take %d slots", keys, slots)
		}
		for _, i := range slices.Collect(maps.Values(there)) {
			x.remove(i)
		}
		if checkIndex(t, &x, 0, 0); x.used != 0 {
			t.Errorf("%d keys: %d slots are used by nothing", keys, x.used)
		}
	}
}

// Who reads without the lock finds what is there all the while, whatever comes, goes and is replaced around it, and never what went before the read began.
func TestIndexReadsWithoutLock(t *testing.T) {
	const stay, others, rounds = 20, 200, 20_000
	var x index[int]
	x.clear()
	var kept [stay]*item[int]
	for k := range kept {
		kept[k] = poorItem(k)
		x.add(kept[k])
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	for range 2 {
		wg.Go(func() { lookWhileItChanges(t, &x, stay, done) })
	}
	rng := rand.New(rand.NewPCG(5, 6))
	there := make(map[int]*item[int])
	for n := range rounds {
		k := stay + rng.IntN(others)
		if old := there[k]; old == nil {
			there[k] = poorItem(k)
			x.add(there[k])
		} else {
			x.remove(old)
			delete(there, k)
			if i := x.find(old.hash, old.key); i != nil {
				t.Fatalf("found %v after it was removed", i.key)
			}
		}
		if k = n % stay; n%4 == 0 {
			i := poorItem(k)
			x.replace(kept[k], i)
			kept[k] = i
		}
		if n%16 == 0 {
			x.rebuild()
		}
	}
	checkIndex(t, &x, 0, stay+len(there))
}

// lookWhileItChanges looks for the first keys again and again.
func lookWhileItChanges(t *testing.T, x *index[int], keys int, done <-chan struct{}) {
	names := make([]string, keys)
	for k := range names {
		names[k] = fmt.Sprint("k", k)
	}
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		default:
		}
		k := n % keys
		if i := x.find(poor(k), names[k]); i == nil || i.value != k {
			t.Errorf("look %d: found %v for %s, which is there all the while", n, i, names[k])
			return
		}
	}
}

// TestItemBeginsWithALine: what a search compares, and when the item ends, is one cache line; the value comes next.
func TestItemBeginsWithALine(t *testing.T) {
	var i item[string]
	if before := unsafe.Offsetof(i.value); before != 64 {
		t.Errorf("the value begins at %d, want 64", before)
	}
	if behind := unsafe.Sizeof(i) - unsafe.Offsetof(i.value) - unsafe.Sizeof(i.value); behind > 32 {
		t.Errorf("%d bytes are behind it, want 32 at most", behind)
	}
}
