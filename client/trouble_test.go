// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// silentAfterReads is the time within which a call for very many keys must be through, on a node that answers reads and nothing else: a few timeouts of 50 ms,
// on a loaded machine. One for each key would be ten seconds.
const silentAfterReads = 2 * time.Second

// oneNode fills 200 keys through another client, and gives a cache that has never asked the node anything beyond a read of one of them.
func oneNode(t *testing.T, node *redistest.Server, addr string, conf client.CacheConfig[string], value func(key string) string) (c *client.Cache[string], keys []string) {
	t.Helper()
	rows := map[string]string{}
	for i := range 200 {
		key := fmt.Sprint("k", i)
		keys, rows[key] = append(keys, key), value(key)
	}
	var calls [][]string
	conf.Name, conf.TTL, conf.L1, conf.NoEarlyRefresh, conf.LoadMany = "x", time.Minute, client.L1Off, true, newSource(rows).loadMany(&calls)
	// It meets the node before there are entries: those of a server's first second are not trusted by who comes later.
	reader := open(t, client.Config{Nodes: []ring.Node{{ID: "n", Addr: addr}}})
	eventually(t, "connected", func() bool {
		_, _, err := reader.TTL(t.Context(), "any")
		return err == nil
	})
	filler := newCache(t, open(t, client.Config{Nodes: []ring.Node{{ID: "n", Addr: node.Addr()}}, OperationTimeout: 5 * time.Second}), conf)
	if got, err := filler.GetMany(t.Context(), keys); err != nil || len(got) != len(keys) {
		t.Fatalf("%d values, %v", len(got), err)
	}
	if conf.Tags != nil {
		if err := filler.InvalidateTag(t.Context(), "another"); err != nil {
			t.Fatal(err)
		}
	}
	return newCache(t, reader, conf), keys
}

// TestTagsOfASilentNode: a node that takes reads and no scripts (as during a failover) is asked once, and not once for each key of a batch, which tags were invalidated.
func TestTagsOfASilentNode(t *testing.T) {
	node := redistest.StartNodes(t, 1)[0]
	conf := client.CacheConfig[string]{Tags: func(v string) []string { return strings.Split(v, ",")[1:] }}
	c, keys := oneNode(t, node, node.Addr(), conf, func(key string) string { return key + ",tag" })
	raw := redis.NewClient(&redis.Options{Addr: node.Addr()})
	defer func() { _ = raw.Close() }()
	if err := raw.Do(t.Context(), "CLIENT", "PAUSE", "600000", "WRITE").Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got, err := c.GetMany(context.Background(), keys)
	if took := time.Since(began); len(got) != len(keys) || err != nil || took > silentAfterReads {
		t.Errorf("GetMany: %d values, %v, after %v", len(got), err, took)
	}
	began = time.Now()
	r, err := c.Warm(context.Background(), slices.Values(keys), client.WarmOptions{})
	if took := time.Since(began); r.Failed != int64(len(keys)) || !client.Unavailable(err) || took > silentAfterReads {
		t.Errorf("Warm: %d failed, %v, after %v", r.Failed, err, took)
	}
	if err := raw.Do(t.Context(), "CLIENT", "UNPAUSE").Err(); err != nil {
		t.Fatal(err)
	}
}

// TestBodiesOfASilentNode: the same for large values, whose bodies are asked for over connections of their own.
func TestBodiesOfASilentNode(t *testing.T) {
	node := redistest.StartNodes(t, 1)[0]
	proxy := redistest.StartProxy(t, node.Addr())
	c, keys := oneNode(t, node, proxy.Addr(), client.CacheConfig[string]{LargeValueBytes: 1000}, func(key string) string { return sized(key, 2000) })
	eventually(t, "all bodies read", func() bool { // this opens the connections
		got, err := c.GetMany(t.Context(), keys)
		return err == nil && len(got) == len(keys) && c.Stats().L2Hits >= uint64(len(keys))
	})
	proxy.Only(func(conn *redistest.ProxyConn) bool { return conn.Sent("GETRANGE") }).BlackHole()
	proxy.New().BlackHole()
	began := time.Now()
	got, err := c.GetMany(context.Background(), keys)
	if took := time.Since(began); len(got) != len(keys) || err != nil || took > silentAfterReads {
		t.Errorf("GetMany: %d values, %v, after %v", len(got), err, took)
	}
	proxy.Heal()
}
