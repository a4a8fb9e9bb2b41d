// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
)

// TestL1Modes: which keys a cache keeps is its own choice: the hot ones, every one, or none.
func TestL1Modes(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		cl := open(t, cfg)
		cache := func(schema int, mode client.L1Mode) *client.Cache[string] {
			return newCache(t, cl, client.CacheConfig[string]{Name: "x", Schema: schema, TTL: time.Hour, Load: echo, NoEarlyRefresh: true, L1: mode})
		}
		hot, all, off := cache(0, client.L1Hot), cache(1, client.L1All), cache(2, client.L1Off)
		layer := func(c *client.Cache[string], key string) client.Layer {
			t.Helper()
			r, err := c.Lookup(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return r.Layer
		}
		for end := time.Now().Add(20 * time.Second); layer(all, "often") != client.LayerL1 && time.Now().Before(end); { // until the node pushes
			time.Sleep(time.Millisecond)
		}
		for _, c := range []*client.Cache[string]{hot, all, off} {
			for range 3 {
				get(t, c, "seldom")
			}
			for range 1000 {
				get(t, c, "often")
			}
		}
		for _, want := range []struct {
			c     *client.Cache[string]
			key   string
			layer client.Layer
		}{
			{hot, "seldom", client.LayerL2}, {hot, "often", client.LayerL1},
			{all, "seldom", client.LayerL1}, {all, "often", client.LayerL1},
			{off, "seldom", client.LayerL2}, {off, "often", client.LayerL2},
		} {
			l := layer(want.c, want.key)
			for end := time.Now().Add(10 * time.Second); l != want.layer && want.layer == client.LayerL1 && time.Now().Before(end); {
				l = layer(want.c, want.key) // the push of its own fill, which comes late, may have taken the copy away
			}
			if l != want.layer {
				_, name := want.c.Where(want.key)
				t.Errorf("%s is read from %v, want %v", name, l, want.layer)
			}
		}
		if s := off.Stats(); s.L1Entries != 0 || s.L1Hits != 0 {
			t.Errorf("a cache without L1 has %+v", s)
		}
	})
}

// TestL1Budget: whatever is read, invalidated and replaced at the same time, L1 never holds more than its bytes, counted as the values are in memory and not as they were
// compressed on the wire. A value that is larger than all of it is not kept.
func TestL1Budget(t *testing.T) {
	const budget, large = 2 << 20, 300 << 10
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		cl := open(t, cfg)
		size := func(key string) int {
			if key == "huge" {
				return budget
			}
			return large/2 + len(key)*large/8
		}
		c := newCache(t, cl, client.CacheConfig[[]byte]{Name: "x", TTL: time.Hour, NoEarlyRefresh: true, L1: client.L1All, L1MaxBytes: budget, Compression: client.CompressS2, MaxValueBytes: 4 << 20,
			Load: func(_ context.Context, key string) ([]byte, error) {
				return []byte(strings.Repeat("v", size(key))), nil
			}})
		within := func() {
			if s := c.Stats(); s.L1Bytes > budget || int64(s.L1Entries)*large/2 > budget {
				t.Errorf("L1 has %d entries of 150 KiB and more, by its own account %d bytes, in %d", s.L1Entries, s.L1Bytes, budget)
			}
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 30 {
					key := fmt.Sprint(rand.IntN(1000))
					for range 3 {
						if v, err := c.Get(t.Context(), key); err != nil || len(v) != size(key) {
							t.Errorf("%d bytes, %v", len(v), err)
						}
					}
					if within(); rand.IntN(4) == 0 {
						if err := c.Invalidate(t.Context(), key); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		if s := c.Stats(); s.L1Entries < 2 || s.L1Hits == 0 {
			t.Errorf("L1 holds %d entries, and has answered %d reads", s.L1Entries, s.L1Hits)
		}
		for range 3 {
			if r, err := c.Lookup(t.Context(), "huge"); err != nil || r.Layer == client.LayerL1 {
				t.Errorf("huge: from %v, %v", r.Layer, err)
			}
		}
		within()
	})
}
