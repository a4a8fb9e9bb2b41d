// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// TestCopiesAndTheGutter: the owner of a key with copies is down, and its entry lives on a stand-in. After a Refresh, a Clear or the invalidation of a tag no process gets the older row, from
// a copy or from the stand-in.
func TestCopiesAndTheGutter(t *testing.T) {
	for copies, edit := range map[string]func(c *client.CacheConfig[string]){
		"hot":          func(*client.CacheConfig[string]) {},
		"of every key": func(c *client.CacheConfig[string]) { c.HotCopies, c.Copies = 0, 3 },
	} {
		for call, do := range map[string]func(ctx context.Context, c *chosen) error{
			"Refresh": func(ctx context.Context, c *chosen) error {
				_, err := c.GetWith(ctx, "k", nil, client.GetOptions{Refresh: true})
				return err
			},
			"Clear":         func(ctx context.Context, c *chosen) error { return c.Clear(ctx) },
			"InvalidateTag": func(ctx context.Context, c *chosen) error { return c.InvalidateTag(ctx, "t") },
		} {
			t.Run(fmt.Sprint(copies, ", ", call), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes := clienttest.Start(t, 4)
					src := newSource(map[string]string{"k": "1"})
					cfg := nodes.Config()
					cfg.Gutter = true
					both := make([]*chosen, 2)
					for i := range both {
						both[i] = newChosen(t, cfg, src.load, func(c *client.CacheConfig[string]) {
							c.Tags = func(string) []string { return []string{"t"} }
							edit(c)
						})
					}
					both[0].at(t, "k", 0)
					if copies == "hot" {
						both[0].spread(t, "k", 3)
						both[1].spread(t, "k", 3)
					}
					synctest.Wait()
					owner := ownerOf(both[0].Cache, "k")
					nodes.ByID(owner).Down()
					for _, c := range both {
						eventually(t, "the owner is seen down", func() bool { return stateOf(c.cl, owner) == "down" })
						c.split(3, "k")
						if r := c.at(t, "k", 1); r.Value != "1" || r.Layer != client.LayerL2 {
							t.Fatalf("the scene is not set: %+v", r)
						}
					}
					time.Sleep(time.Second)
					src.set("k", "2")
					if err := do(t.Context(), both[0]); err != nil && !client.NodesOnly(err) {
						t.Fatal(err)
					}
					for i, c := range both {
						c.noneReads(t, fmt.Sprint("process ", i), "k", "2", 3)
					}
				})
			})
		}
	}
}

// TestRefreshVoidsTheGutter: a process that finds the owner well refreshes a key; what it has itself put on the stand-in, while the owner was down, goes too.
func TestRefreshVoidsTheGutter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGutterScene(t)
		want(t, g.c, "k", "1", client.LayerSource) // on the stand-in
		g.owner.Up()
		g.await(t, "up")
		g.src.set("k", "2")
		if v, err := g.c.GetWith(t.Context(), "k", nil, client.GetOptions{Refresh: true}); v != "2" || err != nil {
			t.Fatal(v, err)
		}
		for i := range 3 {
			if n := g.nodes.Node(i); n != g.owner {
				if _, there := n.Get("~u:x:k:v0"); there {
					t.Error("the row from before the refresh is on the stand-in")
				}
			}
		}
	})
}
