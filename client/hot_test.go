// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// TestWhatIsHot: L1 keeps keys that are read often, keys whose values are large at fewer reads, and keys that are pinned.
func TestWhatIsHot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(map[string]string{"small": "v", "large": strings.Repeat("v", 256<<10), "often": "v", "pinned": "v"})
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: src.load, NoEarlyRefresh: true, LargeValueBytes: 1 << 20})
		c.Pin("pinned", "unpinned")
		c.Unpin("unpinned")
		for i := range 200 { // two seconds: the large one 10 times a second, "often" 200 times
			time.Sleep(10 * time.Millisecond)
			for range 2 {
				get(t, c, "often")
			}
			if i%10 == 0 {
				get(t, c, "small")
				get(t, c, "large")
			}
		}
		get(t, c, "pinned")
		get(t, c, "pinned")
		for key, layer := range map[string]client.Layer{"small": client.LayerL2, "large": client.LayerL1, "often": client.LayerL1, "pinned": client.LayerL1} {
			if r, err := c.Lookup(t.Context(), key); err != nil || r.Layer != layer {
				t.Errorf("%s is read from %v, %v; want %v", key, r.Layer, err, layer)
			}
		}
		top := c.TopKeys(2)
		if len(top) != 2 || top[0].Key != "large" || top[1].Key != "often" || top[1].Rate < 120 || top[1].Rate > top[1].AtMost {
			t.Errorf("top: %+v", top)
		}
	})
}

func get(t *testing.T, c *client.Cache[string], key string) {
	t.Helper()
	if _, err := c.Get(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}
