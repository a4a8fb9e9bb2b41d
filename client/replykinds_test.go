// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// replyKind is one way in which a node answers without serving.
type replyKind struct {
	name       string
	begin, end func(t *testing.T)
	down       bool   // nothing is sent to the node while it lasts
	says       string // what LastFailure or LastError says; "": neither says anything
}

// check: readers get their values from the loader and no error, as long as it lasts; stats say what it is; when it is over the node stores and serves again.
func (k *replyKind) check(t *testing.T, cl *client.Client) {
	t.Helper()
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, L1: client.L1Off, NoEarlyRefresh: true,
		Load: func(_ context.Context, key string) (string, error) { return "v" + key, nil }})
	want(t, c, "before", "vbefore", client.LayerSource)
	want(t, c, "before", "vbefore", client.LayerL2)
	k.begin(t)
	says, down := "", false
	for i := 0; i < 150 && (says == "" || !down); i++ {
		key := fmt.Sprint("k", i)
		if v, err := c.Get(t.Context(), key); v != "v"+key || err != nil {
			t.Fatalf("%s: Get: %q, %v", k.name, v, err)
		}
		if m, err := c.GetMany(t.Context(), []string{key, "before"}); err != nil || m[key] != "v"+key || m["before"] != "vbefore" {
			t.Fatalf("%s: GetMany: %v, %v", k.name, m, err)
		}
		s := cl.Stats().Nodes[0]
		down = down || s.State == "down"
		for _, err := range []error{s.LastFailure, s.LastError} {
			if err != nil && k.says != "" && strings.Contains(err.Error(), k.says) {
				says = k.says
			}
		}
		if k.says == "" && (s.LastFailure != nil || s.LastError != nil) {
			t.Fatalf("%s: %v, %v", k.name, s.LastFailure, s.LastError)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if says != k.says || down != k.down {
		t.Errorf("%s: stats say %q, want %q; down %t, want %t; %+v", k.name, says, k.says, down, k.down, cl.Stats().Nodes[0])
	}
	k.end(t)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		r, err := c.Lookup(t.Context(), "after")
		if s := cl.Stats().Nodes[0].State; err == nil && r.Layer == client.LayerL2 && (s == "up" || s == "suspect") {
			break
		}
		if time.Since(began) > 15*time.Second {
			t.Fatalf("%s: not back: %v %v, %+v", k.name, r, err, cl.Stats().Nodes[0])
		}
	}
}

func TestReplyKindsOfRedis(t *testing.T) {
	var server, other *redistest.Server
	var admin *redis.Conn // one connection, which stays authenticated
	run := func(commands ...[]any) func(t *testing.T) {
		return func(t *testing.T) {
			t.Helper()
			for _, c := range commands {
				if err := admin.Do(t.Context(), c...).Err(); err != nil {
					t.Fatal(c, err)
				}
			}
		}
	}
	for _, k := range []replyKind{
		{"wrong password", run([]any{"CONFIG", "SET", "requirepass", "changed"}, []any{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}),
			run([]any{"CONFIG", "SET", "requirepass", "secret"}), true, "WRONGPASS"},
		{"READONLY", func(t *testing.T) { run([]any{"REPLICAOF", "127.0.0.1", other.Port()})(t) }, run([]any{"REPLICAOF", "NO", "ONE"}), true, "READONLY"},
		{"NOSCRIPT", run([]any{"SCRIPT", "FLUSH"}), func(*testing.T) {}, false, ""},
		{"OOM", run([]any{"CONFIG", "SET", "maxmemory", "1"}), run([]any{"CONFIG", "SET", "maxmemory", "0"}), false, "OOM"},
		{"BUSY", func(t *testing.T) {
			run([]any{"CONFIG", "SET", "lua-time-limit", "50"})(t)
			script := server.Client()
			go func() { _ = script.Eval(context.Background(), "while true do end", nil).Err() }() // ends with the script, or the test's server
			time.Sleep(200 * time.Millisecond)
		}, run([]any{"SCRIPT", "KILL"}), true, "BUSY"},
	} {
		t.Run(k.name, func(t *testing.T) {
			server, other = redistest.Start(t, redistest.Config{Password: "secret"}), redistest.Start(t, redistest.Config{Password: "secret"})
			admin = server.Client().Conn()
			t.Cleanup(func() { _ = admin.Close() })
			if err := admin.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			run([]any{"CONFIG", "SET", "masterauth", "secret"})(t)
			k.check(t, open(t, client.Config{
				Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: time.Second, // a busy machine is not what is tested
				Redis: func(_ ring.Node, o *redis.Options) { o.Password = "secret" },
			}))
		})
	}
}

// TestReplyKindsEmbedded are those that a real server gives only for moments, or in another mode.
func TestReplyKindsEmbedded(t *testing.T) {
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"MOVED 3999 127.0.0.1:6381",
		"NOREPLICAS Not enough good replicas to write.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	} {
		name, _, _ := strings.Cut(text, " ")
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := clienttest.Start(t, 1)
				node := nodes.Node(0)
				k := replyKind{name, func(*testing.T) { node.Fail(text) }, func(*testing.T) { node.Up() }, true, name}
				k.check(t, open(t, nodes.Config()))
			})
		})
	}
}
