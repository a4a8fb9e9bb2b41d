// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// GetMany of very many keys, on real nodes.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

const (
	manyKeys = 200_000
	// leaveSoon is how long after its context's end a GetMany of that size may return.
	leaveSoon = 300 * time.Millisecond
	// manyKeysACommand is how many keys one MGET asks for, at most.
	manyKeysACommand = 512
)

// manyRows is a source that has "v" and the key for every key but those that end in 000.
type manyRows struct {
	keys, calls, most atomic.Int64
	begun             func() // called in every load
	gate              chan struct{}
}

func (m *manyRows) load(ctx context.Context, keys []string) (map[string]string, error) {
	m.calls.Add(1)
	m.keys.Add(int64(len(keys)))
	m.most.Store(max(m.most.Load(), int64(len(keys))))
	if m.begun != nil {
		m.begun()
	}
	if m.gate != nil {
		select {
		case <-m.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	found := make(map[string]string, len(keys))
	for _, k := range keys {
		if !strings.HasSuffix(k, "000") {
			found[k] = "v" + k
		}
	}
	return found, nil
}

// manyCached makes a cache on three real nodes that have all of the keys but each whose number ends in 00: those are on no node.
func manyCached(t *testing.T, src *manyRows) (c *client.Cache[string], cl *client.Client, keys []string, servers []*redistest.Server) {
	t.Helper()
	servers = redistest.StartNodes(t, 3)
	cfg := client.Config{OperationTimeout: 2 * time.Second}
	byID := make(map[string]*redistest.Server)
	for i, s := range servers {
		id := fmt.Sprint("node-", i)
		byID[id] = s
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: id, Addr: s.Addr()})
	}
	cl = open(t, cfg)
	c = newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, NegativeTTL: time.Hour, NoJitter: true, NoEarlyRefresh: true, L1: client.L1Off, LoadMany: src.load})
	model := make(map[string]string) // an entry of each node; all others differ in the value alone, which is as long
	for i := manyKeys + 1; len(model) < len(servers); i++ {
		key := fmt.Sprintf("key-%06d", i)
		node, name := c.Where(key)
		want(t, c, key, "v"+key, client.LayerSource)
		model[node] = strings.TrimSuffix(byID[node].Client().Get(t.Context(), name).Val(), "v"+key)
	}
	stores := make(map[string][]any)
	for i := range manyKeys {
		key := fmt.Sprintf("key-%06d", i)
		keys = append(keys, key)
		node, name := c.Where(key)
		if i%100 != 0 {
			stores[node] = append(stores[node], name, model[node]+"v"+key)
		}
	}
	for node, pairs := range stores {
		for part := range slices.Chunk(pairs, 2000) {
			if err := byID[node].Client().MSet(t.Context(), part...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c, cl, keys, servers
}

// commandStats is what a server has carried out of one command: calls, and microseconds a call.
func commandStats(t *testing.T, s *redistest.Server, command string) (calls int, usec float64) {
	t.Helper()
	info, err := s.Info(t.Context(), "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.SplitSeq(info["cmdstat_"+command], ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "calls":
			calls, err = strconv.Atoi(value)
		case "usec_per_call":
			usec, err = strconv.ParseFloat(value, 64)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return calls, usec
}

// readsFor reads single keys until stop is closed, and returns how long each took, sorted.
func readsFor(t *testing.T, c *client.Cache[string], keys []string, stop <-chan struct{}) (took []time.Duration) {
	for i := 1; ; i++ {
		select {
		case <-stop:
			slices.Sort(took)
			return took
		default:
		}
		key := keys[i*7919%len(keys)/100*100+1] // one that the nodes have
		start := time.Now()
		if r, err := c.Lookup(t.Context(), key); err != nil || r.Value != "v"+key || r.Layer != client.LayerL2 {
			t.Errorf("a single read: %q from %v, %v", r.Value, r.Layer, err)
			<-stop
		}
		took = append(took, time.Since(start))
	}
}

// TestGetManyOfVeryMany: 200,000 keys, of which 1 % are on no node and 0.1 % nowhere. The answers are right, the commands bounded in number and
// size, and who reads single keys of the same nodes meanwhile goes on reading.
func TestGetManyOfVeryMany(t *testing.T) {
	src := &manyRows{}
	c, _, keys, servers := manyCached(t, src)
	perNode := make(map[string]int)
	for _, k := range keys {
		perNode[ownerOf(c, k)]++
	}
	for _, s := range servers {
		if _, err := s.Do(t.Context(), "CONFIG", "RESETSTAT"); err != nil {
			t.Fatal(err)
		}
	}
	src.keys.Store(0)
	right := func(m map[string]string, err error) {
		t.Helper()
		if err != nil || len(m) != manyKeys-manyKeys/1000 {
			t.Errorf("%d values, %v; want %d", len(m), err, manyKeys-manyKeys/1000)
		}
		for k, v := range m {
			if v != "v"+k {
				t.Fatalf("%s is %q", k, v)
			}
		}
		if s := c.Stats(); s.NodeErrors != 0 || s.FillErrors != 0 {
			t.Errorf("%d commands failed", s.NodeErrors+s.FillErrors)
		}
	}
	right(c.GetMany(t.Context(), keys))
	if n := src.keys.Load(); n != manyKeys/100 || src.most.Load() > 1000 {
		t.Errorf("%d rows were loaded, at most %d in one call; want the %d that no node has, at most 1000 a call", n, src.most.Load(), manyKeys/100)
	}
	scripts := 0
	for i, s := range servers {
		calls, usec := commandStats(t, s, "mget")
		if most := perNode[fmt.Sprint("node-", i)]/manyKeysACommand + 8; calls > most {
			t.Errorf("node %d: %d MGETs for %d keys, want at most %d", i, calls, perNode[fmt.Sprint("node-", i)], most)
		}
		if usec > 5000 {
			t.Errorf("node %d: an MGET keeps it busy for %v us, in the mean", i, usec)
		}
		calls, _ = commandStats(t, s, "evalsha")
		scripts += calls
	}
	if scripts != 2*manyKeys/100 {
		t.Errorf("%d scripts for %d misses, want two each", scripts, manyKeys/100)
	}

	alone, beside := make(chan struct{}), make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() { close(alone) })
	took := map[string][]time.Duration{"alone": readsFor(t, c, keys, alone)}
	var readers sync.WaitGroup
	readers.Go(func() { took["beside"] = readsFor(t, c, keys, beside) })
	start := time.Now()
	right(c.GetMany(t.Context(), keys))
	t.Logf("%d keys in %v", manyKeys, time.Since(start))
	close(beside)
	readers.Wait()
	for what, d := range took {
		if len(d) < 20 {
			t.Errorf("%d single reads %s", len(d), what)
			continue
		}
		t.Logf("single reads %s: %d, p50 %v, p99 %v, worst %v", what, len(d), d[len(d)/2], d[len(d)*99/100], d[len(d)-1])
	}
}

// TestGetManyOfVeryManyLeaves: whenever its context ends, the call ends soon after it, with what has come and one error for the rest.
func TestGetManyOfVeryManyLeaves(t *testing.T) {
	src := &manyRows{}
	c, cl, keys, _ := manyCached(t, src)
	check := func(what string, m map[string]string, err error, ended time.Time) time.Duration {
		t.Helper()
		late := time.Since(ended)
		if err == nil {
			if len(m) != manyKeys-manyKeys/1000 {
				t.Errorf("%s: no error, and %d values", what, len(m))
			}
			return late
		}
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) || len(err.Error()) > 2000 {
			t.Errorf("%s: %.500s", what, err)
		}
		for k, v := range m {
			if v != "v"+k {
				t.Fatalf("%s: %s is %q", what, k, v)
			}
		}
		return late
	}
	// soonest is the best of five tries: what a busy machine adds, it does not add each time.
	soonest := func(what string, try func() time.Duration) {
		best := time.Hour
		for range 5 {
			if best = min(best, try()); best <= leaveSoon*slowdown {
				t.Logf("%s: left after %v", what, best)
				return
			}
		}
		t.Errorf("%s: left %v after its context ended, want within %v", what, best, leaveSoon*slowdown)
	}
	for _, after := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
		what := fmt.Sprint("reading, deadline after ", after)
		soonest(what, func() time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			end, _ := ctx.Deadline()
			m, err := c.GetMany(ctx, keys)
			return check(what, m, err, end)
		})
	}
	soonest("reading, cancelled", func() time.Duration {
		ctx, cancel := context.WithCancel(t.Context())
		var end time.Time
		defer time.AfterFunc(200*time.Millisecond, func() { end = time.Now(); cancel() }).Stop()
		m, err := c.GetMany(ctx, keys)
		if ctx.Err() == nil { // it was quicker
			cancel()
			return 0
		}
		return check("reading, cancelled", m, err, end)
	})
	slow := &manyRows{gate: make(chan struct{})}
	schema := 0
	soonest("loading", func() time.Duration {
		schema++ // keys that no node has
		cold := newCache(t, cl, client.CacheConfig[string]{Name: "x", Schema: schema, TTL: time.Hour, L1: client.L1Off, LoadMany: slow.load})
		ctx, cancel := context.WithCancel(t.Context())
		var end time.Time
		slow.begun = func() { end = time.Now(); cancel() }
		m, err := cold.GetMany(ctx, keys)
		late := check("loading", m, err, end)
		if len(m) != 0 || err == nil || !strings.Contains(err.Error(), "200000 keys") {
			t.Errorf("loading: %d values, %.500v", len(m), err)
		}
		return late
	})
	close(slow.gate)
	if n := slow.calls.Load(); n > int64(schema) {
		t.Errorf("%d LoadMany calls were begun for %d callers that left in the first", n, schema)
	}
}
