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

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// TestGetManyPastASilentNode: the replies of the others are read in time whatever the order of the nodes. Only the silent one's keys are loaded, and only it has failed.
func TestGetManyPastASilentNode(t *testing.T) {
	const nodes = 4
	cfg := client.Config{OperationTimeout: 300 * time.Millisecond}
	var proxies []*redistest.Proxy
	for i, s := range redistest.StartNodes(t, nodes) {
		p := redistest.StartProxy(t, s.Addr())
		proxies = append(proxies, p)
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: fmt.Sprint("node-", i), Addr: p.Addr()})
	}
	keys, rows := numbered(100)
	src := newSource(rows)
	var calls [][]string
	c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Hour, NoEarlyRefresh: true, L1: client.L1Off, LoadMany: src.loadMany(&calls)})
	eventually(t, "all keys read from their owners", func() bool {
		before := c.Stats().L2Hits
		m, err := c.GetMany(t.Context(), keys)
		return err == nil && len(m) == len(keys) && c.Stats().L2Hits == before+uint64(len(keys))
	})
	for i, p := range proxies {
		p.BlackHole()
		var lost []string
		for _, k := range keys {
			if node, _ := c.Where(k); node == cfg.Nodes[i].ID {
				lost = append(lost, k)
			}
		}
		calls = nil
		before := c.Stats()
		start := time.Now()
		m, err := c.GetMany(context.Background(), keys)
		took := time.Since(start)
		if err != nil || len(m) != len(keys) {
			t.Errorf("node %d silent: %d values, %v", i, len(m), err)
		}
		var loaded []string
		for _, call := range calls {
			loaded = append(loaded, call...)
		}
		slices.Sort(loaded)
		if slices.Sort(lost); !slices.Equal(loaded, lost) {
			t.Errorf("node %d silent: %d keys were loaded, want its own %d", i, len(loaded), len(lost))
		}
		if hits := c.Stats().L2Hits - before.L2Hits; hits != uint64(len(keys)-len(lost)) {
			t.Errorf("node %d silent: %d hits, want %d", i, hits, len(keys)-len(lost))
		}
		if took > 3*cfg.OperationTimeout+time.Second {
			t.Errorf("node %d silent: it took %v", i, took)
		}
		p.Heal()
		eventually(t, "healed", func() bool {
			before := c.Stats().L2Hits
			m, err := c.GetMany(t.Context(), keys)
			return err == nil && len(m) == len(keys) && c.Stats().L2Hits == before+uint64(len(keys))
		})
	}
}

// TestGetManyOfAllKinds: entries of every form in one batch, among keys that are not there: small, empty, compressed, with a payload apart, with tags that were
// invalidated or not; by several callers at once.
func TestGetManyOfAllKinds(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		rows := map[string]string{}
		var keys []string
		for i := range 60 {
			k := fmt.Sprint("k", i)
			rows[k] = []string{"", k, strings.Repeat(k, 100), sized(k, 5000), k + ",tag", k + ",old"}[i%6]
			keys = append(keys, k)
		}
		src := newSource(rows)
		var calls [][]string
		conf := client.CacheConfig[string]{
			Name: "x", TTL: time.Minute, NoEarlyRefresh: true, L1: client.L1Off, LargeValueBytes: 2000, Compression: client.CompressS2, CompressAbove: 100,
			Tags: func(v string) []string {
				return strings.Split(v, ",")[min(1, strings.Count(v, ",")):][:strings.Count(v, ",")]
			}, LoadMany: src.loadMany(&calls),
		}
		filler, c := newCache(t, open(t, cfg), conf), newCache(t, open(t, cfg), conf)
		asked := append(slices.Clone(keys), "none-1", "none-2", keys[3], keys[3])
		if m, err := filler.GetMany(t.Context(), asked); err != nil || len(m) != len(keys) {
			t.Fatalf("%d values, %v", len(m), err)
		}
		if err := filler.InvalidateTag(t.Context(), "old"); err != nil {
			t.Fatal(err)
		}
		calls = nil
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				m, err := c.GetMany(t.Context(), asked)
				if err != nil || len(m) != len(keys) {
					t.Errorf("%d values, %v", len(m), err)
				}
				for k, v := range rows {
					if m[k] != v {
						t.Errorf("%s is %.50q, want %.50q", k, m[k], v)
					}
				}
			})
		}
		wg.Wait()
		loaded := map[string]int{}
		for _, call := range calls {
			for _, k := range call {
				if loaded[k]++; !strings.HasSuffix(rows[k], ",old") || loaded[k] > 1 {
					t.Errorf("%s was loaded, %d times", k, loaded[k])
				}
			}
		}
		if len(loaded) != 10 {
			t.Errorf("%d keys were loaded, want those of the invalidated tag, 10", len(loaded))
		}
	})
}

// TestGetManyBytesAreTheCallers: what a caller does with one value changes no other, nor what later batches get.
func TestGetManyBytesAreTheCallers(t *testing.T) {
	onBackends(t, 2, func(t *testing.T, cfg client.Config) {
		c := newCache(t, open(t, cfg), client.CacheConfig[[]byte]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true, Load: func(_ context.Context, key string) ([]byte, error) {
			return bytes.Repeat([]byte(key), 10), nil
		}})
		keys, _ := numbered(40)
		others := make([]string, 30) // whose values lie elsewhere in their nodes' replies
		for i := range others {
			others[i] = fmt.Sprint("another-", i)
		}
		var before []map[string][]byte
		for range 4 {
			m, err := c.GetMany(t.Context(), keys)
			if err != nil || len(m) != len(keys) {
				t.Fatalf("%d values, %v", len(m), err)
			}
			for _, k := range keys[:20] { // the second half is left alone, and looked at again at the end
				if !bytes.Equal(m[k], bytes.Repeat([]byte(k), 10)) {
					t.Fatalf("%s is %q", k, m[k])
				}
				clear(append(m[k], m[k]...))
				clear(m[k])
			}
			before = append(before, m)
			if m, err := c.GetMany(t.Context(), others); err != nil || len(m) != len(others) {
				t.Fatalf("%d values, %v", len(m), err)
			}
		}
		for _, m := range before {
			for _, k := range keys[20:] {
				if !bytes.Equal(m[k], bytes.Repeat([]byte(k), 10)) {
					t.Errorf("%s has become %q", k, m[k])
				}
			}
		}
	})
}

// TestGetManyAllocations: a batch whose keys are there costs an allocation for each value, and a few for each node.
func TestGetManyAllocations(t *testing.T) {
	if slowdown > 1 {
		t.Log("not counted: the race detector allocates too")
		return
	}
	const nodes = 8
	c := newCache(t, open(t, realNodes(t, nodes)), client.CacheConfig[string]{Name: "x", TTL: time.Hour, L1: client.L1Off, NoEarlyRefresh: true, Load: echo})
	keys, _ := numbered(100)
	for range 20 {
		if _, err := c.GetMany(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
	}
	got := testing.AllocsPerRun(200, func() {
		if m, err := c.GetMany(t.Context(), keys); err != nil || len(m) != len(keys) {
			t.Fatal(len(m), err)
		}
	})
	if most := float64(len(keys) + 6*nodes); got > most {
		t.Errorf("%v allocations a batch of %d keys, want at most %v", got, len(keys), most)
	}
}
