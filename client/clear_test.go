// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// tagged is a cache of strings whose tags are their comma-separated parts but for the first.
func tagged(t *testing.T, cl *client.Client, src *source, l1 client.L1Mode) *client.Cache[string] {
	t.Helper()
	return newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: l1,
		Tags: func(v string) []string { return strings.Split(v, ",")[1:] }})
}

// TestClear: what one process clears, no process reads from any node any more, by Get or GetMany, found or absent; and what is loaded
// afterwards is kept.
func TestClear(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		rows := map[string]string{}
		for i := range 30 {
			rows[fmt.Sprint("k", i)] = "1"
		}
		src := newSource(rows)
		a, b := tagged(t, open(t, cfg), src, client.L1Off), tagged(t, open(t, cfg), src, client.L1Off)
		keys := slices.Sorted(maps.Keys(rows))
		for _, k := range keys {
			want(t, a, k, "1", client.LayerSource)
			want(t, b, k, "1", client.LayerL2)
		}
		if _, err := b.Get(t.Context(), "absent"); !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
		for k := range rows {
			src.set(k, "2")
		}
		src.set("absent", "here now")
		if err := a.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := b.GetMany(t.Context(), keys[:15])
		for _, k := range keys[:15] {
			if got[k] != "2" || err != nil {
				t.Errorf("GetMany of %s after the Clear: %q, %v", k, got[k], err)
			}
		}
		for _, k := range keys[15:] {
			want(t, b, k, "2", client.LayerSource)
		}
		want(t, b, "absent", "here now", client.LayerSource)
		for _, k := range keys {
			want(t, a, k, "2", client.LayerL2)
		}
		if s := b.Stats(); s.Cleared == 0 || s.Foreign != 0 {
			t.Errorf("Cleared %d, Foreign %d", s.Cleared, s.Foreign)
		}
	})
}

// TestClearVoidsLoadsUnderWay: a load that began before the Clear is returned to who began it, is not stored, and is not given to those who come after,
// in the process that cleared and in another one.
func TestClearVoidsLoadsUnderWay(t *testing.T) {
	for _, op := range []string{"clear", "tag"} {
		t.Run(op, func(t *testing.T) {
			onBackends(t, 2, func(t *testing.T, cfg client.Config) {
				src := newSource(map[string]string{"k": "1,red"})
				entered, gate := make(chan struct{}, 10), make(chan struct{})
				slow := func(ctx context.Context, k string) (string, error) {
					v, err := src.load(ctx, k)
					entered <- struct{}{}
					<-gate
					return v, err
				}
				a, b := tagged(t, open(t, cfg), src, client.L1Off), tagged(t, open(t, cfg), src, client.L1Off)
				first := make(chan string, 1)
				go func() {
					v, _ := a.GetWith(context.Background(), "k", slow, client.GetOptions{})
					first <- v
				}()
				<-entered
				src.set("k", "2,red")
				clear := map[string]func() error{
					"clear": func() error { return b.Clear(t.Context()) },
					"tag":   func() error { return b.InvalidateTag(t.Context(), "red") },
				}[op]
				if err := clear(); err != nil {
					t.Fatal(err)
				}
				second := make(chan string, 2)
				for _, c := range []*client.Cache[string]{a, b} {
					go func() { v, _ := c.Get(context.Background(), "k"); second <- v }()
				}
				eventually(t, "joined, or waiting for the lease", func() bool { return a.Stats().Waiting == 2 && b.Stats().Waiting == 1 })
				close(gate)
				if v := <-first; v != "1,red" {
					t.Errorf("the caller of the slow load got %q", v)
				}
				for range 2 {
					if v := <-second; v != "2,red" {
						t.Errorf("a reader after the Clear got %q", v)
					}
				}
				want(t, a, "k", "2,red", client.LayerL2)
				if s := a.Stats(); s.FillsRefused != 1 {
					t.Errorf("FillsRefused %d, want 1", s.FillsRefused)
				}
			})
		})
	}
}

// TestInvalidateTag: the entries with the tag go, on all nodes and for all processes; the others stay.
func TestInvalidateTag(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		src := newSource(map[string]string{})
		for i := range 20 {
			src.set(fmt.Sprint("red", i), "v,red,even")
			src.set(fmt.Sprint("blue", i), "v,blue")
			src.set(fmt.Sprint("plain", i), "v")
		}
		a, b := tagged(t, open(t, cfg), src, client.L1Off), tagged(t, open(t, cfg), src, client.L1Off)
		all := slices.Sorted(maps.Keys(src.rows))
		if m, err := a.GetMany(t.Context(), all); len(m) != 60 || err != nil {
			t.Fatal(len(m), err)
		}
		for _, tag := range []string{"red", "green"} {
			if err := a.InvalidateTag(t.Context(), tag); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []*client.Cache[string]{b, a} {
			for _, k := range all {
				layer := client.LayerL2
				if c == b && strings.HasPrefix(k, "red") {
					layer = client.LayerSource
				}
				want(t, c, k, src.rows[k], layer)
			}
		}
		if err := b.InvalidateTag(t.Context(), "blue"); err != nil {
			t.Fatal(err)
		}
		before := a.Stats().Loads
		if m, err := a.GetMany(t.Context(), all); len(m) != 60 || err != nil {
			t.Fatal(len(m), err)
		}
		if n := a.Stats().Loads - before; n != 20 {
			t.Errorf("%d loads after the tag of 20 keys was invalidated", n)
		}
	})
}

// TestTagLogLost: a tag log or a generation that a node evicts costs entries, never freshness.
func TestTagLogLost(t *testing.T) {
	for _, lost := range []string{"~t:x:v0", "~g:x:v0"} {
		t.Run(lost, func(t *testing.T) {
			onBackends(t, 1, func(t *testing.T, cfg client.Config) {
				src := newSource(map[string]string{"red": "1,red", "blue": "1,blue"})
				cl := open(t, cfg)
				a := tagged(t, cl, src, client.L1Off)
				want(t, a, "red", "1,red", client.LayerSource)
				want(t, a, "blue", "1,blue", client.LayerSource)
				src.set("red", "2,red")
				if err := a.InvalidateTag(t.Context(), "red"); err != nil {
					t.Fatal(err)
				}
				if err := cl.Node("any").Del(t.Context(), lost).Err(); err != nil {
					t.Fatal(err)
				}
				b := tagged(t, open(t, cfg), src, client.L1Off) // it has not seen the invalidation
				want(t, b, "red", "2,red", client.LayerSource)
				want(t, b, "blue", "1,blue", client.LayerSource)
				want(t, b, "red", "2,red", client.LayerL2)
				if err := b.InvalidateTag(t.Context(), "blue"); err != nil {
					t.Fatal(err)
				}
				want(t, a, "blue", "1,blue", client.LayerSource)
				want(t, a, "blue", "1,blue", client.LayerL2)
			})
		})
	}
}

// TestClearTruth: in a cache that is itself the truth Clear deletes, and what is set afterwards is there, an older version too.
func TestClearTruth(t *testing.T) {
	onBackends(t, 2, func(t *testing.T, cfg client.Config) {
		cfg.NoPush = true // the first read of a key may go to L1
		c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Truth: true, L1: client.L1All})
		set := func(v string, version uint64) {
			t.Helper()
			if err := c.SetWith(t.Context(), "k", v, client.SetOptions{Version: version}); err != nil {
				t.Fatal(err)
			}
		}
		set("seven", 7)
		want(t, c, "k", "seven", client.LayerL2)
		want(t, c, "k", "seven", client.LayerL1)
		if err := c.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Get(t.Context(), "k"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("after the Clear: %q, %v", v, err)
		}
		set("three", 3)
		want(t, c, "k", "three", client.LayerL2)
		set("two", 2)
		if r, _ := c.LookupWith(t.Context(), "k", nil, client.GetOptions{BypassL1: true}); r.Value != "three" || r.Version != 3 {
			t.Errorf("an older version replaced %+v", r)
		}
	})
}

// TestClearL1: after its own Clear or InvalidateTag a process's own copies are gone, untouched ones stay.
func TestClearL1(t *testing.T) {
	onBackends(t, 2, func(t *testing.T, cfg client.Config) {
		cfg.NoPush = true // the first read of a key may go to L1
		src := newSource(map[string]string{"red": "1,red", "blue": "1,blue"})
		c := tagged(t, open(t, cfg), src, client.L1All)
		fill := func() {
			for _, k := range []string{"red", "blue"} {
				for range 2 {
					if _, err := c.Get(t.Context(), k); err != nil {
						t.Fatal(err)
					}
				}
				want(t, c, k, src.rows[k], client.LayerL1)
			}
		}
		fill()
		src.set("red", "2,red")
		if err := c.InvalidateTag(t.Context(), "red"); err != nil {
			t.Fatal(err)
		}
		want(t, c, "red", "2,red", client.LayerSource)
		if r, err := c.Lookup(t.Context(), "blue"); r.Layer == client.LayerSource || err != nil {
			t.Errorf("another tag's entry: %+v, %v", r, err)
		}
		fill()
		src.set("red", "3,red")
		src.set("blue", "3,blue")
		if err := c.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, c, "red", "3,red", client.LayerSource)
		want(t, c, "blue", "3,blue", client.LayerSource)
	})
}

func TestTagsRefused(t *testing.T) {
	cfg := clienttest.Start(t, 1).Config()
	many := strings.Repeat(",t", client.MaxTags+1)
	src := newSource(map[string]string{"empty": "v,", "long": "v," + strings.Repeat("x", client.MaxTagBytes+1), "many": "v" + many, "most": "v" + many[2:], "longest": "v," + strings.Repeat("x", client.MaxTagBytes)})
	c := tagged(t, open(t, cfg), src, client.L1Off)
	for _, k := range []string{"empty", "long", "many"} {
		want(t, c, k, src.rows[k], client.LayerSource)
		if r, err := c.Lookup(t.Context(), k); r.Layer != client.LayerSource || err != nil {
			t.Errorf("%s was stored: %+v, %v", k, r, err)
		}
	}
	if n := c.Stats().Unencodable; n != 6 {
		t.Errorf("Unencodable %d, want 6", n)
	}
	for _, k := range []string{"most", "longest"} {
		want(t, c, k, src.rows[k], client.LayerSource)
		want(t, c, k, src.rows[k], client.LayerL2)
	}
	for _, tag := range []string{"", strings.Repeat("x", client.MaxTagBytes+1)} {
		if err := c.InvalidateTag(t.Context(), tag); !errors.Is(err, client.ErrInvalidTag) {
			t.Errorf("InvalidateTag(%q): %v", tag, err)
		}
	}
	plain := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "plain", TTL: time.Minute, Load: src.load})
	if err := plain.InvalidateTag(t.Context(), "t"); !errors.Is(err, client.ErrInvalidTag) {
		t.Errorf("InvalidateTag on a cache without tags: %v", err)
	}
}

// TestClearReachesWhatItCan: a node that is down is named, the others are cleared.
func TestClearReachesWhatItCan(t *testing.T) {
	nodes := clienttest.Start(t, 2)
	src := newSource(map[string]string{})
	for i := range 20 {
		src.set(fmt.Sprint("k", i), "1")
	}
	c := tagged(t, open(t, nodes.Config()), src, client.L1Off)
	all := slices.Sorted(maps.Keys(src.rows))
	if _, err := c.GetMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	nodes.Node(1).Down()
	err := c.Clear(t.Context())
	var ne *client.NodeError
	if !errors.As(err, &ne) || ne.Node != nodes.Config().Nodes[1].ID || !client.NodesOnly(err) {
		t.Fatalf("Clear with a node down: %v", err)
	}
	for _, k := range all {
		if ownerOf(c, k) == nodes.Config().Nodes[0].ID {
			want(t, c, k, "1", client.LayerSource)
		}
	}
}

// TestHitsCostOneCommand: the generation comes along with the entry.
func TestHitsCostOneCommand(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	src := newSource(map[string]string{"k": "1,red"})
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}})
	c := tagged(t, cl, src, client.L1Off)
	want(t, c, "k", "1,red", client.LayerSource)
	if err := c.InvalidateTag(t.Context(), "blue"); err != nil { // the generation has moved on since the entry was stored
		t.Fatal(err)
	}
	want(t, c, "k", "1,red", client.LayerL2)
	raw := cl.Node("any")
	if err := raw.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		want(t, c, "k", "1,red", client.LayerL2)
	}
	stats := raw.Info(t.Context(), "commandstats").Val()
	if !strings.Contains(stats, "cmdstat_mget:calls=100,") || strings.Contains(stats, "eval") {
		t.Errorf("100 hits sent\n%s", stats)
	}
}

// TestTagsCountInL1: an entry with many long tags is as large as they are.
func TestTagsCountInL1(t *testing.T) {
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{
		Name: "x", TTL: time.Minute, Load: echo, L1: client.L1All, L1BlindTTL: time.Minute, L1MaxBytes: 100_000,
		Tags: func(v string) (tags []string) {
			for i := range client.MaxTags {
				tags = append(tags, fmt.Sprint(v, i, strings.Repeat("x", 200)))
			}
			return tags
		},
	})
	for i := range 12 { // of some 14 KiB each
		want(t, c, fmt.Sprint("k", i), fmt.Sprint("value of k", i), client.LayerSource)
	}
	if s := c.Stats(); s.L1Entries == 0 || s.L1Entries > 8 || s.L1Bytes < int64(s.L1Entries)*client.MaxTags*200 {
		t.Errorf("%d entries of %d bytes in 100,000", s.L1Entries, s.L1Bytes)
	}
}
