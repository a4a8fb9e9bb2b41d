// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package clienttest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// patient is a cache on one embedded node with a timeout that a busy machine and the race detector do not reach.
func patient(t *testing.T) (*clienttest.Node, *client.Cache[string]) {
	t.Helper()
	nodes := clienttest.Start(t, 1)
	cfg := nodes.Config()
	cfg.OperationTimeout = time.Minute
	cl, err := client.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cl.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c, err := client.NewCache(cl, client.CacheConfig[string]{
		Name: "x", TTL: time.Hour, LeaseTTL: time.Minute, L1: client.L1Off, Load: echo,
		LoadMany: func(_ context.Context, keys []string) (map[string]string, error) {
			rows := make(map[string]string, len(keys))
			for _, k := range keys {
				rows[k] = "v" + k
			}
			return rows, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return nodes.Node(0), c
}

// TestManyKeys: what a node holds does not make its commands slower. A miss, two scripts, is measured on an empty node and beside 10,000 keys; the
// shortest of many is taken, since a busy machine lengthens some.
func TestManyKeys(t *testing.T) {
	node, c := patient(t)
	next := 0
	shortest := func() time.Duration {
		best := time.Hour
		for range 40 {
			start := time.Now()
			layer(t, c, fmt.Sprint(next))
			best, next = min(best, time.Since(start)), next+1
		}
		return best
	}
	layer(t, c, "first") // connects
	empty := shortest()
	for i := range 10_000 {
		if err := node.Set(fmt.Sprintf("beside:%d", i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	full := shortest()
	t.Logf("a miss takes %v on an empty node, %v beside 10,000 keys", empty, full)
	if full > 10*empty { // 100 times when every command walks over the keys
		t.Errorf("a miss takes %v on an empty node and %v beside 10,000 keys", empty, full)
	}
}

// TestWarm: a warm-up of one node ends with every key there, and then they are read by a few commands.
func TestWarm(t *testing.T) {
	node, c := patient(t)
	keys := make([]string, 2000)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	r, err := c.Warm(t.Context(), slices.Values(keys), client.WarmOptions{})
	if err != nil || r.Failed != 0 || r.Loaded != 2000 {
		t.Fatalf("Warm: loaded %d, failed %d, %v", r.Loaded, r.Failed, err)
	}
	if stored := len(node.Keys()); stored < 2000 {
		t.Errorf("the node holds %d keys", stored)
	}
	before := c.Stats()
	found, err := c.GetMany(t.Context(), keys[:1600])
	if err != nil || len(found) != 1600 {
		t.Fatalf("GetMany: %d rows, %v", len(found), err)
	}
	after := c.Stats()
	if hits := after.L2Hits - before.L2Hits; hits != 1600 || after.Loads != before.Loads || after.NodeErrors != 0 {
		t.Errorf("%d of 1,600 reads from the node, %d loads, %d failed commands", hits, after.Loads-before.Loads, after.NodeErrors)
	}
}

// TestExpiryIsExact: in a bubble a key is there until its time is over, and not a moment longer, also where it was set long after
// the last command.
func TestExpiryIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		_, c := cache(t, nodes, client.CacheConfig[string]{Load: echo, NoJitter: true, NoEarlyRefresh: true})
		_, physical := c.Where("a")
		time.Sleep(10 * time.Minute) // keys that come now have lived for none of it
		layer(t, c, "a")
		if ttl := nodes.Node(0).TTL(physical); ttl != time.Minute {
			t.Errorf("TTL %v at first", ttl)
		}
		time.Sleep(time.Minute - time.Millisecond)
		if ttl := nodes.Node(0).TTL(physical); ttl != time.Millisecond {
			t.Errorf("TTL %v in the last millisecond", ttl)
		}
		if _, ok := nodes.Node(0).Get(physical); !ok {
			t.Error("it is gone before its time")
		}
		time.Sleep(time.Millisecond)
		if _, ok := nodes.Node(0).Get(physical); ok {
			t.Error("it is there after its time")
		}
	})
}

// TestSetTime: expiry goes by the clock that is set, forward at once, and by the true time again afterwards.
func TestSetTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		node := nodes.Node(0)
		_, c := cache(t, nodes, client.CacheConfig[string]{Load: echo, NoJitter: true, TTL: time.Hour})
		_, physical := c.Where("a")
		layer(t, c, "a")
		begin := time.Now()
		for _, step := range []struct {
			name  string
			do    func()
			wants time.Duration
		}{
			{"ten minutes forward", func() { node.SetTime(begin.Add(10 * time.Minute)) }, 50 * time.Minute},
			{"it stands", func() { time.Sleep(time.Minute) }, 50 * time.Minute},
			{"back", func() { node.SetTime(begin) }, 50 * time.Minute},
			{"forward again", func() { node.SetTime(begin.Add(5 * time.Minute)) }, 45 * time.Minute},
			{"by the true time, which is earlier", func() { node.SetTime(time.Time{}) }, 45 * time.Minute},
			{"it goes", func() { time.Sleep(time.Minute) }, 44 * time.Minute},
			{"the expiry alone", func() { node.FastForward(40 * time.Minute) }, 4 * time.Minute},
			{"beyond", func() { node.SetTime(begin.Add(time.Hour)) }, 0},
		} {
			if step.do(); node.TTL(physical) != step.wants {
				t.Errorf("%s: TTL %v, want %v", step.name, node.TTL(physical), step.wants)
			}
		}
		if _, ok := node.Get(physical); ok {
			t.Error("it is there after its time")
		}
	})
}
