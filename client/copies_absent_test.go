// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// nobodyAt reads a key that there is not at one index of its walk, and says which node has said so.
func (c *chosen) nobodyAt(t *testing.T, key string, index int) string {
	t.Helper()
	c.index.Store(int64(index))
	r, err := c.Lookup(t.Context(), key)
	if !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("copy %d of %q: %+v, %v", index, key, r, err)
	}
	return r.Node
}

// TestCopiesOfAnAbsence: a key that there is not, and that everybody asks for, is spread as any other; the insert is seen at each of its nodes.
func TestCopiesOfAnAbsence(t *testing.T) {
	onBackends(t, 4, func(t *testing.T, cfg client.Config) {
		for name, insert := range map[string]func(ctx context.Context, c *chosen, src *source) error{
			"Write": func(ctx context.Context, c *chosen, src *source) error {
				return c.Write(ctx, "k", func(context.Context) error { src.set("k", "1"); return nil })
			},
			"WriteThrough": func(ctx context.Context, c *chosen, src *source) error {
				_, err := c.WriteThrough(ctx, "k", func(context.Context) (string, error) { src.set("k", "1"); return "1", nil })
				return err
			},
			"Clear": func(ctx context.Context, c *chosen, src *source) error { src.set("k", "1"); return c.Clear(ctx) },
		} {
			edit := func(c *client.CacheConfig[string]) { c.Name = "x-" + name }
			src := newSource(map[string]string{})
			c, other := newChosen(t, cfg, src.load, edit), newChosen(t, cfg, src.load, edit)
			for _, c := range []*chosen{c, other} {
				c.split(4, "k")
				for i := range 4 {
					node, _ := c.CopyAt("k", i)
					eventually(t, fmt.Sprintf("the absence is read at %d, on %s", i, node), func() bool { c.split(4, "k"); return c.nobodyAt(t, "k", i) == node })
				}
			}
			c.index.Store(2)
			hits := c.Stats().CopyHits
			c.split(4, "k")
			if m, err := c.GetMany(t.Context(), []string{"k"}); len(m) > 0 || err != nil || c.Stats().CopyHits != hits+1 {
				t.Errorf("GetMany: %v, %v; %d copies were read, want 1", m, err, c.Stats().CopyHits-hits)
			}
			if n := src.count("k"); n != 1 {
				t.Errorf("%d loads of what there is not, want 1", n)
			}
			if err := insert(t.Context(), c, src); err != nil {
				t.Fatal(err)
			}
			other.noneReads(t, name+", the other process", "k", "1", 4)
			c.noneReads(t, name+", the writer", "k", "1", 4)
		}
	})
}

// TestAbsencesAreNotReplicated: with Copies on every node, an absence is on its owner alone.
func TestAbsencesAreNotReplicated(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	src := newSource(map[string]string{})
	c := newChosen(t, patient(nodes), src.load, func(c *client.CacheConfig[string]) { c.HotCopies, c.Copies = 0, 3 })
	c.Choose(func() float64 { return 0 }) // each reader looks whether there are copies
	for range 5 {
		c.nobodyAt(t, "k", 0)
		eventually(t, "nothing is copied", func() bool { return c.Copying() == 0 })
	}
	for i := 1; i < 3; i++ {
		node, name := c.CopyAt("k", i)
		if _, there := nodes.ByID(node).Get(name); there {
			t.Errorf("the absence is on %s", node)
		}
	}
}

// TestAnAbsenceIsCopiedForTenSeconds: no longer, whatever NegativeTTL is.
func TestAnAbsenceIsCopiedForTenSeconds(t *testing.T) {
	nodes := clienttest.Start(t, 2)
	c := newChosen(t, patient(nodes), newSource(map[string]string{}).load, func(c *client.CacheConfig[string]) { c.NegativeTTL, c.Copies = time.Hour, 2 })
	node, name := c.CopyAt("k", 1)
	eventually(t, "the absence is copied", func() bool { c.split(2, "k"); return c.nobodyAt(t, "k", 1) == node })
	if ttl := nodes.ByID(node).TTL(name); ttl > 10*time.Second || ttl < 5*time.Second {
		t.Errorf("the copy lives %v", ttl)
	}
}
