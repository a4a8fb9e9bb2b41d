// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestFilterSize: memory and the share of false positives are those of the formula, or a fifth more at most, from small filters to ten million keys; and no key is lost.
func TestFilterSize(t *testing.T) {
	sizes := []int{1, 100, 1000, 16_384, 100_000, bigFilter}
	for _, n := range sizes {
		for _, p := range []float64{0.01, 0.001} {
			if n == bigFilter && p != 0.01 {
				continue
			}
			t.Run(fmt.Sprintf("%d at %v", n, p), func(t *testing.T) { checkSize(t, n, p) })
		}
	}
}

func checkSize(t *testing.T, n int, p float64) {
	b := newFilterBits(n, p)
	for i := range n {
		b.add(digestOf("key " + strconv.Itoa(i)))
	}
	for i := range n {
		if !b.has(digestOf("key " + strconv.Itoa(i))) {
			t.Fatalf("key %d is lost", i)
		}
	}
	bytes := float64(n) * math.Log(1/p) / (math.Ln2 * math.Ln2) / 8
	if got := float64(b.size()); got > 1.2*bytes+8 {
		t.Errorf("%.0f bytes, computed %.0f", got, bytes)
	}
	absent, falses := 500_000, 0
	for i := range absent {
		if b.has(digestOf("absent " + strconv.Itoa(i))) {
			falses++
		}
	}
	rate, keys := float64(falses)/float64(absent), b.keys()
	if n >= 1000 && (rate > 1.2*p || rate < p/2) {
		t.Errorf("%.5f false positives, want %v", rate, p)
	}
	if likely := b.likely(); n >= 1000 && (likely > 1.2*rate || likely < rate/1.2) {
		t.Errorf("the filter expects %.5f false positives, it has %.5f", likely, rate)
	}
	if keys > n || float64(keys) < 0.98*float64(n) {
		t.Errorf("it counts %d keys of %d", keys, n)
	}
	t.Logf("%d keys: %d stripes, %d bytes (computed %.0f), %.5f false positives (%v)", n, len(b.stripes), b.size(), bytes, rate, p)
}

// TestFilterStripesTravel: what is written of each stripe and read into another filter of the same size makes the same filter; what is cut, longer, or of another size is
// refused.
func TestFilterStripesTravel(t *testing.T) {
	const n = 50_000
	a, b := newFilterBits(n, 0.01), newFilterBits(n, 0.01)
	for i := range n {
		a.add(digestOf(strconv.Itoa(i)))
	}
	for i := range a.stripes {
		data, err := a.write(i)
		if err != nil {
			t.Fatal(err)
		}
		other := newFilterBits(n+1000, 0.01)
		for _, wrong := range [][]byte{nil, data[:7], data[:len(data)-1], append(data[:len(data):len(data)], 0)} {
			if b.read(i, wrong) == nil {
				t.Errorf("%d bytes of %d are taken", len(wrong), len(data))
			}
		}
		if other.read(i, data) == nil {
			t.Error("a stripe of another size is taken")
		}
		if err := b.read(i, data); err != nil {
			t.Fatal(err)
		}
	}
	if a.keys() != b.keys() {
		t.Errorf("%d keys have become %d", a.keys(), b.keys())
	}
	for i := range n {
		if !b.has(digestOf(strconv.Itoa(i))) {
			t.Fatalf("key %d is lost", i)
		}
	}
}

// TestFilterDigests are the same for ever: feeds and builds of other releases hold them.
func TestFilterDigests(t *testing.T) {
	for key, want := range map[string]digest{"": 0xef46db3751d8e999, "a": 0xd24ec4f1a98c6e5b, "product:4411": 0xd6ed7bd327a51412} {
		if got := digestOf(key); got != want {
			t.Errorf("%q: %#x, want %#x", key, got, want)
		}
	}
}

// BenchmarkFilter is a question to a filter of ten million keys, through all of Absent.
func BenchmarkFilter(b *testing.B) {
	const n = 10_000_000
	f := &Filter{cfg: FilterConfig{RebuildEvery: time.Hour}, base: time.Now(), scanned: time.Now()}
	set := newFilterBits(n, 0.01)
	for i := range n {
		set.add(digest(uint64(i) * 0x9e3779b97f4a7c15))
	}
	f.sets.Store(&filterSets{current: set})
	f.believe()
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = "product:" + strconv.Itoa(i)
	}
	now := time.Now()
	b.Run("absent", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			f.Absent(keys[i&(1<<16-1)], now)
		}
	})
	b.Run("absent, parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				f.Absent(keys[i&(1<<16-1)], now)
			}
		})
	})
	b.Run("present", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i++ {
			set.has(digest(i % n * 0x9e3779b97f4a7c15))
		}
	})
	b.Run("absent while others add", func(b *testing.B) {
		stop := make(chan struct{})
		var adds sync.WaitGroup
		adds.Go(func() {
			for i := uint64(0); ; i++ {
				select {
				case <-stop:
					return
				default:
					set.add(digest(i % n * 0x9e3779b97f4a7c15))
				}
			}
		})
		for i := 0; b.Loop(); i++ {
			f.Absent(keys[i&(1<<16-1)], now)
		}
		close(stop)
		adds.Wait()
	})
	b.Run("add", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i++ {
			set.add(digest(i % n * 0x9e3779b97f4a7c15))
		}
	})
}
