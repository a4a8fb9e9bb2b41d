// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// readSteadily reads a key in each cache so many times a second, for some seconds of the bubble's time.
func readSteadily(t *testing.T, caches []*client.Cache[string], key string, perSecond, seconds int) {
	t.Helper()
	for range perSecond * seconds {
		for _, c := range caches {
			get(t, c, key)
		}
		time.Sleep(time.Second / time.Duration(perSecond))
	}
}

func layers(t *testing.T, caches []*client.Cache[string], key string) map[client.Layer]int {
	t.Helper()
	from := make(map[client.Layer]int)
	for _, c := range caches {
		get(t, c, key) // where nothing is pushed, a copy ends after two seconds: the next read brings it anew
		r, err := c.Lookup(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		from[r.Layer]++
	}
	return from
}

// TestFleetHotKeys: a key that is hot in no process, and in all of them together, is kept by each that reads it and takes part; one that is read half as often by nobody.
func TestFleetHotKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 2)
		var all []*client.Cache[string]
		var clients []*client.Client
		for range 14 {
			cl := open(t, nodes.Config())
			clients = append(clients, cl)
			all = append(all, newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo, NoEarlyRefresh: true, HotRate: 10}))
		}
		apart := newCache(t, clients[0], client.CacheConfig[string]{Name: "x", Schema: 1, TTL: time.Hour, Load: echo, HotRate: 10, NoFleetHot: true})
		readSteadily(t, append(all, apart), "k", 9, 5) // 126 a second
		if from := layers(t, all, "k"); from[client.LayerL1] != len(all) {
			t.Errorf("read from %v, want all from L1", from)
		}
		get(t, apart, "k")
		if r, _ := apart.Lookup(t.Context(), "k"); r.Layer != client.LayerL2 {
			t.Errorf("a cache that does not take part reads from %v", r.Layer)
		}
		if s := all[0].Stats(); s.FleetHot != 1 {
			t.Errorf("FleetHot is %d", s.FleetHot)
		}
		if s := clients[0].Stats(); s.HeatKeys == 0 || s.HeatWrites == 0 || s.HeatErrors != 0 {
			t.Errorf("%+v", s)
		}
		top := all[0].TopKeys(1)
		if len(top) != 1 || !top[0].FleetHot || top[0].Fleet < 90 || top[0].Fleet > 150 || top[0].Rate > 10 || top[0].FleetNodes > top[0].Fleet {
			t.Errorf("top: %+v", top)
		}

		readSteadily(t, all, "other", 4, 5) // 56 a second
		if from := layers(t, all, "other"); from[client.LayerL2] != len(all) {
			t.Errorf("a key that is not hot is read from %v", from)
		}
		time.Sleep(30 * time.Second) // nobody reads k
		if s := all[0].Stats(); s.FleetHot != 0 {
			t.Errorf("FleetHot is %d long after the last read", s.FleetHot)
		}
	})
}

// commandsOf is how often a server has carried out some commands.
func commandsOf(t *testing.T, s *redistest.Server, commands ...string) (calls int) {
	t.Helper()
	stats, err := s.Info(t.Context(), "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		text, _, _ := strings.Cut(strings.TrimPrefix(stats["cmdstat_"+c], "calls="), ",")
		n, _ := strconv.Atoi(text)
		calls += n
	}
	return calls
}

// TestOneProcessManyReads: one process reads one key as fast as it can, which is hundreds of thousands of times a second; the node sees a few commands of that.
func TestOneProcessManyReads(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: s.Addr()}}, TrustSnapshots: true, OperationTimeout: 5 * time.Second})
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo, NoEarlyRefresh: true})
	hammer := func(long time.Duration) (reads int) {
		for end := time.Now().Add(long); time.Now().Before(end); reads += 100 {
			for range 100 {
				get(t, c, "k")
			}
		}
		return reads
	}
	for r := (client.Result[string]{}); r.Layer != client.LayerL1; hammer(10 * time.Millisecond) { // until it is hot
		r, _ = c.Lookup(t.Context(), "k")
	}
	const seconds = 3
	gets, scripts, written := commandsOf(t, s, "get", "mget"), commandsOf(t, s, "evalsha", "eval"), commandsOf(t, s, "set")
	reads := hammer(seconds * time.Second)
	gets, scripts, written = commandsOf(t, s, "get", "mget")-gets, commandsOf(t, s, "evalsha", "eval")-scripts, commandsOf(t, s, "set")-written
	t.Logf("%d reads a second: the node was read %d times in %d s, and told %d times with %d additions", reads/seconds, gets, seconds, scripts, written)
	if reads < 1000*gets || reads < 10_000*seconds {
		t.Errorf("%d reads in %d s: too few to prove anything", reads, seconds)
	}
	if gets > 5*seconds {
		t.Errorf("the node was read %d times in %d s", gets, seconds)
	}
	if scripts > 2*seconds+1 || written > seconds+1 || written == 0 {
		t.Errorf("the node was told %d times in %d s, with %d additions: want at most one a second", scripts, seconds, written)
	}
}

// TestNodesThatDoNotListen: a node that has fallen silent, or that does not permit the script, delays no reader and not what is told to others.
func TestNodesThatDoNotListen(t *testing.T) {
	t.Run("silent", func(t *testing.T) {
		s := redistest.StartNodes(t, 2)
		cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: s[0].Addr()}, {ID: "b", Addr: s[1].Addr()}}, TrustSnapshots: true, OperationTimeout: 10 * time.Second})
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo, NoEarlyRefresh: true, HotRate: 20})
		keys := oneOnEach(c, "a", "b")
		spin(t, c, keys["a"], keys["b"], func() bool { return cl.Stats().HeatKeys >= 4 })
		s[0].Stop()
		defer s[0].Cont()
		before, stopped := cl.Stats().HeatKeys, time.Now()
		var slowest time.Duration
		spin(t, c, keys["b"], "", func() bool {
			began := time.Now()
			get(t, c, keys["b"])
			slowest = max(slowest, time.Since(began))
			return cl.Stats().HeatKeys >= before+2 // b hears more while the call to a hangs
		})
		if took := time.Since(stopped); took > 8*time.Second {
			t.Errorf("the other node was told after %v: it has waited for the silent one", took)
		}
		if slowest > time.Second {
			t.Errorf("a read of the other node's key took %v", slowest)
		}
		s[0].Cont()
	})
	t.Run("forbidden", func(t *testing.T) {
		s := redistest.Start(t, redistest.Config{})
		mustDo(t, s, "ACL", "SETUSER", "cache", "on", ">secret", "+@all", "~x:*", "~~l:*", "~~m:*", "~~b:*", "~~g:*", "~~t:*", "~~w:*")
		cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: s.Addr()}}, TrustSnapshots: true, OperationTimeout: 5 * time.Second,
			Redis: func(_ ring.Node, o *redis.Options) { o.Username, o.Password = "cache", "secret" }})
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo, NoEarlyRefresh: true, HotRate: 20})
		spin(t, c, "k", "", func() bool { return cl.Stats().HeatErrors > 0 })
		began := time.Now()
		spin(t, c, "k", "", func() bool { return time.Since(began) > 2500*time.Millisecond })
		if n := cl.Stats().HeatErrors; n != 1 {
			t.Errorf("a node that forbids it was asked %d times in 2.5 s", n)
		}
		if r, err := c.Lookup(t.Context(), "k"); err != nil || r.Layer != client.LayerL1 {
			t.Errorf("read from %v, %v", r.Layer, err)
		}
	})
}

// spin reads two keys all the time until something is true.
func spin(t *testing.T, c *client.Cache[string], key, other string, until func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !until(); {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
		for range 20 {
			get(t, c, key)
			if other != "" {
				get(t, c, other)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// oneOnEach finds a key for each node.
func oneOnEach(c *client.Cache[string], nodes ...string) map[string]string {
	keys := make(map[string]string)
	for i := 0; len(keys) < len(nodes); i++ {
		key := fmt.Sprint(i)
		if node, _ := c.Where(key); keys[node] == "" {
			keys[node] = key
		}
	}
	return keys
}

// TestLoadEvent: a node that is far busier than the other is told of, with the key that makes it so, and that it is over.
func TestLoadEvent(t *testing.T) {
	s := redistest.StartNodes(t, 2)
	var mu sync.Mutex
	var events []client.Event
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: s[0].Addr()}, {ID: "b", Addr: s[1].Addr()}}, TrustSnapshots: true, OperationTimeout: 5 * time.Second,
		OnEvent: func(e client.Event) {
			if e.Kind == client.EventLoad {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, e)
			}
		}})
	told := func() int { mu.Lock(); defer mu.Unlock(); return len(events) }
	large := strings.Repeat("v", 1000<<10)
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, NoEarlyRefresh: true, HotRate: 60_000, LargeValueBytes: client.DefaultMaxValueBytes, // followed from 30 reads a second on, hot from 240 on
		Load: func(context.Context, string) (string, error) { return large, nil }})
	key := oneOnEach(c, "a", "b")["b"]
	for end := time.Now().Add(30 * time.Second); told() == 0 && time.Now().Before(end); {
		get(t, c, key)
		time.Sleep(5 * time.Millisecond)
	}
	if told() != 1 {
		t.Fatalf("%d events, want 1", told())
	}
	e := events[0]
	t.Logf("%+v", e)
	if e.Node != "b" || e.From != "even" || e.To != "high" || e.Load < 10_000 || e.Load < 2*e.Peers {
		t.Errorf("%+v", e)
	}
	if _, name := c.Where(key); len(e.Keys) != 1 || e.Keys[0].Key != name {
		t.Errorf("keys: %+v, want %s", e.Keys, name)
	}
	for end := time.Now().Add(30 * time.Second); told() == 1 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if told() != 2 || events[1].Node != "b" || events[1].From != "high" || events[1].To != "even" {
		t.Errorf("%+v", events)
	}
}

// TestSpikeIsSpread: a key that is suddenly read more often than one node should serve is read on four within a second, and on its owner alone a while after that is over.
func TestSpikeIsSpread(t *testing.T) {
	cfg := client.Config{TrustSnapshots: true, OperationTimeout: 5 * time.Second}
	for i, s := range redistest.StartNodes(t, 4) {
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: fmt.Sprint("node-", i), Addr: s.Addr()})
	}
	c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo, NoEarlyRefresh: true, L1: client.L1Off, HotCopies: 4, HotCopyRate: 50})
	get(t, c, "k")
	time.Sleep(300 * time.Millisecond) // a spike begins at any moment, not with the process
	seen := make(map[string]bool)
	began := time.Now()
	for len(seen) < 4 && time.Since(began) < 20*time.Second {
		r, err := c.Lookup(t.Context(), "k")
		if err != nil || r.Value != "value of k" {
			t.Fatalf("%v, %v", r, err)
		}
		seen[r.Node] = true
	}
	relief := time.Since(began)
	t.Logf("read on %d nodes after %v", len(seen), relief)
	if len(seen) < 4 || relief > 3*time.Second { // a second, and what a busy machine takes
		t.Errorf("read on %d nodes after %v", len(seen), relief)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // until a node has said so, and not this process alone
		get(t, c, "k")
		if top := c.TopKeys(1); len(top) == 1 && top[0].Key == "k" && top[0].Copies == 4 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("top: %+v", top)
		}
	}
	// Some fourteen seconds: its rate falls, and then the last word on it counts for five.
	eventuallyIn(t, time.Minute, "on its owner alone, when nobody reads it any more", func() bool { return c.Stats().Splits == 0 })
	if r, err := c.Lookup(t.Context(), "k"); err != nil || r.Node != ownerOf(c, "k") {
		t.Errorf("read from %s, %v; want its owner, %s", r.Node, err, ownerOf(c, "k"))
	}
}
