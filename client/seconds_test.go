// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// lagging is a source whose loader reads a replica that lags behind.
type lagging struct {
	*source
	behind atomic.Bool // the replica has the rows of when this was set
	old    map[string]string
}

func (l *lagging) load(ctx context.Context, key string) (string, error) {
	if l.behind.Load() {
		return l.old[key], nil
	}
	return l.source.load(ctx, key)
}

// secondly is a process with second deletes after two seconds, and keys whose old rows are stored and whose new rows the loader does not see yet.
func secondly(t *testing.T, keys int, edit func(*client.Config)) (nodes *clienttest.Nodes, cl *client.Client, c *client.Cache[string], src *lagging, names []string) {
	t.Helper()
	nodes = clienttest.Start(t, 2)
	cfg := nodes.Config()
	cfg.OperationTimeout = time.Second // of the bubble: a command takes none
	if edit != nil {
		edit(&cfg)
	}
	cl, err := client.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close(context.Background()) }) // what it reports is the test's business
	src = &lagging{source: newSource(map[string]string{}), old: map[string]string{}}
	c = newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: src.load, L1: client.L1Off, NoEarlyRefresh: true, SecondDelete: 2 * time.Second})
	for i := range keys {
		names = append(names, fmt.Sprintf("k%03d", i))
		src.old[names[i]] = "1"
		src.set(names[i], "2")
	}
	src.behind.Store(true)
	return nodes, cl, c, src, names
}

// stored counts the entries on the nodes.
func stored(nodes *clienttest.Nodes) (n int) {
	for i := range 2 {
		for _, k := range nodes.Node(i).Keys() {
			if strings.HasPrefix(k, "x:") {
				n++
			}
		}
	}
	return n
}

// TestSecondDelete: what a loader has stored that reads a lagging replica, after the first delete, goes with the second. One that had nothing to
// remove is counted too.
func TestSecondDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, cl, c, src, keys := secondly(t, 2, nil)
		start := time.Now()
		if err := c.InvalidateMany(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		want(t, c, keys[0], "1", client.LayerSource) // the replica lags
		want(t, c, keys[0], "1", client.LayerL2)
		src.behind.Store(false)
		if n := cl.Stats().SecondDeletes; n != 2 {
			t.Errorf("%d second deletes wait, want 2", n)
		}
		for stored(nodes) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(start); d < 2*time.Second || d > 2100*time.Millisecond {
			t.Errorf("the second delete came after %v, want 2s", d)
		}
		want(t, c, keys[0], "2", client.LayerSource)
		if s := c.Stats(); s.SecondDeletes != 2 || s.SecondRemoved != 1 || s.SecondRefused != 0 || cl.Stats().SecondDeletes != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestSecondDeleteOfAWriteThatFailed: the node was down for the first delete, or is for the second: it is owed.
func TestSecondDeleteOfAWriteThatFailed(t *testing.T) {
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			nodes, cl, c, src, keys := secondly(t, 1, nil)
			node := nodes.Node(map[bool]int{true: 0, false: 1}[ownerOf(c, keys[0]) == nodes.Node(0).ID()])
			if first {
				node.Down()
			}
			err := c.Invalidate(t.Context(), keys[0])
			if first != client.NodesOnly(err) {
				t.Fatal(err)
			}
			node.Down()
			time.Sleep(3 * time.Second)
			node.Up()
			paid(t, cl)
			want(t, c, keys[0], "1", client.LayerSource) // it lags still
			if first {
				src.behind.Store(false)
				time.Sleep(2100 * time.Millisecond)
				want(t, c, keys[0], "2", client.LayerSource)
			}
		})
	}
}

// TestRB25 (pending invalidations are dropped at shutdown): Close carries out second deletes when they are due; what it has no time for goes out at once, and
// is reported.
func TestRB25(t *testing.T) {
	const keys = 500
	write := func(t *testing.T, c *client.Cache[string], names []string) {
		t.Helper()
		for _, k := range names {
			if err := c.Invalidate(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}
		for _, k := range names { // a racing reader of the old rows
			want(t, c, k, "1", client.LayerSource)
		}
	}
	t.Run("with time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes, cl, c, _, names := secondly(t, keys, nil)
			write(t, c, names)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			if err := cl.Close(ctx); err != nil {
				t.Error(err)
			}
			if d := time.Since(start); d < 1900*time.Millisecond || d > 2500*time.Millisecond {
				t.Errorf("Close took %v, the last one is due after 2s", d)
			}
			if n := stored(nodes); n != 0 {
				t.Errorf("%d of %d old rows are left", n, keys)
			}
		})
	})
	t.Run("without time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes, cl, c, _, names := secondly(t, keys, nil)
			write(t, c, names)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := cl.Close(ctx)
			if d := time.Since(start); d > 300*time.Millisecond {
				t.Errorf("Close took %v", d)
			}
			if err == nil || !strings.Contains(err.Error(), "500 second deletes went out") {
				t.Errorf("Close: %v, want the number of those that came too early", err)
			}
			if n := stored(nodes); n != 0 {
				t.Errorf("%d of %d old rows are left: they were to go at once", n, keys)
			}
		})
	})
	t.Run("no room", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, cl, c, _, names := secondly(t, keys, func(cfg *client.Config) { cfg.SecondDeleteQueue = 64 })
			refused := 0
			for _, k := range names {
				switch err := c.Invalidate(t.Context(), k); {
				case err == nil:
				case errors.Is(err, client.ErrSecondDeletesFull) && client.NodesOnly(err) && strings.Contains(err.Error(), k):
					refused++
				default:
					t.Fatal(err)
				}
			}
			if n := cl.Stats().SecondDeletes; n != 64 || refused != keys-64 || c.Stats().SecondRefused != keys-64 {
				t.Errorf("%d wait, %d refused, %d counted", n, refused, c.Stats().SecondRefused)
			}
			if err := cl.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes, cl, c, _, names := secondly(t, keys, nil)
			write(t, c, names)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			synctest.Wait() // the last load has answered its reader, and ends
			err := cl.Close(ctx)
			if !errors.Is(err, client.ErrClosed) || !client.NodesOnly(err) || len(client.UnreachedKeys(err)) != keys {
				t.Errorf("Close: %v, want every name", err)
			}
			for i := range 2 {
				if !strings.Contains(err.Error(), "second delete on node "+nodes.Node(i).ID()) {
					t.Errorf("Close: %v, want the second deletes of node %s", err, nodes.Node(i).ID())
				}
			}
		})
	})
	t.Run("a node down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes, cl, c, _, names := secondly(t, keys, nil)
			write(t, c, names)
			nodes.Node(1).Down()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			err := cl.Close(ctx)
			var left int
			for _, k := range names {
				if ownerOf(c, k) == nodes.Node(1).ID() {
					left++
				}
			}
			if got := client.UnreachedKeys(err); !client.NodesOnly(err) || len(got) != left || !strings.Contains(err.Error(), nodes.Node(1).ID()) {
				t.Errorf("Close names %d keys, want the %d of the node that is down: %v", len(got), left, err)
			}
			if n := stored(nodes); n != left {
				t.Errorf("%d old rows are left, want %d", n, left)
			}
		})
	})
}
