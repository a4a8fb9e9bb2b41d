// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// chosen is a process whose reads of split keys go where the test says.
type chosen struct {
	*client.Cache[string]
	cl    *client.Client
	index atomic.Int64 // of the node of the walk that is asked next
	k     atomic.Int64 // the nodes that the keys of the test are split over
}

// newChosen is a process with a cache "x" with copies, which keeps nothing in L1.
func newChosen(t *testing.T, cfg client.Config, load func(context.Context, string) (string, error), edit func(*client.CacheConfig[string])) *chosen {
	t.Helper()
	c := &chosen{cl: open(t, cfg)}
	c.k.Store(1)
	cc := client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: load, L1: client.L1Off, NoEarlyRefresh: true, HotCopies: 16}
	if edit != nil {
		edit(&cc)
	}
	if cc.HotCopies > 1 {
		cc.HotCopyRate = 1e9 // what the fleet reads splits nothing
	}
	c.Cache = newCache(t, c.cl, cc)
	c.Choose(func() float64 { return (float64(c.index.Load()) + 0.5) / float64(max(c.k.Load(), 1)) })
	return c
}

// split says that keys are on k nodes.
func (c *chosen) split(k int, keys ...string) {
	c.k.Store(int64(k))
	for _, key := range keys {
		c.Split(key, k)
	}
}

// at reads a key at one index of its walk.
func (c *chosen) at(t *testing.T, key string, index int) client.Result[string] {
	t.Helper()
	c.index.Store(int64(index))
	r, err := c.Lookup(t.Context(), key)
	if err != nil {
		t.Fatalf("copy %d of %q: %v", index, key, err)
	}
	return r
}

// spread reads a key at every index until each has its copy.
func (c *chosen) spread(t *testing.T, key string, k int) {
	t.Helper()
	c.split(k, key)
	for i := range k {
		node, _ := c.CopyAt(key, i)
		eventually(t, fmt.Sprintf("copy %d of %q on %s is read", i, key, node), func() bool { return c.at(t, key, i).Node == node })
	}
	eventually(t, "nothing more is copied", func() bool { return c.Copying() == 0 })
}

// noneReads fails if any index of a key gives another value than v.
func (c *chosen) noneReads(t *testing.T, what, key, v string, k int) {
	t.Helper()
	for range 3 { // the first may bring the copy
		for i := range k {
			c.split(k, key)
			if r := c.at(t, key, i); r.Value != v {
				t.Errorf("%s: index %d gives %q from %s, want %q", what, i, r.Value, r.Node, v)
			}
		}
	}
}

// TestCopiesOfAHotKey: a key that is split is read at each of its nodes, at the cost of one load; an invalidation leaves no copy.
func TestCopiesOfAHotKey(t *testing.T) {
	onBackends(t, 4, func(t *testing.T, cfg client.Config) {
		src := newSource(map[string]string{"k": "1", "large": strings.Repeat("x", 200_000)})
		c := newChosen(t, cfg, src.load, nil)
		other := newChosen(t, cfg, src.load, nil)
		for _, key := range []string{"k", "large"} {
			first := c.at(t, key, 0)
			c.spread(t, key, 4)
			other.spread(t, key, 4)
			for i := range 4 {
				node, _ := c.CopyAt(key, i)
				r := other.at(t, key, i)
				if r.Node != node || r.Layer != client.LayerL2 || r.Value != first.Value || r.Age > time.Minute {
					t.Errorf("%s at %d: %q... from %s (%v), want it from %s", key, i, r.Value[:1], r.Node, r.Layer, node)
				}
			}
			if n := src.count(key); n != 1 {
				t.Errorf("%d loads of %s, want 1", n, key)
			}
		}
		s := c.Stats()
		if o := other.Stats(); s.CopiesFilled != 6 || o.CopiesFilled != 0 || o.CopyHits < 6 || s.Splits != 2 {
			t.Errorf("filled %d copies and %d, read %d, %d splits; want 6, 0, at least 6, 2", s.CopiesFilled, o.CopiesFilled, o.CopyHits, s.Splits)
		}
		src.set("k", "2")
		src.set("large", "2")
		if err := c.InvalidateMany(t.Context(), []string{"k", "large"}); err != nil {
			t.Fatal(err)
		}
		other.noneReads(t, "after the invalidation", "k", "2", 4)
		other.noneReads(t, "after the invalidation", "large", "2", 4)
	})
}

// TestCopyLifetimes: a copy lives 10 s, and no longer than its entry; it softens with its entry, and then brings the owner's refresh; its age is the entry's.
func TestCopyLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 2)
		src := newSource(map[string]string{"k": "1"})
		c := newChosen(t, nodes.Config(), src.load, func(c *client.CacheConfig[string]) { c.TTL, c.SoftTTL, c.NoJitter = time.Minute, 30*time.Second, true })
		c.at(t, "k", 0)
		time.Sleep(5 * time.Second)
		c.spread(t, "k", 2)
		node, name := c.CopyAt("k", 1)
		if ttl := nodes.ByID(node).TTL(name); ttl > 10*time.Second || ttl < 9*time.Second {
			t.Errorf("the copy lives %v, want 10 s", ttl)
		}
		if r := c.at(t, "k", 1); r.Age < 5*time.Second || r.Age > 6*time.Second {
			t.Errorf("the copy of an entry that is 5 s old is %v old", r.Age)
		}
		time.Sleep(7 * time.Second) // 3 s are left: not yet brought anew
		c.split(2, "k")
		filled := c.Stats().CopiesFilled
		c.at(t, "k", 1)
		synctest.Wait()
		if n := c.Stats().CopiesFilled; n != filled {
			t.Errorf("copied again with 3 s left")
		}
		time.Sleep(1500 * time.Millisecond) // 1.5 s
		if r := c.at(t, "k", 1); r.Node != node {
			t.Errorf("read from %s", r.Node)
		}
		eventually(t, "a copy near its end is brought anew", func() bool { return c.Stats().CopiesFilled == filled+1 })
		if ttl := nodes.ByID(node).TTL(name); ttl < 9*time.Second {
			t.Errorf("the new copy lives %v", ttl)
		}
		time.Sleep(11 * time.Second)
		c.split(2, "k")
		if r := c.at(t, "k", 1); r.Node == node {
			t.Error("a copy is read after 10 s")
		}
		eventually(t, "and brought again", func() bool { return c.at(t, "k", 1).Node == node })

		src.set("k", "2") // nobody invalidates: the refresh behind soft expiry brings it
		time.Sleep(5 * time.Second)
		c.split(2, "k")
		eventually(t, "the reader of a softened copy has the owner refreshed", func() bool {
			r := c.at(t, "k", 1)
			return r.Node == node && r.Value == "2"
		})
		if n := src.count("k"); n != 2 {
			t.Errorf("%d loads, want 2", n)
		}
	})
}

// softened is a process with a copy of "k" that is past its soft TTL, and a source that is down. For a bubble.
func softened(t *testing.T) (c *chosen, down *atomic.Bool) {
	t.Helper()
	down = new(atomic.Bool)
	load := func(context.Context, string) (string, error) {
		if down.Load() {
			return "", errors.New("the source is down")
		}
		return "1", nil
	}
	c = newChosen(t, clienttest.Start(t, 2).Config(), load, func(c *client.CacheConfig[string]) { c.TTL, c.SoftTTL, c.NoJitter = time.Minute, 5*time.Second, true })
	c.at(t, "k", 0)
	c.spread(t, "k", 2)
	down.Store(true)
	time.Sleep(6 * time.Second)
	return c, down
}

// TestSoftenedCopiesAreLeftAlone: while the source does not answer, the copies of an entry that is to be refreshed are read, and not made anew by each reader.
func TestSoftenedCopiesAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, down := softened(t)
		filled, hits := c.Stats().CopiesFilled, c.Stats().CopyHits
		for range 1000 {
			c.split(2, "k")
			c.at(t, "k", 1)
			time.Sleep(time.Millisecond)
		}
		s := c.Stats()
		if n := s.CopiesFilled - filled; n > 3 {
			t.Errorf("copied %d times in a second", n)
		}
		if n := s.CopyHits - hits; n < 990 {
			t.Errorf("%d of 1,000 reads found the copy", n)
		}
		down.Store(false)
		time.Sleep(2 * time.Second)
		node, _ := c.CopyAt("k", 1)
		eventually(t, "the copy of what the source says when it is back", func() bool {
			c.split(2, "k")
			r := c.at(t, "k", 1)
			return r.Node == node && r.Age < 5*time.Second
		})
	})
}

// TestACopyEndsWithItsEntry: what is left of the entry bounds the copy.
func TestACopyEndsWithItsEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 2)
		src := newSource(map[string]string{"k": "1"})
		c := newChosen(t, nodes.Config(), src.load, func(c *client.CacheConfig[string]) {
			c.TTL, c.SoftTTL, c.NoJitter = 10*time.Second, 10*time.Second, true
		})
		c.at(t, "k", 0)
		time.Sleep(6 * time.Second)
		c.spread(t, "k", 2)
		node, name := c.CopyAt("k", 1)
		if ttl := nodes.ByID(node).TTL(name); ttl > 4*time.Second {
			t.Errorf("the copy of an entry with 4 s left lives %v", ttl)
		}
		src.set("k", "2")
		time.Sleep(4100 * time.Millisecond)
		c.split(2, "k")
		if r := c.at(t, "k", 1); r.Value != "2" {
			t.Errorf("read %q after the entry's end", r.Value)
		}
	})
}

// patient is a configuration for embedded nodes on a machine that is busy with other things.
func patient(nodes *clienttest.Nodes) client.Config {
	cfg := nodes.Config()
	cfg.OperationTimeout = 5 * time.Second
	return cfg
}

// TestUnsplitCostsNothing: keys that are not split have no copies, no record, and their invalidations go to the owner alone.
func TestUnsplitCostsNothing(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	src := newSource(map[string]string{"k": "1"})
	c := newChosen(t, patient(nodes), src.load, nil)
	c.split(1, "k")
	c.at(t, "k", 0)
	for i := 1; i < 3; i++ {
		node, name := c.CopyAt("k", i)
		if _, ok := nodes.ByID(node).Get(name); ok {
			t.Errorf("a copy on %s", node)
		}
		nodes.ByID(node).Down()
	}
	if err := c.Invalidate(t.Context(), "k"); err != nil {
		t.Errorf("the invalidation of a key that is not split needs other nodes: %v", err)
	}
	if s := c.Stats(); s.CopiesFilled != 0 || s.CopyHits != 0 {
		t.Errorf("%+v", s)
	}
}

// TestCopiesInBatches: GetMany reads copies, one command a node, and InvalidateMany leaves none.
func TestCopiesInBatches(t *testing.T) {
	onBackends(t, 4, func(t *testing.T, cfg client.Config) {
		src := newSource(map[string]string{})
		var keys []string
		for i := range 40 {
			keys = append(keys, "k"+strconv.Itoa(i))
			src.set(keys[i], "1")
		}
		src.set("large", strings.Repeat("1", 100_000))
		var calls [][]string
		c := newChosen(t, cfg, nil, func(cc *client.CacheConfig[string]) { cc.Load, cc.LoadMany = nil, src.loadMany(&calls) })
		all := append(slices.Clone(keys), "large")
		get := func(what, v string) {
			t.Helper()
			c.split(4, all...)
			got, err := c.GetMany(t.Context(), all)
			if err != nil || len(got) != len(all) {
				t.Fatalf("%s: %d of %d keys, %v", what, len(got), len(all), err)
			}
			for key, value := range got {
				if !strings.HasPrefix(value, v) {
					t.Errorf("%s: %s is %.5q", what, key, value)
				}
			}
		}
		for i := range 4 {
			c.index.Store(int64(i))
			eventually(t, fmt.Sprint("all are read at index ", i), func() bool {
				hits := c.Stats().CopyHits
				get("first", "1")
				return i == 0 || c.Stats().CopyHits == hits+uint64(len(all))
			})
		}
		eventually(t, "nothing more is copied", func() bool { return c.Copying() == 0 })
		for _, key := range keys {
			src.set(key, "2")
		}
		src.set("large", strings.Repeat("2", 100_000))
		if err := c.InvalidateMany(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			c.index.Store(int64(i))
			get(fmt.Sprint("after the invalidation, index ", i), "2")
			get(fmt.Sprint("once more, index ", i), "2")
		}
	})
}

func TestCopiesConfig(t *testing.T) {
	cl := open(t, clienttest.Start(t, 2).Config())
	for field, edit := range map[string]func(*client.CacheConfig[string]){
		"HotCopies is -1: must not be negative":     func(c *client.CacheConfig[string]) { c.HotCopies = -1 },
		"Copies is -1: must not be negative":        func(c *client.CacheConfig[string]) { c.Copies = -1 },
		"CopiesVoided is -1: must not be negative":  func(c *client.CacheConfig[string]) { c.CopiesVoided = -1 },
		"CopiesVoided is 2: must be 0 or at least":  func(c *client.CacheConfig[string]) { c.Copies, c.CopiesVoided = 3, 2 },
		"HotCopies is 2: must be 0 in a cache that": func(c *client.CacheConfig[string]) { c.HotCopies, c.Truth, c.Load = 2, true, nil },
		"Copies is 2: must be 0 in a cache that":    func(c *client.CacheConfig[string]) { c.Copies, c.Truth, c.Load = 2, true, nil },
	} {
		cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo}
		edit(&cfg)
		if _, err := client.NewCache(cl, cfg); err == nil || !strings.Contains(err.Error(), "CacheConfig."+field) {
			t.Errorf("%v, want %s", err, field)
		}
	}
	for i, edit := range []func(*client.CacheConfig[string]){
		func(c *client.CacheConfig[string]) { c.HotCopies, c.HotCopyRate, c.Copies = 1, 0, 1 },
		func(c *client.CacheConfig[string]) { c.HotCopies, c.Copies, c.CopiesVoided = 100, 100, 200 },
		func(c *client.CacheConfig[string]) { c.CopiesVoided = 2 },
	} {
		cfg := client.CacheConfig[string]{Name: "ok" + strconv.Itoa(i), TTL: time.Hour, Load: echo}
		edit(&cfg)
		c := newCache(t, cl, cfg)
		want(t, c, "k", "value of k", client.LayerSource)
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	}
}
