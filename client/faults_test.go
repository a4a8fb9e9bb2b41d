// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// A lease request that timed out but was carried out is given back, by Get and by GetMany.
func TestTimedOutLeaseIsGivenBack(t *testing.T) {
	for name, read := range map[string]func(c *client.Cache[string]){
		"Get":     func(c *client.Cache[string]) { _, _ = c.Get(context.Background(), "k") },
		"GetMany": func(c *client.Cache[string]) { _, _ = c.GetMany(context.Background(), []string{"k"}) },
	} {
		t.Run(name, func(t *testing.T) {
			node := redistest.StartNodes(t, 1)[0]
			cfg := client.Config{Nodes: []ring.Node{{ID: "n", Addr: node.Addr()}}, OperationTimeout: 200 * time.Millisecond, MaxLoads: 1}
			cl := open(t, cfg)
			blocker, blocked := make(chan struct{}), make(chan struct{})
			load := func(_ context.Context, k string) (string, error) {
				if k == "blocker" {
					close(blocked)
					<-blocker
					return "", errors.New("never mind")
				}
				time.Sleep(time.Second)
				return "v", nil
			}
			c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: load,
				LoadMany: func(ctx context.Context, ks []string) (map[string]string, error) {
					v, err := load(ctx, ks[0])
					return map[string]string{ks[0]: v}, err
				}})
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = c.Get(context.Background(), "blocker") })
			<-blocked
			done := make(chan struct{})
			go func() { read(c); close(done) }()
			for cl.Stats().LoadsQueued == 0 {
				time.Sleep(time.Millisecond)
			}
			node.Stop()
			close(blocker)
			time.Sleep(600 * time.Millisecond) // the lease request has timed out
			node.Cont()                        // and is carried out now
			<-done
			wg.Wait()
			time.Sleep(50 * time.Millisecond)
			if n, _ := cl.Node("x:k:v0").Exists(t.Context(), "~l:x:k:v0").Result(); n != 0 {
				start := time.Now()
				d := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
					Load: func(context.Context, string) (string, error) { return "v", nil }})
				_, err := d.Get(t.Context(), "k")
				t.Errorf("the lease of a load that has ended is still there; the next process's Get took %v (%v), stored %d", time.Since(start).Round(10*time.Millisecond), err, d.Stats().Fills)
			}
		})
	}
}

// A codec that panics: a caller of Get can recover, one of GetMany loses its process.
// Large values: one MGET of 512 keys cannot arrive in one timeout.
func TestGetManyOfLargeValues(t *testing.T) {
	node := redistest.StartNodes(t, 1)[0]
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "n", Addr: node.Addr()}}, OperationTimeout: 250 * time.Millisecond})
	var loads atomic.Int32
	big := strings.Repeat("x", 512<<10)
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
		Load: func(context.Context, string) (string, error) { loads.Add(1); return big, nil },
		LoadMany: func(_ context.Context, ks []string) (map[string]string, error) {
			loads.Add(int32(len(ks)))
			m := map[string]string{}
			for _, k := range ks {
				m[k] = big
			}
			return m, nil
		}})
	keys := make([]string, 300)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
		if _, err := c.Get(t.Context(), keys[i]); err != nil { // one by one they are stored
			t.Fatal(err)
		}
	}
	t.Logf("stored %d of %d", c.Stats().Fills, len(keys))
	for range 3 {
		loads.Store(0)
		start := time.Now()
		m, err := c.GetMany(t.Context(), keys)
		t.Logf("%d values, %v, in %v, %d loaded, NodeErrors %d", len(m), err, time.Since(start), loads.Load(), c.Stats().NodeErrors)
		if err != nil || len(m) != len(keys) || loads.Load() > 10 {
			t.Errorf("GetMany of 300 stored values of 512 KiB loaded %d rows", loads.Load())
		}
	}
}

// All nodes stopped: the service runs at the speed that MaxLoads allows, as it does when they are dead; nobody is turned away because a
// place is held by somebody who waits for a node.
func TestStoppedNodeServesAtTheCap(t *testing.T) {
	rates := make(map[string]int64)
	for _, how := range []string{"killed", "stopped"} {
		t.Run(how, func(t *testing.T) {
			node := redistest.StartNodes(t, 1)[0]
			cl := open(t, client.Config{Nodes: []ring.Node{{ID: "n", Addr: node.Addr()}}, MaxLoads: 8})
			c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
				Load: func(context.Context, string) (string, error) { time.Sleep(5 * time.Millisecond); return "v", nil }})
			if how == "killed" {
				node.Kill()
			} else {
				node.Stop()
				defer node.Cont()
			}
			var ok, overloaded, n atomic.Int64
			end := time.Now().Add(2 * time.Second)
			var wg sync.WaitGroup
			for range 200 {
				wg.Go(func() {
					for time.Now().Before(end) {
						_, err := c.Get(context.Background(), fmt.Sprint(n.Add(1)))
						switch {
						case err == nil:
							ok.Add(1)
						case errors.Is(err, client.ErrOverloaded):
							overloaded.Add(1)
						default:
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			rates[how] = ok.Load() / 2
			t.Logf("%s: %d/s answered, %d/s overloaded (8 places x 5 ms = 1600/s)", how, ok.Load()/2, overloaded.Load()/2)
		})
	}
	if rates["stopped"]*3 < rates["killed"] {
		t.Errorf("%d/s with the node stopped, %d/s with it dead", rates["stopped"], rates["killed"])
	}
}

// A GetMany whose pool of connections is exhausted loads what the node has.
func TestGetManyPoolTimeout(t *testing.T) {
	node := redistest.StartNodes(t, 1)[0]
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "n", Addr: node.Addr()}}, PoolSize: 1, OperationTimeout: 200 * time.Millisecond})
	var loads atomic.Int32
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
		Load: func(context.Context, string) (string, error) {
			loads.Add(1)
			time.Sleep(time.Millisecond)
			return "v", nil
		},
		LoadMany: func(_ context.Context, ks []string) (map[string]string, error) {
			loads.Add(1)
			return map[string]string{ks[0]: "v"}, nil
		}})
	for name, read := range map[string]func() error{
		"Get":     func() error { _, err := c.Get(t.Context(), "a"); return err },
		"GetMany": func() error { _, err := c.GetMany(t.Context(), []string{"a"}); return err },
	} {
		_, _ = c.Get(t.Context(), "a")
		loads.Store(0)
		conn := cl.Node("x:a:v0").Conn() // somebody else has the connection, for longer than one timeout
		if err := conn.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		given := make(chan struct{})
		time.AfterFunc(300*time.Millisecond, func() { _ = conn.Close(); close(given) })
		if err := read(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d loads of an entry that the node has", name, loads.Load())
		if loads.Load() != 0 {
			t.Errorf("%s: %d loads of an entry that the node has", name, loads.Load())
		}
		<-given
	}
}

// The keys of the second LoadMany call wait for keys of the first that another process holds.
func TestGetManyLoadsAllBeforeItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		gate := make(chan struct{})
		var free atomic.Bool
		process := func(hold bool) *client.Cache[string] {
			return newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, MaxLoadKeys: 1,
				LoadMany: func(_ context.Context, keys []string) (map[string]string, error) {
					if hold {
						<-gate
					} else if keys[0] == "free" {
						free.Store(true)
					}
					return map[string]string{keys[0]: "v"}, nil
				}})
		}
		a, b := process(true), process(false)
		var wg sync.WaitGroup
		read := func(c *client.Cache[string], keys ...string) {
			wg.Go(func() {
				if m, err := c.GetMany(context.Background(), keys); err != nil || len(m) != len(keys) {
					t.Errorf("%v, %v", m, err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		read(a, "held")
		read(b, "held", "free")
		if !free.Load() {
			t.Error(`"free", which nobody holds, is not loaded: GetMany waits for "held" first`)
		}
		close(gate)
		wg.Wait()
	})
}
