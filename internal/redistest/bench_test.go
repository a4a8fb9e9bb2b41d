// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
)

// BenchmarkProxy is the price of a proxy without faults: the same work with and
// without it. The reported p50 is that of one round trip.
func BenchmarkProxy(b *testing.B) {
	s := redistest.Start(b, redistest.Config{})
	p := redistest.StartProxy(b, s.Addr())
	for name, addr := range map[string]string{"direct": s.Addr(), "proxy": p.Addr()} {
		b.Run("ping/"+name, func(b *testing.B) {
			c := through(b, addr, "")
			ping(b, c)
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				took = append(took, ping(b, c))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
		})
		b.Run("get1MB/"+name, func(b *testing.B) {
			set(b, s, "k", strings.Repeat("v", 1<<20))
			c := through(b, addr, "")
			b.SetBytes(1 << 20)
			for b.Loop() {
				if err := c.Get(b.Context(), "k").Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("get16connections/"+name, func(b *testing.B) {
			set(b, s, "small", "v")
			clients := make([]*redis.Client, 16)
			for i := range clients {
				clients[i] = through(b, addr, "")
				ping(b, clients[i])
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for i, c := range clients {
				wg.Go(func() {
					for n := i; n < b.N; n += len(clients) {
						if err := c.Get(b.Context(), "small").Err(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
