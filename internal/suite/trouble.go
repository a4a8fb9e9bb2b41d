// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-shelf/shelf/client"
)

var trouble = []behaviour{
	{name: "a node without memory: invalidations still delete", needs: []Ability{Settings}, alone: true, test: outOfMemory},
	{name: "a node that evicts: every answer is right", needs: []Ability{Settings}, alone: true, test: evicting},
	{name: "a node that takes no writes: reads go on, an invalidation is an error that says so", needs: []Ability{Settings}, alone: true, test: noWrites},
	{name: "a replica for a node: reads go on, an invalidation is an error that says so", needs: []Ability{Replicas}, alone: true, test: readOnly},
	{name: "a restart between lease and fill: the fill is refused", needs: []Ability{Restarts}, alone: true, test: restartInFlight},
	{name: "a node that came back empty is used again at once", needs: []Ability{Restarts}, alone: true, test: restart},
	{name: "a node that does not answer is a miss, and is used again", needs: []Ability{Connections}, alone: true, test: paused},
	{name: "connections that the node closed are no error", needs: []Ability{Connections}, alone: true, test: killedConnections},
}

func outOfMemory(s *scene) {
	src := newSource(row{1, "a"})
	c := open(s, versioned(src.load))
	for _, k := range []string{"a", "b"} {
		want(s, c, k, row{1, "a"}, client.LayerSource)
	}
	s.do(0, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	s.do(0, "CONFIG", "SET", "maxmemory", "1")
	want(s, c, "b", row{1, "a"}, client.LayerL2)
	src.set("a", row{2, "new"})
	s.must(c.InvalidateVersion(s.Context(), "a", 2))
	p := where(s, c, "a")
	if p.has(p.data) || p.has(p.mark) == (c.Stats().MarksFailed == 1) {
		s.Errorf("entry %v, mark %v, MarksFailed %d; want no entry, and the mark or that it is counted", p.has(p.data), p.has(p.mark), c.Stats().MarksFailed)
	}
	want(s, c, "a", row{2, "new"}, client.LayerSource) // not stored, and no error
	want(s, c, "a", row{2, "new"}, client.LayerSource)
	if p.has(p.data) || c.Stats().NodeErrors == 0 {
		s.Errorf("entry %v, NodeErrors %d; want none, and some", p.has(p.data), c.Stats().NodeErrors)
	}
	s.do(0, "CONFIG", "SET", "maxmemory", "0")
	want(s, c, "a", row{2, "new"}, client.LayerSource)
	want(s, c, "a", row{2, "new"}, client.LayerL2)
}

// evicting: leases and marks are evicted like anything else.
func evicting(s *scene) {
	const keys = 400
	used, err := s.raw(0).Info(s.Context(), "memory").Result()
	s.must(err)
	_, rest, _ := strings.Cut(used, "used_memory:")
	n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	s.must(err)
	s.do(0, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	pad := strings.Repeat("x", 8<<10)
	src := newSource(row{})
	c := open(s, versioned(src.load))
	s.do(0, "CONFIG", "SET", "maxmemory", n+(2<<20)) // for some 200 of them, with what the connections take
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < keys; i += 4 {
				k := strconv.Itoa(i)
				src.set(k, row{1, k + pad})
				if v, err := c.Get(s.Context(), k); err != nil || v.Text != k+pad {
					s.Errorf("%s: %.10q, %v", k, v.Text, err)
				}
				src.set(k, row{2, "new" + k + pad})
				if err := c.InvalidateVersion(s.Context(), k, 2); err != nil {
					s.Error(err)
				}
				if v, err := c.Get(s.Context(), k); err != nil || v.Text != "new"+k+pad {
					s.Errorf("%s after its update: %.10q, %v", k, v.Text, err)
				}
			}
		})
	}
	wg.Wait()
	for i := range keys {
		k := strconv.Itoa(i)
		if v, err := c.Get(s.Context(), k); err != nil || v.Text != "new"+k+pad {
			s.Errorf("%s at the end: %.10q, %v", k, v.Text, err)
		}
	}
	stats, err := s.raw(0).Info(s.Context(), "stats").Result()
	s.must(err)
	if strings.Contains(stats, "evicted_keys:0\r") {
		s.Error("nothing was evicted: this has shown nothing")
	}
}

// unreached: an invalidation that the node did not take is an error that names node and key, and nothing worse.
func unreached(s *scene, err error, code string) {
	s.Helper()
	var node *client.NodeError
	if !errors.As(err, &node) || node.Node != "node-0" || !client.NodesOnly(err) || !strings.Contains(err.Error(), code) {
		s.Errorf("Invalidate: %v; want a NodeError of node-0 with %s", err, code)
		return
	}
	if keys := client.UnreachedKeys(err); len(keys) != 1 || keys[0] != "k" {
		s.Errorf("UnreachedKeys: %q", keys)
	}
}

func noWrites(s *scene) {
	src := newSource(row{Text: "a"})
	cl := s.client(s.config())
	c := on(s, cl, plain(src.load))
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	s.do(0, "CONFIG", "SET", "min-replicas-to-write", "1")
	unreached(s, c.Invalidate(s.Context(), "k"), "NOREPLICAS")
	for _, k := range []string{"k", "new"} {
		if v, err := c.Get(s.Context(), k); err != nil || v.Text != "a" {
			s.Errorf("%s: %v, %v", k, v, err)
		}
	}
	s.do(0, "CONFIG", "SET", "min-replicas-to-write", "0")
	s.paid(cl)
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	want(s, c, "k", row{Text: "a"}, client.LayerL2)
}

func readOnly(s *scene) {
	primary := s.servers[0]
	replica := primary.Replica(s)
	src := newSource(row{Text: "a"})
	want(s, open(s, plain(src.load)), "k", row{Text: "a"}, client.LayerSource) // on the primary
	s.until("the replica has it", func() bool {
		n, err := s.raw(0).Wait(s.Context(), 1, time.Second).Result()
		s.must(err)
		return n == 1
	})
	s.servers = []Server{replica}
	s.fresh(0)
	s.until("the replica answers", func() bool { return s.raw(0).Ping(s.Context()).Err() == nil })
	cl := s.client(s.config())
	c := on(s, cl, plain(src.load))
	unreached(s, c.Invalidate(s.Context(), "k"), "READONLY")
	for _, k := range []string{"k", "new", "new"} {
		if v, err := c.Get(s.Context(), k); err != nil || v.Text != "a" {
			s.Errorf("%s: %v, %v", k, v, err)
		}
	}
	if where(s, c, "new").has("x:new:v0") {
		s.Error("a replica was written")
	}
	s.do(0, "REPLICAOF", "NO", "ONE")
	s.paid(cl)
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	want(s, c, "k", row{Text: "a"}, client.LayerL2)
}

// restartInFlight: the process that comes back even has the lease, as one that read a snapshot may: it did not grant it.
func restartInFlight(s *scene) {
	src := newSource(row{Text: "old"})
	c := open(s, plain(src.load))
	release := src.hold()
	answer := ask(s, c, "k")
	s.until("the load runs", func() bool { return src.holding() == 1 })
	p := where(s, c, "k")
	token, err := p.node.Get(s.Context(), p.lease).Result()
	s.must(err)
	s.servers[0].Restart(s)
	p.node = s.fresh(0)
	s.must(p.node.Set(s.Context(), p.lease, token, time.Minute).Err())
	release()
	if r, err := answer(); err != nil || r.Value.Text != "old" {
		s.Errorf("the reader got %+v, %v; want what it had loaded", r, err)
	}
	if p.has(p.data) {
		s.Error("the fill went to a process that had not granted its lease")
	}
	s.must(p.node.Del(s.Context(), p.lease).Err())
	want(s, c, "k", row{Text: "old"}, client.LayerSource)
	storesAgain(s, c, "k", row{Text: "old"})
}

func restart(s *scene) {
	src := newSource(row{Text: "a"})
	cl := s.client(s.config())
	c := on(s, cl, batching(src))
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	s.servers[0].Restart(s)
	s.fresh(0)
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	storesAgain(s, c, "k", row{Text: "a"})
	s.servers[0].Restart(s)
	s.fresh(0)
	// A container takes long enough to be found down, and is up again after three heartbeats: then the invalidation is owed until that moment.
	if err := c.Invalidate(s.Context(), "k"); err != nil && !client.NodesOnly(err) {
		s.Error(err)
	}
	s.paid(cl)
	if m, err := c.GetMany(s.Context(), numbered(10)); err != nil || len(m) != 10 {
		s.Errorf("GetMany: %v, %v", m, err)
	}
	storesAgain(s, c, "key-1", row{Text: "a"})
}

// storesAgain: what was stored in the first moments of a new process may be taken for older than its start, which is known as well as the node's clock
// is: to half a round trip.
func storesAgain(s *scene, c *client.Cache[row], key string, v row) {
	s.Helper()
	s.until("the node serves "+key+" again", func() bool {
		r, err := c.Lookup(s.Context(), key)
		if err != nil || r.Value != v {
			s.Errorf("%s is %v, %v; want %v", key, r.Value, err, v)
		}
		return r.Layer == client.LayerL2
	})
}

// paused: the node takes requests and does not answer for a while.
func paused(s *scene) {
	const pause, timeout = 3 * time.Second, 100 * time.Millisecond
	src := newSource(row{Text: "a"})
	cfg := s.config()
	cfg.OperationTimeout = timeout
	c := on(s, s.client(cfg), plain(src.load))
	s.until("the node has it", func() bool { // a busy machine may be slower than this timeout
		r, err := c.Lookup(s.Context(), "k")
		s.must(err)
		return r.Layer == client.LayerL2
	})
	src.set("k", row{Text: "b"})
	s.do(0, "CLIENT", "PAUSE", pause.Milliseconds(), "ALL")
	begin := time.Now()
	r, err := c.Lookup(s.Context(), "k")
	if took := time.Since(begin); took < pause && (err != nil || r.Value.Text != "b" || r.Layer != client.LayerSource) {
		s.Errorf("while the node is silent: %+v, %v; want the loaded row", r, err)
	}
	if err := c.Invalidate(s.Context(), "k"); time.Since(begin) < pause {
		unreached(s, err, "timeout")
	}
	s.until("the node is used again", func() bool {
		r, err := c.Lookup(s.Context(), "other")
		s.must(err)
		return r.Layer == client.LayerL2
	})
}

func killedConnections(s *scene) {
	src := newSource(row{Text: "a"})
	c := open(s, plain(src.load))
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	for range 3 {
		s.must(s.raw(0).Do(s.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
		want(s, c, "k", row{Text: "a"}, client.LayerL2)
	}
	noErrors(s, c)
}
