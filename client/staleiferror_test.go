// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// staleCache is a cache whose entries live 10 s, and for a minute more when their loads fail.
func staleCache(t *testing.T, cl *client.Client, src *flaky, edit func(*client.CacheConfig[string])) *client.Cache[string] {
	t.Helper()
	cfg := client.CacheConfig[string]{Name: "x", TTL: 10 * time.Second, SoftTTL: 10 * time.Second, NoJitter: true, NoEarlyRefresh: true, StaleIfError: time.Minute, L1: client.L1Off, Load: src.load}
	if edit != nil {
		edit(&cfg)
	}
	return newCache(t, cl, cfg)
}

// wantStale reads a key and wants what is past its time.
func wantStale(t *testing.T, c *client.Cache[string], key, value string, layer client.Layer, why error) client.Result[string] {
	t.Helper()
	began := time.Now()
	r, err := c.Lookup(t.Context(), key)
	if err != nil || r.Value != value || r.Layer != layer || !r.Stale || !errors.Is(r.LoadErr, why) || r.Age < 10*time.Second || r.Node == "" {
		t.Errorf("%+v, %v after %v; want %q, stale, from %v, because of %v", r, err, time.Since(began), value, layer, why)
	}
	return r
}

// wantError reads a key and wants no value.
func wantError(t *testing.T, c *client.Cache[string], key string, want error) {
	t.Helper()
	if r, err := c.Lookup(t.Context(), key); !errors.Is(err, want) || r.Value != "" || r.LoadErr != nil {
		t.Errorf("%+v, %v; want %v", r, err, want)
	}
}

// TestStaleIfError: past its TTL an entry is a miss. When its load fails, in whatever way, its reader gets it all the same, marked, up to the stated age; and when the source
// is well, the new value.
func TestStaleIfError(t *testing.T) {
	for name, tc := range map[string]struct {
		fail func(*flaky)
		why  error
	}{
		"error":   {func(f *flaky) { f.err = errDatabase }, errDatabase},
		"timeout": {func(f *flaky) { f.hang = true }, client.ErrLoadTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
				src := &flaky{row: "v1"}
				c := staleCache(t, open(t, nodes.Config()), src, nil)
				want(t, c, "k", "v1", client.LayerSource)
				loaded := time.Now()
				time.Sleep(9900 * time.Millisecond)
				want(t, c, "k", "v1", client.LayerL2)
				src.mu.Lock()
				src.row = "v2"
				tc.fail(src)
				src.mu.Unlock()
				time.Sleep(200 * time.Millisecond)
				src.taken()
				first := wantStale(t, c, "k", "v1", client.LayerL2, tc.why)
				if age := time.Since(loaded) + 5*time.Millisecond; first.Age > age || first.Age < age-10*time.Millisecond {
					t.Errorf("its age is %v, want %v", first.Age, age)
				}
				for time.Since(loaded) < 69*time.Second {
					began := time.Now()
					wantStale(t, c, "k", "v1", client.LayerL2, tc.why)
					if time.Since(began) > 0 {
						t.Errorf("at %v a reader waited %v for a load that fails, and not for the first time", time.Since(loaded), time.Since(began))
					}
					time.Sleep(50 * time.Millisecond)
				}
				if n := src.taken(); n < 4 || n > 9 {
					t.Errorf("%d loads in a minute", n)
				}
				time.Sleep(1200 * time.Millisecond)
				if _, err := c.Get(t.Context(), "k"); !errors.Is(err, tc.why) {
					t.Errorf("past the stated age: %v", err)
				}
				if s := c.Stats(); s.StaleServed < 1000 || s.HeldBack < 500 {
					t.Errorf("%+v", s)
				}
				src.mu.Lock()
				src.err, src.hang = nil, false
				src.mu.Unlock()
				time.Sleep(31 * time.Second)
				want(t, c, "k", "v2", client.LayerSource)
				want(t, c, "k", "v2", client.LayerL2)
			})
		})
	}
}

// TestStaleIfError_RecoversBehindTheReaders: when the source is well again the next try finds out without a reader that waits, and the one after it has the new value.
func TestStaleIfError_RecoversBehindTheReaders(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "v1"}
		c := staleCache(t, open(t, nodes.Config()), src, nil)
		want(t, c, "k", "v1", client.LayerSource)
		src.set("v1", errDatabase, 0)
		time.Sleep(11 * time.Second)
		wantStale(t, c, "k", "v1", client.LayerL2, errDatabase)
		src.set("v2", nil, 0)
		time.Sleep(1100 * time.Millisecond)
		wantStale(t, c, "k", "v1", client.LayerL2, errDatabase)
		time.Sleep(50 * time.Millisecond)
		want(t, c, "k", "v2", client.LayerL2)
	})
}

// TestStaleIfError_Overloaded: who has an old entry does not queue for a place, and stands before nobody who has none.
func TestStaleIfError_Overloaded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "v1"}
		cfg := nodes.Config()
		cfg.MaxLoads, cfg.LoadQueueTimeout = 1, time.Minute
		cl := open(t, cfg)
		c := staleCache(t, cl, src, nil)
		gate := make(chan struct{})
		other := newCache(t, cl, client.CacheConfig[string]{Name: "other", TTL: time.Minute, LoadTimeout: time.Hour, Load: func(context.Context, string) (string, error) { <-gate; return "v", nil }})
		want(t, c, "k", "v1", client.LayerSource)
		time.Sleep(11 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { want(t, other, "hold", "v", client.LayerSource) })
		time.Sleep(time.Second)
		began := time.Now()
		wantStale(t, c, "k", "v1", client.LayerL2, client.ErrOverloaded)
		if m, err := c.GetMany(t.Context(), []string{"k"}); err != nil || m["k"] != "v1" {
			t.Errorf("%v, %v", m, err)
		}
		if s := cl.Stats(); time.Since(began) != 0 || s.LoadsQueued != 0 || s.LoadsRejected != 0 {
			t.Errorf("after %v: %+v", time.Since(began), s)
		}
		wg.Go(func() { want(t, c, "new", "v1", client.LayerSource) })
		time.Sleep(time.Second)
		if s := cl.Stats(); s.LoadsQueued != 1 {
			t.Errorf("%d queue, want the one that has nothing", s.LoadsQueued)
		}
		close(gate)
		wg.Wait()
		want(t, c, "k", "v1", client.LayerSource)
	})
}

// TestStaleIfError_NeverWhatIsKnownToBeInvalidated: after an invalidation of the key, of its tag, or a Clear, by this process or another, there is nothing to fall back
// on; nor after one that did not reach the node.
func TestStaleIfError_NeverWhatIsKnownToBeInvalidated(t *testing.T) {
	for name, invalidate := range map[string]func(c *client.Cache[string]) error{
		"Invalidate":    func(c *client.Cache[string]) error { return c.Invalidate(context.Background(), "k") },
		"InvalidateTag": func(c *client.Cache[string]) error { return c.InvalidateTag(context.Background(), "t") },
		"Clear":         func(c *client.Cache[string]) error { return c.Clear(context.Background()) },
		"Write": func(c *client.Cache[string]) error {
			return c.Write(context.Background(), "k", func(context.Context) error { return nil })
		},
	} {
		for _, l1 := range []client.L1Mode{client.L1Off, client.L1All} {
			for _, lost := range []bool{false, true} {
				t.Run(name+map[bool]string{true: ", node down", false: ""}[lost]+map[client.L1Mode]string{client.L1All: ", L1"}[l1], func(t *testing.T) {
					bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
						src := &flaky{row: "v1"}
						edit := func(cfg *client.CacheConfig[string]) {
							cfg.L1, cfg.Tags = l1, func(string) []string { return []string{"t"} }
						}
						c := staleCache(t, open(t, nodes.Config()), src, edit)
						want(t, c, "k", "v1", client.LayerSource)
						c.Get(t.Context(), "k") // into L1
						src.set("", errDatabase, 0)
						time.Sleep(11 * time.Second)
						wantStale(t, c, "k", "v1", client.LayerL2, errDatabase)
						if lost {
							nodes.Node(0).Down()
						}
						if err := invalidate(c); (err != nil) != lost {
							t.Error(err)
						}
						if !lost && l1 == client.L1All { // before the node has said that it is gone
							nodes.Node(0).Down()
							wantError(t, c, "k", errDatabase)
							nodes.Node(0).Up()
						}
						wantError(t, c, "k", errDatabase)
						if lost {
							nodes.Node(0).Up()
							wantError(t, c, "k", errDatabase) // perhaps it is owed still
							time.Sleep(3 * time.Second)
						}
						wantError(t, c, "k", errDatabase)
						nodes.Node(0).Down() // and there is no copy in this process either
						wantError(t, c, "k", errDatabase)
						nodes.Node(0).Up()
					})
				})
			}
		}
	}
}

// TestStaleIfError_ByAnotherProcess: what another process has invalidated is gone from the node, and with it what this one could fall back on while the node answers.
func TestStaleIfError_ByAnotherProcess(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "v1"}
		edit := func(cfg *client.CacheConfig[string]) { cfg.L1 = client.L1All }
		c, other := staleCache(t, open(t, nodes.Config()), src, edit), staleCache(t, open(t, nodes.Config()), src, edit)
		want(t, c, "k", "v1", client.LayerSource)
		c.Get(t.Context(), "k")
		src.set("", errDatabase, 0)
		time.Sleep(11 * time.Second)
		wantStale(t, c, "k", "v1", client.LayerL2, errDatabase)
		if err := other.Invalidate(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		wantError(t, c, "k", errDatabase)
		nodes.Node(0).Down()
		wantError(t, c, "k", errDatabase) // what the node has said counts, also when it says no more
		nodes.Node(0).Up()
	})
}

// TestStaleIfError_FromL1: where the owner does not answer, this process's own copy is what there is to fall back on.
func TestStaleIfError_FromL1(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "v1"}
		c := staleCache(t, open(t, nodes.Config()), src, func(cfg *client.CacheConfig[string]) { cfg.L1 = client.L1All })
		want(t, c, "k", "v1", client.LayerSource)
		want(t, c, "k", "v1", client.LayerL1)
		loaded := time.Now()
		nodes.Node(0).Down()
		src.set("v2", errDatabase, 0)
		time.Sleep(2100 * time.Millisecond) // L1BlindTTL
		for _, o := range []client.GetOptions{{BypassL1: true}, {Refresh: true}, {Refresh: true, NoFill: true}} {
			if _, err := c.GetWith(t.Context(), "k", nil, o); !errors.Is(err, errDatabase) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		for time.Since(loaded) < 69*time.Second {
			r, err := c.Lookup(t.Context(), "k")
			if err != nil || r.Value != "v1" || r.Layer != client.LayerL1 || !r.Stale || !errors.Is(r.LoadErr, errDatabase) || r.Age > time.Since(loaded)+20*time.Millisecond {
				t.Fatalf("at %v: %+v, %v", time.Since(loaded), r, err)
			}
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(1500 * time.Millisecond)
		wantError(t, c, "k", errDatabase)
		nodes.Node(0).Up()
	})
}

// TestStaleIfError_Values: large values, compressed ones and those of a batch are served so too; absences are not.
func TestStaleIfError_Values(t *testing.T) {
	bubble(t, 2, func(t *testing.T, nodes *clienttest.Nodes) {
		long := strings.Repeat("long text ", 2000)
		src := &flaky{row: long}
		cl := open(t, nodes.Config())
		large := staleCache(t, cl, src, func(cfg *client.CacheConfig[string]) { cfg.Name, cfg.LargeValueBytes = "large", 1000 })
		packed := staleCache(t, cl, src, func(cfg *client.CacheConfig[string]) { cfg.Name, cfg.Compression = "packed", client.CompressS2 })
		batch := staleCache(t, cl, src, func(cfg *client.CacheConfig[string]) {
			cfg.Name, cfg.Load, cfg.LoadMany, cfg.LargeValueBytes = "batch", nil, src.loadMany, 1000
		})
		absent := staleCache(t, cl, src, func(cfg *client.CacheConfig[string]) { cfg.Name = "absent" })
		keys := []string{"a", "b", "c", "d"}
		for _, c := range []*client.Cache[string]{large, packed} {
			want(t, c, "k", long, client.LayerSource)
		}
		if m, err := batch.GetMany(t.Context(), keys); err != nil || len(m) != 4 {
			t.Errorf("%d, %v", len(m), err)
		}
		src.set("", client.ErrNotFound, 0)
		wantError(t, absent, "k", client.ErrNotFound)
		src.set("", errDatabase, 0)
		time.Sleep(11 * time.Second)
		for range 2 {
			for _, c := range []*client.Cache[string]{large, packed} {
				wantStale(t, c, "k", long, client.LayerL2, errDatabase)
			}
			m, err := batch.GetMany(t.Context(), append(keys, "new"))
			if len(m) != 4 || m["a"] != long || !errors.Is(err, errDatabase) || strings.Contains(err.Error(), `"a"`) {
				t.Errorf("%d values, %v", len(m), err)
			}
			wantError(t, absent, "k", errDatabase)
		}
	})
}

// TestStaleIfError_Off: without it an entry ends with its TTL, whatever fails.
func TestStaleIfError_Off(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "v1"}
		c := staleCache(t, open(t, nodes.Config()), src, func(cfg *client.CacheConfig[string]) { cfg.StaleIfError, cfg.L1 = 0, client.L1All })
		want(t, c, "k", "v1", client.LayerSource)
		if _, name := c.Where("k"); nodes.Node(0).TTL(name) > 10*time.Second {
			t.Errorf("the node keeps it for %v", nodes.Node(0).TTL(name))
		}
		src.set("", errDatabase, 0)
		time.Sleep(10*time.Second + time.Millisecond)
		wantError(t, c, "k", errDatabase)
	})
}

// TestStaleIfError_KeepsItsVersionOut: an entry that is past its time does not keep a row with an older version from being stored: it ends at its TTL.
func TestStaleIfError_KeepsItsVersionOut(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "22"}
		c := staleCache(t, open(t, nodes.Config()), src, func(cfg *client.CacheConfig[string]) { cfg.Version = func(v string) uint64 { return uint64(len(v)) } })
		want(t, c, "k", "22", client.LayerSource)
		time.Sleep(11 * time.Second)
		src.set("1", nil, 0)
		want(t, c, "k", "1", client.LayerSource)
		want(t, c, "k", "1", client.LayerL2)
	})
}

// TestStaleIfError_CopiesThatWereCleared: a copy in this process that has been cleared, or invalidated by its key or tag, is none to fall back on when the node falls silent
// right after that.
func TestStaleIfError_CopiesThatWereCleared(t *testing.T) {
	for name, invalidate := range map[string]func(c *client.Cache[string]) error{
		"nothing":       func(*client.Cache[string]) error { return nil },
		"Invalidate":    func(c *client.Cache[string]) error { return c.Invalidate(context.Background(), "k") },
		"InvalidateTag": func(c *client.Cache[string]) error { return c.InvalidateTag(context.Background(), "t") },
		"Clear":         func(c *client.Cache[string]) error { return c.Clear(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
				src := &flaky{row: "v1"}
				c := staleCache(t, open(t, nodes.Config()), src, func(cfg *client.CacheConfig[string]) {
					cfg.L1, cfg.Tags = client.L1All, func(string) []string { return []string{"t"} }
				})
				want(t, c, "k", "v1", client.LayerSource)
				want(t, c, "k", "v1", client.LayerL1)
				if err := invalidate(c); err != nil {
					t.Error(err)
				}
				nodes.Node(0).Down()
				src.set("", errDatabase, 0)
				time.Sleep(2100 * time.Millisecond)
				if name == "nothing" {
					if r, err := c.Lookup(t.Context(), "k"); err != nil || r.Value != "v1" || !r.Stale {
						t.Errorf("%+v, %v", r, err)
					}
				} else {
					wantError(t, c, "k", errDatabase)
				}
				nodes.Node(0).Up()
			})
		})
	}
}

// TestStaleIfError_OwedMeanwhile: while a read waits for its load, this process writes the row, and the invalidation does not reach the node. The load fails: what the node had
// said before that is no answer any more.
func TestStaleIfError_OwedMeanwhile(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "v1"}
		c := staleCache(t, open(t, nodes.Config()), src, nil)
		want(t, c, "k", "v1", client.LayerSource)
		time.Sleep(11 * time.Second)
		src.mu.Lock()
		src.hang = true
		src.mu.Unlock()
		var wg sync.WaitGroup
		wg.Go(func() { wantError(t, c, "k", client.ErrLoadTimeout) })
		time.Sleep(time.Second)
		nodes.Node(0).Down()
		if err := c.Invalidate(t.Context(), "k"); !client.NodesOnly(err) {
			t.Error(err)
		}
		wg.Wait()
		nodes.Node(0).Up()
	})
}

// TestNoStaleForAnAnswer: an error that is an answer of the source (CacheConfig.SourceFailure) reaches its reader, whatever lies on the node; and the entry is there still for
// those whose load fails.
func TestNoStaleForAnAnswer(t *testing.T) {
	errDenied := errors.New("you may not see this row")
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "v1"}
		c := staleCache(t, open(t, nodes.Config()), src, func(cfg *client.CacheConfig[string]) {
			cfg.SourceFailure = func(err error) bool { return !errors.Is(err, errDenied) }
		})
		want(t, c, "k", "v1", client.LayerSource)
		time.Sleep(11 * time.Second)
		fail := func(err error) {
			src.mu.Lock()
			src.err = err
			src.mu.Unlock()
		}
		fail(errDenied)
		for range 3 {
			wantError(t, c, "k", errDenied)
		}
		fail(errDatabase)
		wantStale(t, c, "k", "v1", client.LayerL2, errDatabase)
		if s := c.Stats(); s.StaleServed != 1 {
			t.Errorf("%d served stale, want 1", s.StaleServed)
		}
	})
}
