// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// replicated is a node with replicas, and a client of it that knows them.
type replicated struct {
	servers []*redistest.Server
	cl      *client.Client
	loads   atomic.Int64
}

func startReplicated(t *testing.T, replicas int, change func(*client.Config)) *replicated {
	t.Helper()
	r := &replicated{servers: redistest.StartReplicated(t, replicas)}
	node := ring.Node{ID: "a", Addr: r.servers[0].Addr()}
	for _, s := range r.servers[1:] {
		node.Replicas = append(node.Replicas, s.Addr())
	}
	cfg := client.Config{Nodes: []ring.Node{node}, OperationTimeout: 500 * time.Millisecond}
	change(&cfg)
	r.cl = open(t, cfg)
	return r
}

func readFrom(from client.ReadFrom) func(*client.Config) {
	return func(c *client.Config) { c.ReadFrom = from }
}

func (r *replicated) cache(t *testing.T, change func(*client.CacheConfig[string])) *client.Cache[string] {
	t.Helper()
	cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, L1: client.L1Off, NoEarlyRefresh: true, Load: func(ctx context.Context, key string) (string, error) {
		r.loads.Add(1)
		return echo(ctx, key)
	}}
	if change != nil {
		change(&cfg)
	}
	return newCache(t, r.cl, cfg)
}

// readable waits until so many replicas may be read.
func (r *replicated) readable(t *testing.T, n int) {
	t.Helper()
	eventuallyIn(t, 20*time.Second, fmt.Sprintf("%d replicas may be read", n), func() bool {
		got := 0
		for _, p := range nodeStats(r.cl, "a").Replicas {
			if p.Readable {
				got++
			}
		}
		return got == n
	})
}

// arrived waits until all replicas have what the primary has now.
func (r *replicated) arrived(t *testing.T) {
	t.Helper()
	info, err := r.servers[0].Info(t.Context(), "replication")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := strconv.Atoi(info["master_repl_offset"])
	for _, s := range r.servers[1:] {
		eventually(t, "replicated", func() bool {
			info, err := s.Info(t.Context(), "replication")
			got, _ := strconv.Atoi(info["slave_repl_offset"])
			return err == nil && got >= want
		})
	}
}

// gets counts what a server has been asked for.
func gets(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Info(t.Context(), "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, name := range []string{"cmdstat_get", "cmdstat_mget"} {
		_, rest, _ := strings.Cut(info[name], "calls=")
		n, _ := strconv.Atoi(strings.SplitN(rest, ",", 2)[0])
		sum += n
	}
	return sum
}

// TestReadReplica: reads are spread over the replicas, and say so; the primary gets the rest. What is stored is stored at the primary.
func TestReadReplica(t *testing.T) {
	r := startReplicated(t, 2, readFrom(client.ReadReplica))
	c := r.cache(t, nil)
	r.readable(t, 2)
	keys, _ := numbered(40)
	for _, k := range keys { // misses: the replicas do not have them, nor does the primary
		if got, err := c.Lookup(t.Context(), k); err != nil || got.Layer != client.LayerSource || got.Replica != "" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if n := r.loads.Load(); n != 40 {
		t.Errorf("%d loads", n)
	}
	r.arrived(t)
	primaryBefore := gets(t, r.servers[0])
	from := map[string]int{}
	for _, k := range keys {
		got, err := c.Lookup(t.Context(), k)
		if err != nil || got.Value != "value of "+k || got.Layer != client.LayerL2 || got.Node != "a" || got.Stale || got.Age <= 0 || got.Age > time.Minute {
			t.Errorf("%+v, %v", got, err)
		}
		from[got.Replica]++
	}
	if from[r.servers[1].Addr()] < 15 || from[r.servers[2].Addr()] < 15 || len(from) != 2 {
		t.Errorf("read from %v", from)
	}
	m, err := c.GetMany(t.Context(), keys)
	if err != nil || len(m) != 40 || m[keys[1]] != "value of "+keys[1] {
		t.Errorf("%d values, %v", len(m), err)
	}
	if after := gets(t, r.servers[0]); after > primaryBefore {
		t.Errorf("the primary was asked %d times", after-primaryBefore)
	}
	if m, err = c.GetMany(t.Context(), append(keys, "new")); err != nil || len(m) != 41 || r.loads.Load() != 41 {
		t.Errorf("%d values after %d loads, %v", len(m), r.loads.Load(), err)
	}
	if st := c.Stats(); st.ReplicaHits != 120 || st.L2Hits != 120 {
		t.Errorf("%d hits, %d of replicas", st.L2Hits, st.ReplicaHits)
	}
}

// TestReplicaThatIsBehind: what a process has invalidated it does not read from a replica that may not have heard of it, one key or all; and what another process has, only within the bound.
func TestReplicaThatIsBehind(t *testing.T) {
	var line *redistest.Proxy
	primary := redistest.Start(t, redistest.Config{})
	line = redistest.StartProxy(t, primary.Addr())
	replica := redistest.Start(t, redistest.Config{})
	mustDo(t, replica, "REPLICAOF", "127.0.0.1", portOf(line.Addr()))
	config := func(cfg *client.Config) {
		cfg.Nodes = []ring.Node{{ID: "a", Addr: primary.Addr(), Replicas: []string{replica.Addr()}}}
		cfg.ReadFrom, cfg.ReplicaMaxLag = client.ReadReplica, 4*time.Second
		cfg.OperationTimeout = 500 * time.Millisecond
	}
	var mine, others client.Config
	config(&mine)
	config(&others)
	src := newSource(map[string]string{"k": "1", "other": "1"})
	r := &replicated{cl: open(t, mine), servers: []*redistest.Server{primary, replica}}
	c := product(t, r.cl, src)
	two := open(t, others)
	theirs := product(t, two, src)
	r.readable(t, 1)
	_, _ = c.Get(t.Context(), "k")
	_, _ = c.Get(t.Context(), "other")
	r.arrived(t)
	eventually(t, "read from the replica", func() bool {
		a, err := c.Lookup(t.Context(), "k")
		b, err2 := theirs.Lookup(t.Context(), "k")
		return err == nil && err2 == nil && a.Replica != "" && b.Replica != ""
	})
	line.BlackHole()
	src.set("k", "2")
	if err := c.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	returned := time.Now()
	stale := 0
	for time.Since(returned) < 6*time.Second {
		got, err := c.Lookup(t.Context(), "k")
		if err != nil || got.Value != "2" || got.Replica != "" {
			t.Fatalf("own write: %+v, %v", got, err)
		}
		began := time.Now()
		switch got, err = theirs.Lookup(t.Context(), "k"); {
		case err != nil:
			t.Fatal(err)
		case got.Value == "1" && got.Replica == "":
			t.Fatalf("the old value from elsewhere: %+v", got)
		case got.Value == "1" && began.Sub(returned) > 4*time.Second:
			t.Fatalf("the old value %v after the invalidation", began.Sub(returned))
		case got.Value == "1":
			stale++
		}
		time.Sleep(5 * time.Millisecond)
	}
	if stale == 0 {
		t.Error("the other process never read the old value: nothing was tested")
	}
	if got, err := c.Lookup(t.Context(), "other"); err != nil || got.Replica != "" {
		t.Errorf("read from a replica that is behind: %+v, %v", got, err)
	}
}

func portOf(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

// TestClearAndTagsAtReplicas: a Clear and the invalidation of a tag are like that of a key.
func TestClearAndTagsAtReplicas(t *testing.T) {
	r := startReplicated(t, 1, readFrom(client.ReadReplica))
	r.readable(t, 1)
	tagged := r.cache(t, func(cfg *client.CacheConfig[string]) {
		cfg.Name, cfg.Tags = "tagged", func(string) []string { return []string{"t"} }
	})
	c := r.cache(t, nil)
	get := func(c *client.Cache[string], replica bool) {
		t.Helper()
		got, err := c.Lookup(t.Context(), "k")
		if err != nil || (got.Replica != "") != replica {
			t.Errorf("%+v, %v: want from a replica: %t", got, err, replica)
		}
	}
	for _, one := range []*client.Cache[string]{c, tagged} {
		get(one, false)
		r.arrived(t)
		get(one, true)
	}
	if err := tagged.InvalidateTag(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if err := c.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.arrived(t)
	for _, one := range []*client.Cache[string]{c, tagged} {
		before := r.loads.Load()
		get(one, false)
		if r.loads.Load() != before+1 {
			t.Error("not loaded again")
		}
		get(one, false) // it is still in the log of what a failover could undo
	}
}

// TestReplicaReadsStayOutOfL1: what is to be kept in this process is read through the primary, who tells when it changes.
func TestReplicaReadsStayOutOfL1(t *testing.T) {
	r := startReplicated(t, 1, readFrom(client.ReadReplica))
	r.readable(t, 1)
	for _, mode := range []client.L1Mode{client.L1Hot, client.L1All} {
		c := r.cache(t, func(cfg *client.CacheConfig[string]) {
			cfg.Name, cfg.L1 = fmt.Sprint("l", int(mode)), mode
			if mode == client.L1Hot {
				cfg.HotRate = 50
			}
		})
		_, _ = c.Get(t.Context(), "k")
		r.arrived(t)
		eventually(t, "in L1", func() bool {
			got, err := c.Lookup(t.Context(), "k")
			return err == nil && got.Layer == client.LayerL1 && got.Replica == ""
		})
		if got, err := c.Lookup(t.Context(), "cold"); err != nil || got.Layer == client.LayerL1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	c := r.cache(t, func(cfg *client.CacheConfig[string]) { cfg.Name, cfg.L1, cfg.HotRate = "cold", client.L1Hot, 1e6 })
	_, _ = c.Get(t.Context(), "k")
	r.arrived(t)
	for range 10 {
		if got, err := c.Lookup(t.Context(), "k"); err != nil || got.Replica == "" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if n := c.Stats().L1Entries; n != 0 {
		t.Errorf("%d copies in L1 of what a replica has said", n)
	}
}

// TestPrimaryPreferred: replicas are read while the primary is dead, for ReplicaMaxLag, then nobody; a primary that is well is read alone.
func TestPrimaryPreferred(t *testing.T) {
	r := startReplicated(t, 1, func(cfg *client.Config) { cfg.ReadFrom, cfg.ReplicaMaxLag = client.ReadPrimaryPreferred, 4*time.Second })
	r.readable(t, 1)
	c := r.cache(t, nil)
	large := r.cache(t, func(cfg *client.CacheConfig[string]) {
		cfg.Name, cfg.LargeValueBytes = "large", 10
		cfg.Load = func(context.Context, string) (string, error) { r.loads.Add(1); return strings.Repeat("x", 1000), nil }
	})
	keys, _ := numbered(20)
	for _, k := range keys {
		_, _ = c.Get(t.Context(), k)
		_, _ = large.Get(t.Context(), k)
	}
	r.arrived(t)
	for _, k := range keys {
		if got, err := c.Lookup(t.Context(), k); err != nil || got.Replica != "" || got.Layer != client.LayerL2 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	before := r.loads.Load()
	r.servers[0].Kill()
	killed := time.Now()
	for _, k := range keys {
		if got, err := c.Lookup(t.Context(), k); err != nil || got.Value != "value of "+k || got.Replica != r.servers[1].Addr() {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if m, err := c.GetMany(t.Context(), keys); err != nil || len(m) != 20 {
		t.Errorf("%d values, %v", len(m), err)
	}
	if m, err := large.GetMany(t.Context(), keys); err != nil || len(m) != 20 || len(m[keys[0]]) != 1000 {
		t.Errorf("%d large values, %v", len(m), err)
	}
	if got, err := large.Lookup(t.Context(), keys[0]); err != nil || len(got.Value) != 1000 || got.Replica == "" {
		t.Errorf("%d bytes from %q, %v", len(got.Value), got.Replica, err)
	}
	if after := r.loads.Load(); after != before {
		t.Errorf("%d loads", after-before)
	}
	if err := c.Invalidate(t.Context(), keys[3]); err == nil {
		t.Error("an invalidation without a primary succeeded")
	}
	if got, err := c.Lookup(t.Context(), keys[3]); err != nil || got.Layer != client.LayerSource {
		t.Errorf("what is owed was read from a replica: %+v, %v", got, err)
	}
	r.readable(t, 0)
	if took := time.Since(killed); took > 5*time.Second {
		t.Errorf("a replica could be read for %v", took)
	}
	if got, err := c.Lookup(t.Context(), keys[0]); err != nil || got.Layer != client.LayerSource {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestNoReplicaOfOurs: a server that is a primary, one that is another primary's replica, and one that is dead are not read; reads go on without them.
func TestNoReplicaOfOurs(t *testing.T) {
	primary, foreign := redistest.StartReplicated(t, 1), redistest.StartReplicated(t, 1)
	dead := redistest.Start(t, redistest.Config{})
	dead.Kill()
	r := &replicated{servers: primary}
	r.cl = open(t, client.Config{ReadFrom: client.ReadReplica, OperationTimeout: 500 * time.Millisecond, Nodes: []ring.Node{{
		ID: "a", Addr: primary[0].Addr(), Replicas: []string{foreign[0].Addr(), foreign[1].Addr(), dead.Addr(), primary[1].Addr()},
	}}})
	r.readable(t, 1)
	c := r.cache(t, nil)
	keys, _ := numbered(20)
	if _, err := c.GetMany(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	r.arrived(t)
	for _, s := range foreign { // wrong values under the same names
		if s == foreign[0] {
			for _, k := range keys {
				v, err := primary[0].Do(t.Context(), "GET", "x:"+keys[0]+":v0")
				if err != nil {
					t.Fatal(err)
				}
				mustDo(t, s, "SET", "x:"+k+":v0", v)
			}
		}
	}
	for range 5 {
		for _, k := range keys {
			if got, err := c.Lookup(t.Context(), k); err != nil || got.Value != "value of "+k || got.Replica != primary[1].Addr() {
				t.Errorf("%+v, %v", got, err)
			}
		}
	}
	mustDo(t, primary[1], "REPLICAOF", "NO", "ONE")
	r.readable(t, 0)
	for _, k := range keys {
		if got, err := c.Lookup(t.Context(), k); err != nil || got.Replica != "" || got.Layer != client.LayerL2 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// TestTruthIsNotReadFromReplicas: nothing says of a value there that a Set has not replaced it.
func TestTruthIsNotReadFromReplicas(t *testing.T) {
	r := startReplicated(t, 1, readFrom(client.ReadReplica))
	r.readable(t, 1)
	c := newCache(t, r.cl, client.CacheConfig[string]{Name: "truth", TTL: time.Hour, Truth: true, L1: client.L1Off})
	if err := c.Set(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	r.arrived(t)
	if got, err := c.Lookup(t.Context(), "k"); err != nil || got.Replica != "" || got.Value != "v" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSoftEntryOfAReplica: it is served, and refreshed by the primary's lease.
func TestSoftEntryOfAReplica(t *testing.T) {
	r := startReplicated(t, 1, readFrom(client.ReadReplica))
	r.readable(t, 1)
	c := r.cache(t, func(cfg *client.CacheConfig[string]) { cfg.SoftTTL, cfg.NoJitter = 50*time.Millisecond, true })
	_, _ = c.Get(t.Context(), "k")
	r.arrived(t)
	eventually(t, "soft, from the replica", func() bool {
		got, err := c.Lookup(t.Context(), "k")
		return err == nil && got.Replica != "" && got.Stale
	})
	eventually(t, "refreshed", func() bool { return c.Stats().Refreshes > 0 && r.loads.Load() > 1 })
}
