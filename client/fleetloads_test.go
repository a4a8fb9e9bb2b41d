// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// joins opens a process of a fleet.
func joins(t *testing.T, cfg client.Config, loads int) *client.Client {
	t.Helper()
	cfg.FleetLoads, cfg.MaxLoads = loads, 40
	cl, err := client.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func leave(t *testing.T, cl *client.Client) {
	t.Helper()
	if err := cl.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func wantShare(t *testing.T, when string, cl *client.Client, live, share, limit int) {
	t.Helper()
	if s := cl.Stats(); s.FleetLive != live || s.FleetShare != share || s.LoadsCap != limit {
		t.Errorf("%s: %d live, share %d, cap %d; want %d, %d, %d", when, s.FleetLive, s.FleetShare, s.LoadsCap, live, share, limit)
	}
}

// TestFleetLoads: each process takes its share: at once when more appear, a minute or two after others have gone. Never more than MaxLoads, never less than one; without
// FleetLoads nothing is counted, and other namespaces are other fleets.
func TestFleetLoads(t *testing.T) {
	bubble(t, 6, func(t *testing.T, nodes *clienttest.Nodes) {
		cfg := nodes.Config()
		first := joins(t, cfg, 60)
		wantShare(t, "alone", first, 1, 60, 40)
		var fleet []*client.Client
		for range 5 {
			fleet = append(fleet, joins(t, cfg, 60))
		}
		wantShare(t, "the last one", fleet[4], 6, 10, 10)
		other := cfg
		other.Namespace = "other"
		stranger := joins(t, other, 60)
		wantShare(t, "another fleet", stranger, 1, 60, 40)
		leave(t, stranger)
		time.Sleep(3 * time.Second)
		wantShare(t, "the first one", first, 6, 10, 10)
		for _, cl := range fleet[:3] {
			leave(t, cl)
		}
		time.Sleep(50 * time.Second)
		wantShare(t, "half have left", first, 6, 10, 10)
		time.Sleep(30 * time.Second)
		wantShare(t, "half have left for good", first, 3, 20, 20)
		other.Namespace = "crowded"
		var crowd []*client.Client
		for range 4 {
			crowd = append(crowd, joins(t, other, 3))
		}
		wantShare(t, "more than there are places", crowd[3], 4, 1, 1)
		fleet = append(fleet, crowd...)
		if n := len(nodes.Node(5).Keys()); n != 0 {
			t.Errorf("%d keys on the sixth node", n)
		}
		for _, cl := range fleet[3:] {
			leave(t, cl)
		}
		leave(t, first)
		for i := range nodes.Len() {
			for _, key := range nodes.Node(i).Keys() {
				t.Errorf("all have left, and %s is still on node %d", key, i)
			}
		}
		alone := open(t, cfg)
		wantShare(t, "no fleet", alone, 0, 0, client.DefaultMaxLoads)
	})
}

// TestFleetLoads_Crash: a process that ends without a word counts for a few beats more, and then for the minute.
func TestFleetLoads_Crash(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		cl := joins(t, nodes.Config(), 10)
		defer leave(t, cl)
		driver := cl.Node("x")
		if n, err := driver.ZCard(t.Context(), "~f:").Result(); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		now, err := driver.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(driver.ZAdd(t.Context(), "~f:", redis.Z{Score: float64(now.UnixMilli()), Member: "dead"}).Err(), driver.HSet(t.Context(), "~a:", "dead", "1 0").Err()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		wantShare(t, "soon after", cl, 2, 5, 5)
		time.Sleep(12 * time.Second)
		about, err := driver.HGetAll(t.Context(), "~a:").Result()
		if err != nil || len(about) != 1 {
			t.Errorf("%v, %v: the dead one must be gone", about, err)
		}
		for _, text := range about {
			version, start, _ := strings.Cut(text, " ")
			if ms, err := strconv.ParseInt(start, 10, 64); version != "1" || err != nil || time.UnixMilli(ms).After(now) {
				t.Errorf("it says %q of itself", text)
			}
		}
		wantShare(t, "the minute", cl, 2, 5, 5)
		time.Sleep(time.Minute)
		wantShare(t, "later", cl, 1, 10, 10)
	})
}

// TestFleetLoads_NodesDown: what was known last stays while no node answers; one node that answers is enough; a node that comes back empty changes nothing; and a process that
// starts while none answers has one place.
func TestFleetLoads_NodesDown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *clienttest.Nodes) {
		var fleet []*client.Client
		for range 4 {
			fleet = append(fleet, joins(t, nodes.Config(), 20))
		}
		time.Sleep(3 * time.Second)
		wantShare(t, "at first", fleet[0], 4, 5, 5)
		for i := range 3 {
			nodes.Node(i).Down()
		}
		late := joins(t, nodes.Config(), 20)
		wantShare(t, "one that starts now", late, 0, 1, 1)
		time.Sleep(80 * time.Second)
		wantShare(t, "nobody answers", fleet[0], 4, 5, 5)
		nodes.Node(1).Flush()
		nodes.Node(1).Up()
		time.Sleep(30 * time.Second)
		wantShare(t, "one node is back", fleet[0], 5, 4, 4)
		wantShare(t, "and for the late one", late, 5, 4, 4)
		nodes.Node(1).Flush()
		time.Sleep(30 * time.Second)
		wantShare(t, "it was flushed", fleet[0], 5, 4, 4)
		for i := range 3 {
			nodes.Node(i).Up()
		}
		for _, cl := range append(fleet, late) {
			leave(t, cl)
		}
	})
}

// TestFleetLoads_Partition: half of the fleet cannot reach the nodes for half a minute, and the database does not notice: no process takes more than its share.
func TestFleetLoads_Partition(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		const processes, loads = 10, 20
		var cut atomic.Bool
		var running, highest atomic.Int64
		load := func(context.Context, string) (string, error) {
			n := running.Add(1)
			for h := highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
			}
			time.Sleep(100 * time.Millisecond)
			running.Add(-1)
			return "v", nil
		}
		var fleet []*client.Client
		var caches []*client.Cache[string]
		for i := range processes {
			cfg := nodes.Config()
			if i%2 == 1 {
				cfg.Redis = cutOff(cfg.Redis, &cut)
			}
			fleet = append(fleet, joins(t, cfg, loads))
			caches = append(caches, newCache(t, fleet[i], client.CacheConfig[string]{Name: fmt.Sprint("c", i), TTL: time.Minute, L1: client.L1Off, Load: load}))
		}
		time.Sleep(3 * time.Second)
		ctx, stop := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for _, c := range caches {
			for i := range 4 {
				crowd.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						c.GetWith(ctx, fmt.Sprint(i, n), nil, client.GetOptions{NoFill: true})
					}
				})
			}
		}
		time.Sleep(5 * time.Second)
		cut.Store(true)
		time.Sleep(30 * time.Second)
		cut.Store(false)
		time.Sleep(5 * time.Second)
		stop()
		crowd.Wait()
		if h := highest.Load(); h != loads {
			t.Errorf("%d loads at once in the fleet, want all of %d and no more", h, loads)
		}
		for _, cl := range fleet {
			leave(t, cl)
		}
	})
}

// TestFleetLoads_RealNode: the script and the driver agree on a real server; the keys end by themselves.
func TestFleetLoads_RealNode(t *testing.T) {
	node := redistest.Start(t, redistest.Config{})
	cfg := client.Config{Namespace: "shop", OperationTimeout: 5 * time.Second, Nodes: []ring.Node{{ID: "a", Addr: node.Addr()}}}
	first := joins(t, cfg, 10)
	second := joins(t, cfg, 10)
	wantShare(t, "the second", second, 2, 5, 5)
	eventually(t, "seen by the first", func() bool { return first.Stats().FleetLive == 2 })
	for _, key := range []string{"~f:shop", "~a:shop"} {
		ttl, err := first.Node("x").PTTL(t.Context(), key).Result()
		if err != nil || ttl <= 0 || ttl > 20*time.Second {
			t.Errorf("%s ends in %v, %v", key, ttl, err)
		}
	}
	leave(t, second)
	if n, err := first.Node("x").ZCard(t.Context(), "~f:shop").Result(); err != nil || n != 1 {
		t.Errorf("%d are left, %v", n, err)
	}
	leave(t, first)
}

// TestAdaptiveLoads: the client's loads are what the cap follows, those of batches and those that time out too.
func TestAdaptiveLoads(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		nodes.Node(0).Down()
		cfg := nodes.Config()
		cfg.AdaptiveLoads, cfg.MaxLoads = true, 40
		cl := open(t, cfg)
		var slow atomic.Int64
		slow.Store(1)
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, LoadTimeout: 300 * time.Millisecond, NoSourceBreaker: true, NoErrorBackoff: true,
			Load: func(ctx context.Context, _ string) (string, error) {
				select {
				case <-time.After(time.Duration(slow.Load()) * 20 * time.Millisecond):
				case <-ctx.Done():
				}
				return "v", ctx.Err()
			}})
		ctx, stop := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for i := range 60 {
			crowd.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					c.Get(ctx, fmt.Sprint(i, "-", n))
				}
			})
		}
		time.Sleep(time.Second)
		if s := cl.Stats(); s.LoadsCap != 40 {
			t.Errorf("a quick database: %+v", s)
		}
		slow.Store(1000) // all time out
		time.Sleep(5 * time.Second)
		if s := cl.Stats(); s.LoadsCap > 10 || s.LoadsCap < 4 {
			t.Errorf("a database that hangs: the cap is %d", s.LoadsCap)
		}
		slow.Store(1)
		time.Sleep(5 * time.Second)
		if s := cl.Stats(); s.LoadsCap != 40 || s.LoadsHighest > 40 {
			t.Errorf("a quick one again: %+v", s)
		}
		stop()
		crowd.Wait()
	})
}

// cutOff makes a process's dials fail, and what it has break, while cut is set.
func cutOff(hook func(ring.Node, *redis.Options), cut *atomic.Bool) func(ring.Node, *redis.Options) {
	return func(n ring.Node, o *redis.Options) {
		hook(n, o)
		o.Limiter = gateOf{cut}
	}
}

// gateOf is a driver's limiter that refuses all commands while cut is set.
type gateOf struct{ cut *atomic.Bool }

func (g gateOf) Allow() error {
	if g.cut.Load() {
		return errors.New("EOF")
	}
	return nil
}
func (gateOf) ReportResult(error) {}
