// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-shelf/shelf/localcache"
)

// filled returns a cache with n entries and their keys in random order.
func filled(b *testing.B, n int) (*localcache.Cache[[]byte], []string, time.Time) {
	b.Helper()
	c := mustNew[[]byte](b, localcache.Config{MaxEntries: 2*n + 1000})
	now := time.Now()
	keys := make([]string, n)
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		keys[i] = fmt.Sprintf("product:%07d:v3", k)
		put(b, c, keys[i], make([]byte, 100), 100, now.Add(time.Hour), now)
	}
	return c, keys, now
}

func BenchmarkHit(b *testing.B) {
	for _, n := range []int{300, 1_000, 100_000} {
		b.Run(fmt.Sprint("keys=", n), func(b *testing.B) {
			c, keys, now := filled(b, n)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, ok := c.Get(keys[i], now); !ok {
					b.Fatal("miss")
				}
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}

func BenchmarkHitParallel(b *testing.B) {
	for _, n := range []int{300, 1_000, 100_000} {
		b.Run(fmt.Sprint("keys=", n), func(b *testing.B) {
			c, keys, now := filled(b, n)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				i := rand.IntN(n)
				for pb.Next() {
					if _, ok := c.Get(keys[i], now); !ok {
						b.Error("miss")
						return
					}
					if i++; i == n {
						i = 0
					}
				}
			})
		})
	}
}

// BenchmarkFill is ticket and commit over an entry that is there, and of a new key into a full cache.
func BenchmarkFill(b *testing.B) {
	b.Run("replace", func(b *testing.B) {
		c, keys, now := filled(b, 1_000)
		end, v, i := now.Add(time.Hour), make([]byte, 100), 0
		b.ReportAllocs()
		for b.Loop() {
			c.Commit(c.Begin(keys[i]), v, 100, end, now)
			if i++; i == len(keys) {
				i = 0
			}
		}
	})
	b.Run("evict", func(b *testing.B) {
		_, keys, now := filled(b, 100_000)
		c := mustNew[[]byte](b, localcache.Config{MaxEntries: 20_000})
		end, v, i := now.Add(time.Hour), make([]byte, 100), 0
		b.ReportAllocs()
		for b.Loop() {
			c.Commit(c.Begin(keys[i]), v, 100, end, now)
			if i++; i == len(keys) {
				i = 0
			}
		}
	})
}

func BenchmarkInvalidateAbsent(b *testing.B) {
	c, _, _ := filled(b, 1_000)
	b.ReportAllocs()
	for b.Loop() {
		c.Invalidate("absent")
	}
}
