// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

func cache(t testing.TB, nodes *clienttest.Nodes, cfg client.CacheConfig[string]) (*client.Client, *client.Cache[string]) {
	t.Helper()
	cl, err := client.New(t.Context(), nodes.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cl.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	cfg.Name, cfg.L1 = "x", client.L1Off
	if cfg.TTL == 0 {
		cfg.TTL = time.Minute
	}
	c, err := client.NewCache(cl, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cl, c
}

func echo(_ context.Context, key string) (string, error) { return "v" + key, nil }

// layer reads a key and says where it came from.
func layer(t *testing.T, c *client.Cache[string], key string) client.Layer {
	t.Helper()
	r, err := c.Lookup(t.Context(), key)
	if err != nil || r.Value != "v"+key {
		t.Fatalf("Lookup(%q) = %+v, %v", key, r, err)
	}
	return r.Layer
}

// TestSwitches: what each switch does to a client, how long it takes, and that Up ends it.
func TestSwitches(t *testing.T) {
	for _, tc := range []struct {
		name   string
		on     func(*clienttest.Node)
		within time.Duration // a read takes no longer, and no less than atLeast
		least  time.Duration
	}{
		{"down", (*clienttest.Node).Down, 0, 0},
		{"hang", (*clienttest.Node).Hang, 500 * time.Millisecond, 500 * time.Millisecond},
		{"slow beyond the timeout", func(n *clienttest.Node) { n.Slow(time.Second) }, 500 * time.Millisecond, 500 * time.Millisecond},
		{"fail", func(n *clienttest.Node) { n.Fail("LOADING Redis is loading the dataset in memory") }, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := clienttest.Start(t, 1)
				_, c := cache(t, nodes, client.CacheConfig[string]{Load: echo})
				if l := layer(t, c, "a"); l != client.LayerSource {
					t.Errorf("first read from %v", l)
				}
				tc.on(nodes.Node(0))
				start := time.Now()
				if l := layer(t, c, "a"); l != client.LayerSource {
					t.Errorf("with the fault the read came from %v", l)
				}
				if d := time.Since(start); d < tc.least || d > tc.within {
					t.Errorf("with the fault the read took %v, want %v to %v", d, tc.least, tc.within)
				}
				nodes.Node(0).Up()
				time.Sleep(2 * time.Second)
				if l := layer(t, c, "a"); l != client.LayerL2 {
					t.Errorf("after Up the read came from %v", l)
				}
			})
		})
	}
}

// TestSlowWithinTheTimeout: a slow node is waited for.
func TestSlowWithinTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		_, c := cache(t, nodes, client.CacheConfig[string]{Load: echo})
		layer(t, c, "a")
		nodes.Node(0).Slow(100 * time.Millisecond)
		start := time.Now()
		if l := layer(t, c, "a"); l != client.LayerL2 {
			t.Errorf("from %v", l)
		}
		if d := time.Since(start); d != 100*time.Millisecond {
			t.Errorf("took %v", d)
		}
		nodes.Node(0).Slow(0)
		start = time.Now()
		layer(t, c, "a")
		if d := time.Since(start); d != 0 {
			t.Errorf("took %v after Slow(0)", d)
		}
	})
}

// TestStored: what is on a node can be looked at, planted, lost and let expire.
func TestStored(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	_, c := cache(t, nodes, client.CacheConfig[string]{Load: echo, NoJitter: true})
	layer(t, c, "a")
	id, physical := c.Where("a")
	owner := nodes.ByID(id)
	if keys := owner.Keys(); fmt.Sprint(keys) != "["+physical+" ~g:x:v0]" {
		t.Errorf("the owner holds %q", keys)
	}
	for i := range nodes.Len() {
		if n := nodes.Node(i); n != owner && len(n.Keys()) > 0 {
			t.Errorf("%s holds %q", n.ID(), n.Keys())
		}
	}
	if b, ok := owner.Get(physical); !ok || len(b) == 0 {
		t.Errorf("Get: %q, %v", b, ok)
	}
	if ttl := owner.TTL(physical); ttl <= 58*time.Second || ttl > time.Minute {
		t.Errorf("TTL: %v", ttl)
	}
	owner.FastForward(time.Minute)
	if l := layer(t, c, "a"); l != client.LayerSource {
		t.Errorf("after a minute from %v", l)
	}
	owner.Delete(physical)
	if l := layer(t, c, "a"); l != client.LayerSource {
		t.Errorf("after an eviction from %v", l)
	}
	owner.Flush()
	if l := layer(t, c, "a"); l != client.LayerSource {
		t.Errorf("after a flush from %v", l)
	}
	if err := owner.Set(physical, []byte("foreign")); err != nil {
		t.Fatal(err)
	}
	if l := layer(t, c, "a"); l != client.LayerSource {
		t.Errorf("from %v with foreign bytes", l)
	}
	if nodes.ByID("node-9") != nil {
		t.Error("there is no node-9")
	}
}

// TestDownKeepsWhatIsStored, and says so to a writer.
func TestDownKeepsWhatIsStored(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	_, c := cache(t, nodes, client.CacheConfig[string]{Load: echo})
	layer(t, c, "a")
	layer(t, c, "b")
	nodes.Node(0).Down()
	var ne *client.NodeError
	if err := c.Invalidate(t.Context(), "a"); !errors.As(err, &ne) || ne.Node != "node-0" {
		t.Errorf("Invalidate while down: %v", err)
	}
	nodes.Node(0).Up()
	if l := layer(t, c, "b"); l != client.LayerL2 { // that of "a" is owed, and repeated as soon as the node answers
		t.Errorf("after Up from %v: Down must not empty the node", l)
	}
}

func ExampleNew() {
	ctx := context.Background()
	nodes := clienttest.New(1)
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cl.Close(ctx) }()
	names, err := client.NewCache(cl, client.CacheConfig[string]{
		Name: "name", TTL: time.Hour,
		Load: func(_ context.Context, id string) (string, error) { return "row " + id, nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	nodes.Node(0).Down()
	v, err := names.Get(ctx, "7") // the node is dead, the read is not
	fmt.Println(v, err)
	// Output: row 7 <nil>
}
