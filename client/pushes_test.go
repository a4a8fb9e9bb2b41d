// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// eventually polls for a state that other processes bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("20 s later: not %s", what)
		}
	}
}

// pushing opens a client of a real node whose pushes have begun to come.
func pushing(t *testing.T, servers ...*redistest.Server) *client.Client {
	t.Helper()
	cfg := client.Config{OperationTimeout: 5 * time.Second}
	for i, s := range servers {
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: fmt.Sprintf("node-%d", i), Addr: s.Addr()})
	}
	cl := open(t, cfg)
	awaitPushes(t, cl)
	return cl
}

func awaitPushes(t *testing.T, cl *client.Client) {
	t.Helper()
	eventually(t, "pushing", func() bool {
		for _, n := range cl.Stats().Nodes {
			if !n.Pushing {
				return false
			}
		}
		return true
	})
}

// intoL1 reads until the answer is the process's own copy.
func intoL1[V comparable](t *testing.T, c *client.Cache[V], key string, v V) {
	t.Helper()
	eventually(t, "in L1: "+key, func() bool {
		r, err := c.Lookup(t.Context(), key)
		if err != nil || r.Value != v {
			t.Fatalf("Lookup(%q) = %v from %v, %v; want %v", key, r.Value, r.Layer, err, v)
		}
		return r.Layer == client.LayerL1
	})
}

func l1Cache(t *testing.T, cl *client.Client, src *source) *client.Cache[string] {
	t.Helper()
	return newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: src.load, L1: client.L1All})
}

// TestPushes: a process's own copy goes when anybody changes the entry: another process by whatever call, a program that does not know us, or time.
func TestPushes(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	a, b := pushing(t, server), pushing(t, server)
	src := newSource(map[string]string{"k": "0", "other": "0"})
	ca, cb := l1Cache(t, a, src), l1Cache(t, b, src)
	raw := a.Node("any")
	intoL1(t, cb, "other", "0")
	for i, change := range []func() error{
		func() error { return ca.Invalidate(t.Context(), "k") },
		func() error { return ca.InvalidateVersion(t.Context(), "k", 7) },
		func() error { return ca.InvalidateMany(t.Context(), []string{"k"}) },
		func() error { return ca.Write(t.Context(), "k", func(context.Context) error { return nil }) },
		func() error {
			_, err := ca.WriteThrough(t.Context(), "k", func(context.Context) (string, error) { return src.rows["k"], nil })
			return err
		},
		func() error {
			_, err := ca.GetWith(t.Context(), "k", nil, client.GetOptions{Refresh: true})
			return err
		},
		func() error { return raw.Del(t.Context(), "x:k:v0").Err() },
		func() error { return raw.PExpire(t.Context(), "x:k:v0", time.Millisecond).Err() },
		func() error { return ca.Clear(t.Context()) },
	} {
		old, now := strconv.Itoa(i), strconv.Itoa(i+1)
		intoL1(t, cb, "k", old)
		src.set("k", now)
		if err := change(); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("change %d seen", i), func() bool {
			r, err := cb.Lookup(t.Context(), "k")
			if err != nil || r.Value != old && r.Value != now {
				t.Fatal(r, err)
			}
			return r.Value == now
		})
		if i < 8 {
			want(t, cb, "other", "0", client.LayerL1)
		}
	}
	if s := cb.Stats(); s.Pushes < 9 {
		t.Errorf("Pushes %d, want at least 9", s.Pushes)
	}
}

// TestPushesOfTags: a tag that another process invalidates takes the copies with it; copies with other tags stay, and are served again once
// it is known which tags they were.
func TestPushesOfTags(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	a, b := pushing(t, server), pushing(t, server)
	src := newSource(map[string]string{"red": "1,red", "blue": "1,blue", "plain": "1"})
	ca, cb := tagged(t, a, src, client.L1All), tagged(t, b, src, client.L1All)
	for k, v := range src.rows {
		intoL1(t, cb, k, v)
	}
	before := cb.Stats().Pushes
	src.set("red", "2,red")
	if err := ca.InvalidateTag(t.Context(), "red"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pushed", func() bool { return cb.Stats().Pushes > before })
	want(t, cb, "plain", "1", client.LayerL2)       // the generation is read with it, and watched again
	want(t, cb, "red", "2,red", client.LayerSource) // which tags were invalidated is asked for here
	want(t, cb, "blue", "1,blue", client.LayerL1)
	for range 2 {
		intoL1(t, cb, "blue", "1,blue")
		intoL1(t, cb, "plain", "1")
		intoL1(t, cb, "red", "2,red")
	}
}

// TestLostPushes: whatever connection of the pushes is lost, copies that were kept by it are not served again, though nobody told of a change.
func TestLostPushes(t *testing.T) {
	for _, conn := range []string{"shelf-listener", "shelf-fill", "all"} {
		t.Run(conn, func(t *testing.T) {
			server := redistest.Start(t, redistest.Config{})
			cl := pushing(t, server)
			src := newSource(map[string]string{"k": "1"})
			c := l1Cache(t, cl, src)
			intoL1(t, c, "k", "1")
			raw := cl.Node("any")
			ids := connections(t, raw, conn)
			if len(ids) == 0 {
				t.Fatalf("no connection of the name %s", conn)
			}
			for _, id := range ids {
				if err := raw.ClientKillByFilter(t.Context(), "ID", id).Err(); err != nil {
					t.Fatal(err)
				}
			}
			src.set("k", "2")
			if err := raw.Del(t.Context(), "x:k:v0").Err(); err != nil { // perhaps nobody hears of it
				t.Fatal(err)
			}
			end := time.Now().Add(time.Second)
			eventually(t, "2", func() bool {
				r, err := c.Lookup(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if r.Value == "1" && time.Now().After(end) {
					t.Fatalf("a second after the loss: %+v", r)
				}
				return r.Value == "2"
			})
			awaitPushes(t, cl)
			intoL1(t, c, "k", "2")
		})
	}
}

// TestSilentNode: copies are not served for longer than a second after the node has fallen silent; and again when it has answered, if it lost nothing.
func TestSilentNode(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}})
	awaitPushes(t, cl)
	src := newSource(map[string]string{"k": "1"})
	c := l1Cache(t, cl, src)
	intoL1(t, c, "k", "1")
	server.Stop()
	stopped := time.Now()
	src.set("k", "2")
	for time.Since(stopped) < 1500*time.Millisecond {
		asked := time.Since(stopped)
		if r, err := c.Lookup(t.Context(), "k"); err != nil || r.Layer == client.LayerL1 && asked > time.Second {
			t.Fatalf("%v after the node was stopped: %+v, %v", asked, r, err)
		}
	}
	server.Cont()
	eventually(t, "from this process again", func() bool {
		r, err := c.Lookup(t.Context(), "k")
		return err == nil && r.Layer == client.LayerL1
	})
	if s := c.Stats(); s.L1Doubted == 0 {
		t.Error("L1Doubted 0")
	}
}

// TestWaitersWake: who waits for another process's load is woken when it is stored, or when the lease goes, and does not wait for its next look.
func TestWaitersWake(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	a, b := pushing(t, server), pushing(t, server)
	src := newSource(map[string]string{})
	ca, cb := l1Cache(t, a, src), l1Cache(t, b, src)
	var late time.Duration
	const rounds = 8
	for i := range rounds {
		key := fmt.Sprint("k", i)
		src.set(key, "v")
		holding, gate := make(chan struct{}), make(chan struct{})
		go func() {
			_, _ = ca.GetWith(context.Background(), key, func(ctx context.Context, k string) (string, error) {
				close(holding)
				<-gate
				if i%2 == 1 {
					return "", errors.New("the load failed")
				}
				return src.load(ctx, k)
			}, client.GetOptions{})
		}()
		<-holding
		got := make(chan time.Time, 1)
		before, _ := commandStats(t, server, "mget")
		go func() {
			if i%4 < 2 {
				_, _ = cb.Get(context.Background(), key)
			} else {
				_, _ = cb.GetMany(context.Background(), []string{key})
			}
			got <- time.Now()
		}()
		// The first read, and looks after pauses of 5 to 160 ms: the next one is more than 100 ms away.
		eventually(t, "patient", func() bool {
			n, _ := commandStats(t, server, "mget")
			return n >= before+7
		})
		opened := time.Now()
		close(gate)
		late += (<-got).Sub(opened)
	}
	if mean := late / rounds; mean > 30*time.Millisecond {
		t.Errorf("waiters had their value %v after it was stored, on average", mean)
	} else {
		t.Logf("waiters had their value %v after it was stored, on average", mean)
	}
}

// TestNoStaleHitAfterPush is rule 12 under load: writers change a row and invalidate in one process, readers of another serve from L1. Once a reader has seen a
// version it never sees an older one, and after the last write it settles on the last.
func TestNoStaleHitAfterPush(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	a, b := pushing(t, server), pushing(t, server)
	var row atomic.Int64
	load := func(context.Context, string) (int64, error) { return row.Load(), nil }
	cfg := client.CacheConfig[int64]{Name: "x", TTL: time.Hour, Load: load, L1: client.L1All}
	ca, cb := newCache(t, a, cfg), newCache(t, b, cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			if err := ca.Write(context.Background(), "k", func(context.Context) error { row.Add(1); return nil }); err != nil {
				t.Error(err)
			}
		}
	}()
	hits := uint64(0)
	for seen := int64(0); ; {
		r, err := cb.Lookup(t.Context(), "k")
		if err != nil || r.Value < seen {
			t.Fatalf("%+v, %v after version %d was seen", r, err, seen)
		}
		seen = r.Value
		select {
		case <-done:
			if seen == row.Load() {
				hits = cb.Stats().L1Hits
			}
		default:
			continue
		}
		if hits > 0 {
			break
		}
	}
	t.Logf("%d hits in L1 over 1000 writes", hits)
}

// connections are the ids of a server's connections of that name; "all": of all but the one that asks.
func connections(t *testing.T, raw *redis.Client, name string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(raw.ClientList(t.Context()).Val()) {
		fields := map[string]string{}
		for _, f := range strings.Fields(line) {
			k, v, _ := strings.Cut(f, "=")
			fields[k] = v
		}
		if fields["name"] == name || name == "all" && fields["cmd"] != "client|list" {
			ids = append(ids, fields["id"])
		}
	}
	return ids
}
