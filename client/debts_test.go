// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// indebted is a process whose invalidation of "k" has not reached its node, which has the old row, "1", and is back; the row is "2" now.
func indebted(t *testing.T, edit func(*client.CacheConfig[string])) (nodes *clienttest.Nodes, cl *client.Client, c *client.Cache[string], src *source) {
	t.Helper()
	nodes = clienttest.Start(t, 1)
	cl = open(t, nodes.Config())
	src = newSource(map[string]string{"k": "1", "l": "1"})
	cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: src.load, L1: client.L1All, NoEarlyRefresh: true}
	if edit != nil {
		edit(&cfg)
	}
	c = newCache(t, cl, cfg)
	want(t, c, "k", "1", client.LayerSource)
	nodes.Node(0).Down()
	err := c.Write(t.Context(), "k", func(context.Context) error { src.set("k", "2"); return nil })
	if !client.NodesOnly(err) || !slices.Equal(client.UnreachedKeys(err), []string{"k"}) || errors.Is(err, client.ErrOutboxFull) {
		t.Fatalf("the write says %v", err)
	}
	if s := cl.Stats(); s.Owed != 1 || s.OwedSince.IsZero() {
		t.Fatalf("owed: %+v", s)
	}
	nodes.Node(0).Up()
	return nodes, cl, c, src
}

// paid waits until nothing is owed any more.
func paid(t *testing.T, cl *client.Client) {
	t.Helper()
	for start := time.Now(); cl.Stats().Owed > 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 15*time.Second {
			t.Fatalf("%d still owed, and the node is back", cl.Stats().Owed)
		}
	}
}

// TestOwedInvalidation: an invalidation that failed is repeated until it gets through. Until then its process reads past what the node has, and
// stores nothing there.
func TestOwedInvalidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, cl, c, src := indebted(t, nil)
		other := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: src.load, L1: client.L1Off, NoEarlyRefresh: true})
		want(t, other, "k", "1", client.LayerL2) // it cannot know better
		for range 3 {
			want(t, c, "k", "2", client.LayerSource) // neither from the node, nor from L1, nor stored
		}
		if m, err := c.GetMany(t.Context(), []string{"k", "l"}); err != nil || m["k"] != "2" || m["l"] != "1" {
			t.Errorf("GetMany: %v, %v", m, err)
		}
		for _, o := range []client.GetOptions{{BypassL1: true}, {NoFill: true}, {Refresh: true}} {
			if v, err := c.GetWith(t.Context(), "k", nil, o); err != nil || v != "2" {
				t.Errorf("%+v: %q, %v", o, v, err)
			}
		}
		want(t, other, "k", "1", client.LayerL2)
		if r, err := c.Warm(t.Context(), slices.Values([]string{"k"}), client.WarmOptions{}); err == nil || r.Failed != 1 {
			t.Errorf("a warm-up of it: %+v, %v", r, err)
		}
		if s := c.Stats(); s.Bypassed < 6 {
			t.Errorf("%d reads bypassed, want 6 at least", s.Bypassed)
		}
		paid(t, cl)
		want(t, other, "k", "2", client.LayerSource)
		want(t, c, "k", "2", client.LayerL2)
		want(t, c, "k", "2", client.LayerL1)
	})
}

// TestOwedInvalidationVoidsFills: a load from before the write, whose lease nobody could void, is not stored when the node is back.
func TestOwedInvalidationVoidsFills(t *testing.T) {
	for _, many := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := clienttest.Start(t, 1)
			cl := open(t, nodes.Config())
			g := newGated(map[string]string{"k": "1", "m": "1"})
			c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: g.load, L1: client.L1All, NoEarlyRefresh: true,
				LoadMany: func(ctx context.Context, keys []string) (map[string]string, error) {
					v, err := g.load(ctx, keys[0])
					return map[string]string{keys[0]: v}, err
				}})
			g.first.Store(many) // then the first read passes, and is waited for
			read := inBackground(t, c, "k")
			if many {
				if v, err := read(); err != nil || v != "1" {
					t.Fatal(v, err)
				}
				nodes.Node(0).Flush()
				g.first.Store(false)
				got := make(chan error, 1)
				go func() {
					_, err := c.GetMany(context.Background(), []string{"m"})
					got <- err
				}()
				read = func() (string, error) { return "", <-got }
			}
			<-g.held
			key := map[bool]string{false: "k", true: "m"}[many]
			nodes.Node(0).Down()
			g.set(key, "2")
			if err := c.Invalidate(t.Context(), key); !client.NodesOnly(err) {
				t.Fatal(err)
			}
			nodes.Node(0).Up()
			close(g.release)
			if _, err := read(); err != nil {
				t.Fatal(err)
			}
			if data, there := nodes.Node(0).Get("x:" + key + ":v0"); there {
				t.Errorf("many %t: what was loaded before the write is stored: %q", many, data)
			}
			want(t, c, key, "2", client.LayerSource)
		})
	}
}

// TestOwedMany: as many as OutboxSize are kept; the error says for which keys there was no room.
func TestOwedMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cfg := nodes.Config()
		cfg.OutboxSize = 3
		cl := open(t, cfg)
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo})
		nodes.Node(0).Down()
		err := c.InvalidateMany(t.Context(), []string{"a", "b", "c", "d", "e"})
		if !errors.Is(err, client.ErrOutboxFull) || !client.NodesOnly(err) || len(client.UnreachedKeys(err)) != 5 {
			t.Fatalf("%v", err)
		}
		lost := 0
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() { //nolint:errorlint // the joined errors themselves
			var n *client.NodeError
			if errors.As(e, &n) && errors.Is(e, client.ErrOutboxFull) {
				lost += len(n.Keys)
			}
		}
		if s := cl.Stats(); lost != 2 || s.Owed != 3 || s.OwedRefused != 2 {
			t.Errorf("%d keys lost, %d owed, %d refused; want 2, 3, 2", lost, s.Owed, s.OwedRefused)
		}
		// Those that are kept already have their place.
		if err := c.Invalidate(t.Context(), "a"); !client.NodesOnly(err) || errors.Is(err, client.ErrOutboxFull) {
			t.Errorf("again: %v", err)
		}
		if err := c.Clear(t.Context()); !errors.Is(err, client.ErrOutboxFull) {
			t.Errorf("Clear: %v", err)
		}
		nodes.Node(0).Up()
		paid(t, cl)
	})
}

// TestOwedClear: a Clear, or a tag's invalidation, that did not reach a node is owed to it too.
func TestOwedClear(t *testing.T) {
	for what, act := range map[string]func(*client.Cache[string]) error{
		"clear": func(c *client.Cache[string]) error { return c.Clear(context.Background()) },
		"tag":   func(c *client.Cache[string]) error { return c.InvalidateTag(context.Background(), "t") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := clienttest.Start(t, 2)
				cl := open(t, nodes.Config())
				src := newSource(map[string]string{})
				cfg := client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: src.load, L1: client.L1All, NoEarlyRefresh: true, L1BlindTTL: time.Minute,
					Tags: func(string) []string { return []string{"t"} }}
				c := newCache(t, cl, cfg)
				other := newCache(t, open(t, nodes.Config()), cfg)
				var keys []string
				for i := range 20 {
					keys = append(keys, fmt.Sprint(i))
					src.set(keys[i], "1")
				}
				mustGetMany(t, c, keys, "1")
				mustGetMany(t, other, keys, "1")
				nodes.Node(1).Down()
				for _, k := range keys {
					src.set(k, "2")
				}
				if err := act(c); !client.NodesOnly(err) || !strings.Contains(err.Error(), nodes.Node(1).ID()) {
					t.Fatalf("%v", err)
				}
				nodes.Node(1).Up()
				mustGetMany(t, c, keys, "2")
				mustGetMany(t, c, keys, "2") // and L1 has nothing old
				for range 20 {               // the node answers once the connections that were cut have been used up
					for _, k := range keys {
						if v, err := c.GetWith(t.Context(), k, nil, client.GetOptions{BypassL1: true}); err != nil || v != "2" {
							t.Fatalf("%s is %q, %v", k, v, err)
						}
					}
				}
				paid(t, cl)
				time.Sleep(time.Minute) // the other's L1, which nobody pushes to
				mustGetMany(t, other, keys, "2")
			})
		})
	}
}

func mustGetMany(t *testing.T, c *client.Cache[string], keys []string, v string) {
	t.Helper()
	m, err := c.GetMany(t.Context(), keys)
	if err != nil || len(m) != len(keys) {
		t.Fatalf("%d of %d keys, %v", len(m), len(keys), err)
	}
	for k, got := range m {
		if got != v {
			t.Fatalf("%s is %q, want %q", k, got, v)
		}
	}
}

// TestTruthOwesNothing: a delete is a write there: repeated later, it would remove what was set since.
func TestTruthOwesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cl := open(t, nodes.Config())
		c := newCache(t, cl, client.CacheConfig[string]{Name: "s", TTL: time.Hour, Truth: true})
		if err := c.Set(t.Context(), "k", "1"); err != nil {
			t.Fatal(err)
		}
		nodes.Node(0).Down()
		if err := c.Invalidate(t.Context(), "k"); !client.NodesOnly(err) {
			t.Fatal(err)
		}
		if err := c.Clear(t.Context()); !client.NodesOnly(err) {
			t.Fatal(err)
		}
		if n := cl.Stats().Owed; n != 0 {
			t.Errorf("%d owed", n)
		}
		nodes.Node(0).Up()
		if err := c.Set(t.Context(), "k", "2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want(t, c, "k", "2", client.LayerL2)
	})
}

// TestCloseSendsWhatIsOwed: to a node that comes back in time.
func TestCloseSendsWhatIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, cl, _, _ := indebted(t, nil)
		nodes.Node(0).Down()
		go func() {
			time.Sleep(3 * time.Second)
			nodes.Node(0).Up()
		}()
		if err := cl.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if _, there := nodes.Node(0).Get("x:k:v0"); there {
			t.Error("closed, and the old row is still there")
		}
	})
}

// TestCloseNamesWhatIsOwed: to a node that does not come back.
func TestCloseNamesWhatIsOwed(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			nodes, cl, _, _ := indebted(t, nil)
			nodes.Node(0).Down()
			ctx, limit := t.Context(), 10*time.Second
			if bounded {
				var cancel context.CancelFunc
				limit = 300 * time.Millisecond
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			start := time.Now()
			err := cl.Close(ctx)
			if d := time.Since(start); d > limit+time.Second || d < limit/2 {
				t.Errorf("Close took %v, want %v", d, limit)
			}
			if !client.NodesOnly(err) || !slices.Equal(client.UnreachedKeys(err), []string{"x:k:v0"}) || !errors.Is(err, client.ErrClosed) ||
				!strings.Contains(err.Error(), nodes.Node(0).ID()) || !strings.Contains(err.Error(), "refused") {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// TestOwedOddKeys: what is owed for a key of any bytes is repeated like any other.
func TestOwedOddKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cl := open(t, nodes.Config())
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo})
		keys := append(oddKeys(), "a\x00b", "\x00", "~g:x:v0\x000", "a\x00b:v1")
		nodes.Node(0).Down()
		if err := c.InvalidateMany(t.Context(), keys); !client.NodesOnly(err) {
			t.Fatal(err)
		}
		nodes.Node(0).Up()
		paid(t, cl)
	})
}

// TestOwedVersion: what is repeated, and a second delete, announce the version that the first call did.
func TestOwedVersion(t *testing.T) {
	const version = "\x00\x00\x00\x00\x00\x00\x00\x07"
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cl := open(t, nodes.Config())
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo, SecondDelete: 20 * time.Second})
		nodes.Node(0).Down()
		if err := c.InvalidateVersion(t.Context(), "k", 7); !client.NodesOnly(err) {
			t.Fatal(err)
		}
		nodes.Node(0).Up()
		paid(t, cl)
		if mark, there := nodes.Node(0).Get("~m:x:k:v0"); !there || string(mark) != version {
			t.Errorf("repeated: the mark is %q", mark)
		}
		time.Sleep(15 * time.Second) // the mark lives for ten
		if _, there := nodes.Node(0).Get("~m:x:k:v0"); there {
			t.Error("the mark is still there")
		}
		time.Sleep(6 * time.Second)
		if mark, there := nodes.Node(0).Get("~m:x:k:v0"); !there || string(mark) != version {
			t.Errorf("second delete: the mark is %q", mark)
		}
	})
}

// TestOwedToANodeThatIsBack: however long the back-off has become, a node that is well again gets what it is owed as soon as that is noticed; and Close notices by
// trying.
func TestOwedToANodeThatIsBack(t *testing.T) {
	for _, closing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes, cl, _, _ := indebted(t, nil)
			nodes.Node(0).Down()
			time.Sleep(3 * time.Minute) // the pauses are 5 to 10 s by now
			nodes.Node(0).Up()
			start, limit := time.Now(), 2*time.Second
			if closing {
				limit = 500 * time.Millisecond // nothing is sent before three heartbeats were answered
				if err := cl.Close(t.Context()); err != nil {
					t.Error(err)
				}
			} else {
				paid(t, cl)
			}
			if d := time.Since(start); d > limit {
				t.Errorf("closing %t: paid after %v, want %v at most", closing, d, limit)
			}
		})
	}
}

// TestInvalidationOutlivesItsCaller: a context that has ended, before the call or while the database is written, ends no invalidation.
func TestInvalidationOutlivesItsCaller(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		cl := open(t, cfg)
		for what, act := range map[string]func(ctx context.Context, cancel func(), c *client.Cache[string]) error{
			"Invalidate": func(ctx context.Context, cancel func(), c *client.Cache[string]) error {
				cancel()
				return c.Invalidate(ctx, "k")
			},
			"Clear": func(ctx context.Context, cancel func(), c *client.Cache[string]) error {
				cancel()
				return c.Clear(ctx)
			},
			"InvalidateTag": func(ctx context.Context, cancel func(), c *client.Cache[string]) error {
				cancel()
				return c.InvalidateTag(ctx, "red")
			},
			"Write": func(ctx context.Context, cancel func(), c *client.Cache[string]) error {
				return c.Write(ctx, "k", func(context.Context) error { cancel(); return nil })
			},
			"WriteThrough": func(ctx context.Context, cancel func(), c *client.Cache[string]) error {
				_, err := c.WriteThrough(ctx, "k", func(context.Context) (string, error) { cancel(); return "2,red", nil })
				return err
			},
		} {
			src := newSource(map[string]string{"k": "1,red"})
			c := newCache(t, cl, client.CacheConfig[string]{Name: what, TTL: time.Minute, Load: src.load, L1: client.L1Off, NoEarlyRefresh: true,
				Tags: func(v string) []string { return strings.Split(v, ",")[1:] }})
			want(t, c, "k", "1,red", client.LayerSource)
			src.set("k", "2,red")
			ctx, cancel := context.WithCancel(t.Context())
			if err := act(ctx, cancel, c); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			layer := client.LayerSource
			if what == "WriteThrough" {
				layer = client.LayerL2
			}
			want(t, c, "k", "2,red", layer)
		}
	})
}
