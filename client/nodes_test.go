// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// TestNewRefusesClusterMode: there the server decides where a key lives. The error says which node, and why.
func TestNewRefusesClusterMode(t *testing.T) {
	plain := redistest.Start(t, redistest.Config{})
	cluster := redistest.Start(t, redistest.Config{Args: []string{"--cluster-enabled", "yes"}})
	_, err := client.New(t.Context(), client.Config{OperationTimeout: time.Second, Nodes: []ring.Node{
		{ID: "a", Addr: plain.Addr()}, {ID: "b", Addr: cluster.Addr()},
	}})
	if !errors.Is(err, client.ErrClusterMode) || !strings.Contains(err.Error(), "b") || !strings.Contains(err.Error(), cluster.Addr()) {
		t.Errorf("got %v, want ErrClusterMode that names node and address", err)
	}
}

// documentedRights are what the README says an ACL user needs.
const documentedRights = "~* +@read +@write +@scripting +info +time"

// TestDocumentedRightsSuffice: with them nothing fails; with a wrong password everything is a miss, and New does not fail.
func TestDocumentedRightsSuffice(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	args := append([]any{"ACL", "SETUSER", "shelf", "on", ">secret", "resetkeys", "-@all"}, fields(documentedRights)...)
	if _, err := server.Do(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	for password, layer := range map[string]client.Layer{"secret": client.LayerL2, "wrong": client.LayerSource} {
		cl := open(t, client.Config{
			OperationTimeout: time.Second,
			Nodes:            []ring.Node{{ID: "a", Addr: server.Addr()}},
			Redis:            func(_ ring.Node, o *redis.Options) { o.Username, o.Password = "shelf", password },
		})
		c := newCache(t, cl, client.CacheConfig[row]{Name: "x" + password, TTL: time.Minute, Load: loadRow, L1: client.L1Off, Version: func(r row) uint64 { return r.Version }})
		ctx := t.Context()
		want(t, c, "k", row{1, "k"}, client.LayerSource)
		want(t, c, "k", row{1, "k"}, layer)
		if m, err := c.GetMany(ctx, []string{"k", "l"}); err != nil || len(m) != 2 {
			t.Errorf("%s: GetMany: %v, %v", password, m, err)
		}
		_, through := c.WriteThrough(ctx, "k", func(context.Context) (row, error) { return row{2, "k"}, nil })
		for _, err := range []error{c.InvalidateVersion(ctx, "k", 2), c.Invalidate(ctx, "l"), through} {
			if (err == nil) != (password == "secret") {
				t.Errorf("%s: %v", password, err)
			}
		}
		if s := c.Stats(); (s.NodeErrors+s.FillErrors+s.MarksFailed == 0) != (password == "secret") {
			t.Errorf("%s: %+v", password, s)
		}
		if err := cl.Stats().Nodes[0].LastError; (err == nil) != (password == "secret") {
			t.Errorf("%s: LastError %v", password, err)
		}
	}
}

func fields(s string) (args []any) {
	for _, f := range strings.Fields(s) {
		args = append(args, f)
	}
	return args
}

// TestBurstOfWarmKeys: thousands of callers at once get their entries from a healthy node over its few connections: a burst is no outage,
// and costs no load. (The timeout is longer than the default because a busy machine is not what is tested.)
func TestBurstOfWarmKeys(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: 2 * time.Second})
	var loads atomic.Int32
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, NoEarlyRefresh: true, L1: client.L1Off,
		LoadMany: func(ctx context.Context, keys []string) (map[string]string, error) {
			loads.Add(1)
			m := make(map[string]string)
			for _, k := range keys {
				m[k], _ = echo(ctx, k)
			}
			return m, nil
		}})
	keys := make([]string, 3000)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	if _, err := c.GetMany(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	before := loads.Load()
	var wg sync.WaitGroup
	for _, k := range keys {
		wg.Go(func() {
			if v, err := c.Get(t.Context(), k); err != nil || v != "value of "+k {
				t.Errorf("Get(%s) = %q, %v", k, v, err)
			}
		})
	}
	wg.Wait()
	if n := loads.Load() - before; n > 0 {
		t.Errorf("%d loads for keys that are all on a healthy node", n)
	}
}
