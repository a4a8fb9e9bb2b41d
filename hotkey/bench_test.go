// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-shelf/shelf/hotkey"
)

// trace is n keys drawn from a Zipf distribution.
func trace(n int, s float64, keys uint64) []string {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), s, 1, keys-1)
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("product:%07d:v3", zipf.Uint64())
	}
	return names
}

func BenchmarkObserve(b *testing.B) {
	for _, bm := range []struct {
		name string
		keys []string
		gap  time.Duration // 1 s over the reads a second
	}{
		{"one-hot-key", trace(1, 2, 2), time.Microsecond},
		{"zipf", trace(1<<16, 1.1, 1_000_000), 10 * time.Microsecond},
		{"all-cold", trace(1<<16, 1.0001, 10_000_000), 100 * time.Microsecond},
		{"all-cold-contested", trace(1<<16, 1.0001, 10_000_000), time.Microsecond},
	} {
		b.Run(bm.name, func(b *testing.B) {
			d := mustNew(b, hotkey.Config{})
			now, i := time.Now(), 0
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(bm.gap)
				d.Observe(bm.keys[i], now)
				if i++; i == len(bm.keys) {
					i = 0
				}
			}
		})
	}
}

// BenchmarkCount is the amortised cost of a read where there are many: sampling has set in after the first 5,000. The clock is the real one, read once for many.
func BenchmarkCount(b *testing.B) {
	for _, bm := range []struct {
		name string
		keys []string
	}{
		{"one-hot-key", trace(1, 2, 2)},
		{"zipf", trace(1<<16, 1.1, 1_000_000)},
		{"all-cold", trace(1<<16, 1.0001, 10_000_000)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			d := mustNew(b, hotkey.Config{})
			now, i, n := time.Now(), 0, 0
			b.ReportAllocs()
			for b.Loop() {
				if n++; n%64 == 0 {
					now = time.Now()
				}
				d.Count(bm.keys[i], 100, now)
				if i++; i == len(bm.keys) {
					i = 0
				}
			}
		})
	}
}

func BenchmarkObserveParallel(b *testing.B) {
	keys := trace(1<<16, 1.1, 1_000_000)
	d := mustNew(b, hotkey.Config{})
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		now, i := time.Now(), rand.IntN(len(keys))
		for pb.Next() {
			now = now.Add(10 * time.Microsecond)
			d.Observe(keys[i], now)
			if i++; i == len(keys) {
				i = 0
			}
		}
	})
}

func BenchmarkHot(b *testing.B) {
	d := mustNew(b, hotkey.Config{})
	now := time.Now()
	d.Observe("k", now)
	b.ReportAllocs()
	for b.Loop() {
		d.Hot("k", now)
	}
}

func BenchmarkTop(b *testing.B) {
	d := mustNew(b, hotkey.Config{})
	now := time.Now()
	for _, key := range trace(1<<18, 1.1, 1_000_000) {
		now = now.Add(2 * time.Microsecond)
		d.Observe(key, now)
	}
	b.ReportAllocs()
	for b.Loop() {
		d.Top(20, now)
	}
}
