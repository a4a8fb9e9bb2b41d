// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
)

const (
	besideRounds  = 6 // of each variant, in turn, so that what else the machine does hits all alike
	besideTime    = 2 * time.Second
	besideReaders = 50 // of small keys, 100 reads a second each
	besideSmall   = 100
)

// BenchmarkLargeBeside is what small reads (5,000 a second, 100 keys of 100 bytes) suffer from large ones (20 a second, 1 MiB) of the same node: through
// a cache with its own path for large values, through one without it, and with the bare driver over a pool of the same size.
//
//	go test -run '^$' -bench LargeBeside -benchtime 1x ./client
func BenchmarkLargeBeside(b *testing.B) {
	cfg := realNodes(b, 1)
	cl := open(b, cfg)
	ctx := b.Context()
	load := func(_ context.Context, key string) ([]byte, error) {
		if key == "large" {
			return bytes.Repeat([]byte("x"), 1<<20), nil
		}
		return make([]byte, 100), nil
	}
	conf := client.CacheConfig[[]byte]{Name: "own", TTL: time.Hour, L1: client.L1Off, NoEarlyRefresh: true, Load: load}
	own := newCache(b, cl, conf)
	conf.Name, conf.LargeValueBytes = "shared", 1<<20
	shared := newCache(b, cl, conf)
	driver := redis.NewClient(&redis.Options{Addr: cfg.Nodes[0].Addr, PoolSize: 16, ContextTimeoutEnabled: true, DisableIdentity: true})
	defer driver.Close()
	keys := []string{"large"}
	for i := range besideSmall {
		keys = append(keys, fmt.Sprint(i))
	}
	for _, key := range keys {
		v, _ := load(ctx, key)
		if err := driver.Set(ctx, "plain:"+key, v, 0).Err(); err != nil {
			b.Fatal(err)
		}
	}
	variants := []struct {
		name string
		get  func(key string) error
	}{
		{"driver", func(key string) error { return driver.Get(ctx, "plain:"+key).Err() }},
		{"own path", func(key string) error { _, err := own.Get(ctx, key); return err }},
		{"no own path", func(key string) error { _, err := shared.Get(ctx, key); return err }},
	}
	table := "\n%-12s %-6s %9s %9s %9s   p99 of each round\n"
	out := new(strings.Builder)
	fmt.Fprintf(out, table, "variant", "large", "p50", "p99", "p99.9")
	for _, perSecond := range []int{0, 20} {
		all, each := make([][]time.Duration, len(variants)), make([][]time.Duration, len(variants))
		for range besideRounds {
			for i, v := range variants {
				got := beside(b, v.get, keys[1:], perSecond)
				all[i], each[i] = append(all[i], got...), append(each[i], quantile(got, 0.99))
			}
		}
		for i, v := range variants {
			fmt.Fprintf(out, "%-12s %2d/s   %9v %9v %9v   %v\n", v.name, perSecond, quantile(all[i], 0.5), quantile(all[i], 0.99), quantile(all[i], 0.999), each[i])
			b.ReportMetric(float64(quantile(all[i], 0.99).Microseconds()), fmt.Sprintf("%s-%d-p99-us", strings.ReplaceAll(v.name, " ", "-"), perSecond))
		}
	}
	b.Log(out.String())
}

// beside is one round: the latencies of the small reads.
func beside(b *testing.B, get func(string) error, small []string, large int) []time.Duration {
	for _, key := range append([]string{"large"}, small...) { // connections and entries are there
		if err := get(key); err != nil {
			b.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var larges, smalls sync.WaitGroup
	if large > 0 {
		larges.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(large))
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					if err := get("large"); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	took := make([][]time.Duration, besideReaders)
	begin := time.Now()
	for r := range besideReaders {
		smalls.Go(func() {
			const every = time.Second * besideReaders / 5000
			for next := begin.Add(every * time.Duration(r) / besideReaders); next.Before(begin.Add(besideTime)); next = next.Add(every) {
				time.Sleep(time.Until(next))
				start := time.Now()
				if err := get(small[(r+len(took[r])*besideReaders)%len(small)]); err != nil {
					b.Error(err)
				}
				took[r] = append(took[r], time.Since(start))
			}
		})
	}
	smalls.Wait()
	close(stop)
	larges.Wait()
	return slices.Concat(took...)
}

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)-1, int(float64(len(d))*q))].Round(time.Microsecond)
}
