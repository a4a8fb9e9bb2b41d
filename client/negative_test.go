// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// negatives counts the entries of a cache x on a node.
func negatives(n *clienttest.Node) (count int) {
	for _, key := range n.Keys() {
		if strings.HasPrefix(key, "x:") {
			count++
		}
	}
	return count
}

// TestNegativeFlood: a bot that asks for absent keys, each once, leaves no more on the node than is stated, and ordinary keys that are absent and asked for again are remembered all the same. A
// batch is held to the same bound.
func TestNegativeFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, ttl, lasts = 10, 5 * time.Second, 15
		node := clienttest.Start(t, 1)
		s := newTable(1)
		c := newCache(t, open(t, node.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: s.load, L1: client.L1Off, NegativeRate: rate, NegativeTTL: ttl})
		absent := func(key string) {
			t.Helper()
			if _, err := c.Get(t.Context(), key); !errors.Is(err, client.ErrNotFound) {
				t.Fatal(err)
			}
		}
		most := 0
		for i := range lasts { // 100 a second, a fifth of them in batches
			for j := range 80 {
				absent(fmt.Sprintf("bot %d/%d", i, j))
				time.Sleep(10 * time.Millisecond)
			}
			keys := make([]string, 20)
			for j := range keys {
				keys[j] = fmt.Sprintf("bots %d/%d", i, j)
			}
			if m, err := c.GetMany(t.Context(), keys); len(m) > 0 || err != nil {
				t.Fatal(m, err)
			}
			time.Sleep(200 * time.Millisecond)
			most = max(most, negatives(node.ByID("node-0")))
		}
		if bound := rate*int(ttl/time.Second) + 10*rate; most > bound || most < bound*2/3 {
			t.Errorf("%d absences on the node at once, at most %d may be of keys that are asked for once", most, bound)
		}
		if st := c.Stats(); st.NegativesOver < lasts*90-10*rate-10 || int(st.NegativesOver+st.Fills) != lasts*100 {
			t.Errorf("%d were not stored, %d were; of %d", st.NegativesOver, st.Fills, lasts*100)
		}
		absent("wanted") // refused
		time.Sleep(2 * time.Second)
		absent("wanted")
		before := s.count("wanted")
		for range 10 {
			absent("wanted")
		}
		if n := s.count("wanted") - before; n > 0 {
			t.Errorf("%d loads of an absent key that was asked for again in a flood", n)
		}
	})
}

// TestNegativeIsRemovedByWrites: an absence that is remembered, on the node and by processes, goes with the insert, whoever inserts how.
func TestNegativeIsRemovedByWrites(t *testing.T) {
	onBackends(t, 2, func(t *testing.T, cfg client.Config) {
		s := newTable(0)
		config := client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: s.load, L1: client.L1Off}
		c, other := newCache(t, open(t, cfg), config), newCache(t, open(t, cfg), config)
		for name, write := range map[string]func(key string) error{
			"Write": func(key string) error {
				return c.Write(t.Context(), key, func(context.Context) error { s.set(key, "v"); return nil })
			},
			"WriteThrough": func(key string) error {
				_, err := c.WriteThrough(t.Context(), key, func(context.Context) (string, error) { s.set(key, "v"); return "v", nil })
				return err
			},
			"Invalidate": func(key string) error { s.set(key, "v"); return c.Invalidate(t.Context(), key) },
			"Clear":      func(key string) error { s.set(key, "v"); return c.Clear(t.Context()) },
			"Refresh": func(key string) error {
				s.set(key, "v")
				_, err := c.GetWith(t.Context(), key, nil, client.GetOptions{Refresh: true})
				return err
			},
		} {
			for range 3 {
				for _, c := range []*client.Cache[string]{c, other} {
					if _, err := c.Get(t.Context(), name); !errors.Is(err, client.ErrNotFound) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			if n := s.count(name); n != 1 {
				t.Errorf("%s: %d loads of an absent key, want 1", name, n)
			}
			if err := write(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, c := range []*client.Cache[string]{c, other} {
				if v, err := c.Get(t.Context(), name); v != "v" || err != nil {
					t.Errorf("%s: after the insert: %q, %v", name, v, err)
				}
			}
		}
	})
}

// TestNegativeSize: what an absence takes on a node is what the documentation says.
func TestNegativeSize(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s := newTable(0)
	c := newCache(t, open(t, client.Config{OperationTimeout: time.Second, Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}}),
		client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: s.load, L1: client.L1Off})
	if _, err := c.Get(t.Context(), "nobody"); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	_, name := c.Where("nobody")
	reply, err := server.Do(t.Context(), "MEMORY", "USAGE", name)
	if size, ok := reply.(int64); err != nil || !ok || size > 200 {
		t.Errorf("an absence takes %v bytes, %v; at most 200 are stated", reply, err)
	} else {
		t.Logf("an absence takes %d bytes", size)
	}
}

// TestNegativeRateIsForWhatIsStored: reads that store nothing take nothing of it, whether the caller says so or the owner is down.
func TestNegativeRateIsForWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: newTable(0).load, L1: client.L1Off, NegativeRate: 1})
		ask := func(key string, o client.GetOptions) client.Result[string] {
			t.Helper()
			r, err := c.LookupWith(t.Context(), key, nil, o)
			if !errors.Is(err, client.ErrNotFound) {
				t.Fatal(r, err)
			}
			return r
		}
		for i := range 100 {
			ask(fmt.Sprint("unfilled ", i), client.GetOptions{NoFill: true})
		}
		ask("k", client.GetOptions{})
		nodes.Node(0).Down()
		for i := range 100 {
			ask(fmt.Sprint("down ", i), client.GetOptions{})
			if _, err := c.GetMany(t.Context(), []string{fmt.Sprint("down too ", i)}); err != nil {
				t.Fatal(err)
			}
		}
		nodes.Node(0).Up()
		time.Sleep(5 * time.Second)
		if r := ask("k", client.GetOptions{}); r.Layer != client.LayerL2 {
			t.Errorf("what was stored before is read from %v", r.Layer)
		}
		for i := range 8 { // of ten that there is room for at once
			key := fmt.Sprint("kept ", i)
			ask(key, client.GetOptions{})
			if r := ask(key, client.GetOptions{}); r.Layer != client.LayerL2 {
				t.Errorf("absence %d was not stored, after reads that store nothing", i)
			}
		}
		if n := c.Stats().NegativesOver; n > 0 {
			t.Errorf("%d absences were refused", n)
		}
	})
}
