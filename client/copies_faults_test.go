// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// copyNodes are real nodes with their ids, and a configuration that reaches them.
func copyNodes(t *testing.T, n int) (map[string]*redistest.Server, client.Config) {
	t.Helper()
	servers := make(map[string]*redistest.Server)
	cfg := client.Config{OperationTimeout: time.Second, TrustSnapshots: true}
	for i, server := range redistest.StartNodes(t, n) {
		id := fmt.Sprint("node-", i)
		servers[id] = server
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: id, Addr: server.Addr()})
	}
	return servers, cfg
}

// TestTenCopiesShareTheReads: with a key on all of 10 nodes the busiest serves at most 1.25 times the mean of its reads.
func TestTenCopiesShareTheReads(t *testing.T) {
	servers, cfg := copyNodes(t, 10)
	cfg.OperationTimeout = 5 * time.Second
	src := newSource(map[string]string{"k": "1"})
	c := newChosen(t, cfg, src.load, func(cc *client.CacheConfig[string]) { cc.HotCopies = 10 })
	c.spread(t, "k", 10)
	chance := newChosen(t, cfg, src.load, func(cc *client.CacheConfig[string]) { cc.HotCopies = 10 })
	chance.Choose(rand.New(rand.NewPCG(1, 2)).Float64)
	before := make(map[string]int)
	for id, s := range servers {
		before[id], _ = commandStats(t, s, "mget")
	}
	const reads = 10_000
	for range reads {
		chance.Split("k", 10) // each time: the fleet's measured rate may say otherwise meanwhile
		if r, err := chance.Lookup(t.Context(), "k"); err != nil || r.Value != "1" {
			t.Fatal(r, err)
		}
	}
	total, most := 0, 0
	for id, s := range servers {
		after, _ := commandStats(t, s, "mget")
		n := after - before[id]
		total, most = total+n, max(most, n)
	}
	t.Logf("%d reads in %d commands, the busiest of 10 nodes %d: %.3f of the mean", reads, total, most, float64(most)/(float64(total)/10))
	if float64(most) > 1.25*float64(total)/10 || total < reads || total > reads+reads/50 {
		t.Errorf("%d commands in all, %d on the busiest node", total, most)
	}
	if n := src.count("k"); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// TestCopyNodeFails: the node of a copy is killed, or stops. Readers get their answers from the other nodes; an invalidation says which copy it has not reached; once the node is
// back nobody reads the old row there.
func TestCopyNodeFails(t *testing.T) {
	for name, fail := range map[string]func(s *redistest.Server) (heal func()){
		"killed":  func(s *redistest.Server) func() { s.Kill(); return s.Restart },
		"stopped": func(s *redistest.Server) func() { s.Stop(); return s.Cont },
	} {
		t.Run(name, func(t *testing.T) {
			servers, cfg := copyNodes(t, 4)
			src := newSource(map[string]string{"k": "1"})
			c, other := newChosen(t, cfg, src.load, nil), newChosen(t, cfg, src.load, nil)
			c.spread(t, "k", 4)
			node, _ := c.CopyAt("k", 2)
			heal := fail(servers[node])
			for range 50 {
				for i := range 4 {
					c.split(4, "k")
					if r := c.at(t, "k", i); r.Value != "1" || r.Layer != client.LayerL2 {
						t.Fatalf("index %d: %+v", i, r)
					}
				}
			}
			eventually(t, "the node is seen down", func() bool { return stateOf(c.cl, node) == "down" })
			began := time.Now()
			for range 100 {
				if r := c.at(t, "k", 2); r.Node == node {
					t.Fatal("read from a node that is down")
				}
				c.split(4, "k")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("100 reads past a node that is down took %v", took)
			}
			if n := src.count("k"); n != 1 {
				t.Errorf("%d loads, want 1", n)
			}
			src.set("k", "2")
			err := c.Invalidate(t.Context(), "k")
			var of *client.NodeError
			if !client.NodesOnly(err) || !errors.As(err, &of) || of.Node != node || of.Op != "invalidate copy" {
				t.Errorf("the invalidation says %v, want the copy on %s", err, node)
			}
			c.noneReads(t, "while it is owed", "k", "2", 4)
			heal()
			paid(t, c.cl)
			other.noneReads(t, "once the node is back", "k", "2", 4)
			c.noneReads(t, "once the node is back, the writer", "k", "2", 4)
		})
	}
}

// TestCopiesNeedTheDocumentedRights: a user who may see the patterns that Config.Namespace and CacheConfig.HotCopies name, and no others, can make, read and void copies, of large values too.
func TestCopiesNeedTheDocumentedRights(t *testing.T) {
	servers, cfg := copyNodes(t, 3)
	cfg.OperationTimeout, cfg.Namespace = 5*time.Second, "ns"
	rights := []any{"ACL", "SETUSER", "shelf", "on", ">secret", "resetkeys", "-@all", "+@read", "+@write", "+@scripting", "+info", "+time"}
	for _, pattern := range []string{"", "~l:", "~m:", "~b:", "~g:", "~t:", "~w:", "~c:", "~cl:", "~cm:", "~cb:", "~s:", "~h:"} {
		rights = append(rights, "~"+pattern+"ns/*")
	}
	for _, s := range servers {
		mustDo(t, s, rights...)
	}
	cfg.Redis = func(_ ring.Node, o *redis.Options) { o.Username, o.Password = "shelf", "secret" }
	src := newSource(map[string]string{"k": "1", "large": strings.Repeat("1", 200_000)})
	c := newChosen(t, cfg, src.load, nil)
	for _, key := range []string{"k", "large"} {
		c.spread(t, key, 3)
		src.set(key, "2")
		if err := c.Invalidate(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		c.noneReads(t, "after the invalidation", key, "2", 3)
	}
	for _, n := range c.cl.Stats().Nodes {
		if n.LastFailure != nil {
			t.Errorf("%s: %v", n.ID, n.LastFailure)
		}
	}
}

func stateOf(cl *client.Client, node string) string {
	for _, n := range cl.Stats().Nodes {
		if n.ID == node {
			return n.State
		}
	}
	return ""
}

// TestReadsSurviveANodesDeath: with two copies of every key, the death of a node costs no loads; a write while the node is down is seen at once, and the old row never again.
func TestReadsSurviveANodesDeath(t *testing.T) {
	for _, gutter := range []bool{false, true} {
		t.Run(fmt.Sprint("gutter=", gutter), func(t *testing.T) {
			servers, cfg := copyNodes(t, 3)
			cfg.Gutter, cfg.OperationTimeout = gutter, 5*time.Second // a node that was killed refuses connections at once: nothing waits for so long
			src := newSource(map[string]string{})
			var calls [][]string
			edit := func(c *client.CacheConfig[string]) {
				c.HotCopies, c.HotCopyRate, c.Copies, c.LoadMany = 0, 0, 2, src.loadMany(&calls)
			}
			c := newChosen(t, cfg, src.load, edit)
			other := newChosen(t, cfg, src.load, edit)
			var keys []string
			for i := range 60 {
				key := strconv.Itoa(i)
				keys = append(keys, key)
				src.set(key, "1")
				if i%2 == 0 {
					if _, err := c.Get(t.Context(), key); err != nil {
						t.Fatal(err)
					}
				}
			}
			if m, err := c.GetMany(t.Context(), keys); err != nil || len(m) != len(keys) {
				t.Fatal(len(m), err)
			}
			for _, key := range keys {
				node, name := c.CopyAt(key, 1)
				eventually(t, "each key has its copy", func() bool {
					n, _ := mustDo(t, servers[node], "EXISTS", name).(int64)
					return n == 1
				})
			}
			dead, _ := c.Where("0")
			servers[dead].Kill()
			sourceFails := errors.New("a load")
			src.fail(sourceFails)
			for range 20 { // before and after it is known
				for _, p := range []*chosen{c, other} {
					for _, key := range keys {
						if r, err := p.Lookup(t.Context(), key); err != nil || r.Value != "1" || r.Layer != client.LayerL2 || r.Node == dead {
							t.Fatalf("%s: %+v, %v", key, r, err)
						}
					}
					if m, err := p.GetMany(t.Context(), keys); err != nil || len(m) != len(keys) {
						t.Fatalf("GetMany: %d of %d keys, %v", len(m), len(keys), err)
					}
				}
			}
			src.fail(nil)
			src.set("0", "2")
			err := c.Invalidate(t.Context(), "0")
			var of *client.NodeError
			if !client.NodesOnly(err) || !errors.As(err, &of) || of.Node != dead {
				t.Fatalf("the invalidation says %v, want the owner, %s", err, dead)
			}
			for range 3 {
				for _, p := range []*chosen{c, other} {
					if v, err := p.Get(t.Context(), "0"); err != nil || v != "2" {
						t.Errorf("after the write: %q, %v", v, err)
					}
				}
			}
			servers[dead].Restart()
			paid(t, c.cl)
			for range 3 {
				for _, p := range []*chosen{c, other} {
					if v, err := p.Get(t.Context(), "0"); err != nil || v != "2" {
						t.Errorf("once the owner is back: %q, %v", v, err)
					}
				}
			}
			node, name := c.CopyAt("0", 1)
			eventually(t, "the copy is brought again", func() bool {
				if v, err := other.Get(t.Context(), "0"); err != nil || v != "2" {
					t.Errorf("%q, %v", v, err)
				}
				n, _ := mustDo(t, servers[node], "EXISTS", name).(int64)
				return n == 1
			})
		})
	}
}

// TestCopiesOnANodeThatWasRestarted: an entry that is older than the start of a node has a copy there all the same, which is made once.
func TestCopiesOnANodeThatWasRestarted(t *testing.T) {
	servers, cfg := copyNodes(t, 2)
	cfg.TrustSnapshots, cfg.OperationTimeout = false, 5*time.Second
	src := newSource(map[string]string{"k": "1"})
	time.Sleep(1500 * time.Millisecond) // what is stored in a server's first second may look older than its start
	c := newChosen(t, cfg, src.load, nil)
	c.at(t, "k", 0)
	time.Sleep(1500 * time.Millisecond) // or be younger than the next one
	node, _ := c.CopyAt("k", 1)
	servers[node].Restart()
	c.spread(t, "k", 2)
	filled, there := c.Stats().CopiesFilled, 0
	for range 200 {
		c.split(2, "k")
		if r := c.at(t, "k", 1); r.Node == node && r.Value == "1" {
			there++
		}
		time.Sleep(time.Millisecond)
	}
	if there < 150 { // what the node had before its start is cleared meanwhile, once
		t.Errorf("%d of 200 reads found the copy", there)
	}
	if n := c.Stats().CopiesFilled - filled; n > 3 {
		t.Errorf("copied %d times more", n)
	}
	if n := src.count("k"); n != 1 {
		t.Errorf("%d loads, want 1", n)
	}
}

// TestLostCopiesComeBack: the copies that went with their node are made again as their keys are read.
func TestLostCopiesComeBack(t *testing.T) {
	nodes := clienttest.Start(t, 2)
	src := newSource(map[string]string{"k": "1"})
	c := newChosen(t, patient(nodes), src.load, func(c *client.CacheConfig[string]) { c.HotCopies, c.HotCopyRate, c.Copies = 0, 0, 2 })
	c.Choose(rand.New(rand.NewPCG(1, 2)).Float64)
	c.at(t, "k", 0)
	node, name := c.CopyAt("k", 1)
	there := func() bool { _, ok := nodes.ByID(node).Get(name); return ok }
	eventually(t, "the copy is there", there)
	if ttl := nodes.ByID(node).TTL(name); ttl < 50*time.Minute {
		t.Errorf("it lives %v, want what its entry does", ttl)
	}
	nodes.ByID(node).Delete(name)
	for range 1000 {
		c.at(t, "k", 0)
	}
	eventually(t, "the copy is there again", there)
	if n := src.count("k"); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// TestCopiesNeverGoBack: writers and readers of a hot key on real nodes, while the number of its copies changes. No reader gets a version older than what an invalidation
// that had returned before the read began said.
func TestCopiesNeverGoBack(t *testing.T) {
	_, cfg := copyNodes(t, 4)
	cfg.OperationTimeout = 10 * time.Second // a failure would say nothing
	const keys = 4
	var rows, told [keys]atomic.Int64
	load := func(_ context.Context, key string) (string, error) {
		i, _ := strconv.Atoi(key)
		return strconv.FormatInt(rows[i].Load(), 10), nil
	}
	var processes [2]*client.Cache[string]
	for i := range processes {
		processes[i] = newCache(t, open(t, cfg), client.CacheConfig[string]{
			Name: "x", TTL: time.Hour, Load: load, L1: client.L1Off, NoEarlyRefresh: true, HotCopies: 4, HotCopyRate: 1e9, NoErrorBackoff: true, Tags: func(string) []string { return []string{"t"} },
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var reads, writes atomic.Int64
	bad := make(chan string, 100)
	judge := func(key string, floor int64, v string, how string) {
		reads.Add(1)
		if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < floor {
			select {
			case bad <- fmt.Sprintf("%s of %s: %q, after an invalidation of %d had returned", how, key, v, floor):
			default:
			}
		}
	}
	for p, c := range processes {
		for range 3 { // readers of one key
			wg.Go(func() {
				for ctx.Err() == nil {
					key := strconv.Itoa(rand.IntN(keys))
					i, _ := strconv.Atoi(key)
					floor := told[i].Load()
					v, err := c.Get(context.WithoutCancel(ctx), key)
					if err != nil {
						t.Error(err)
						return
					}
					judge(key, floor, v, "Get")
				}
			})
		}
		wg.Go(func() { // a reader of all
			for ctx.Err() == nil {
				var all []string
				var floors [keys]int64
				for i := range keys {
					all, floors[i] = append(all, strconv.Itoa(i)), told[i].Load()
				}
				m, err := c.GetMany(context.WithoutCancel(ctx), all)
				if err != nil {
					t.Error(err)
					return
				}
				for i, key := range all {
					judge(key, floors[i], m[key], "GetMany")
				}
			}
		})
		wg.Go(func() { // the fleet's rates change
			for ctx.Err() == nil {
				c.Split(strconv.Itoa(rand.IntN(keys)), rand.IntN(12)/2) // often more than there are nodes, which is all
				time.Sleep(time.Millisecond)
			}
		})
		wg.Go(func() { // a writer, of keys of its own
			for n := 0; ctx.Err() == nil; n++ {
				i := p*2 + n%2
				key := strconv.Itoa(i)
				v := rows[i].Load() + 1
				set := func() { rows[i].Store(v) }
				bg := context.WithoutCancel(ctx)
				var err error
				switch n % 5 {
				case 0:
					err = c.Write(bg, key, func(context.Context) error { set(); return nil })
				case 1:
					_, err = c.WriteThrough(bg, key, func(context.Context) (string, error) { set(); return strconv.FormatInt(v, 10), nil })
				case 2:
					set()
					err = c.InvalidateMany(bg, []string{key, strconv.Itoa((i + 1) % keys)})
				case 3:
					set()
					err = c.InvalidateTag(bg, "t")
				case 4:
					set()
					err = c.Invalidate(bg, key)
				}
				if err != nil {
					t.Errorf("write %d: %v", n, err)
					return
				}
				told[i].Store(v)
				writes.Add(1)
				time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	close(bad)
	for b := range bad {
		t.Error(b)
	}
	var hits, filled uint64
	for _, c := range processes {
		s := c.Stats()
		hits, filled = hits+s.CopyHits, filled+s.CopiesFilled
	}
	t.Logf("%d reads, %d of copies, %d copies made, %d writes", reads.Load(), hits, filled, writes.Load())
	if hits < 100 || filled < 50 || writes.Load() < 50 {
		t.Error("too little has happened to prove anything")
	}
}
