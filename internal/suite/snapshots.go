// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"github.com/go-shelf/shelf/client"
)

var snapshots = []behaviour{
	{name: "what a node brings back from a snapshot is not trusted, by nobody", needs: []Ability{Snapshots}, alone: true, test: untrusted},
	{name: "TrustSnapshots: it is, but for what this process has invalidated since", needs: []Ability{Snapshots}, alone: true, test: trusted},
	{name: "a cache that is itself the truth is read from a snapshot as it was", needs: []Ability{Snapshots}, alone: true, test: trustedTruth},
}

// restored restarts the server with what SAVE has kept.
func (s *scene) restored() {
	s.Helper()
	s.servers[0].Restart(s)
	s.fresh(0)
}

// stays reads until the connections from before a restart are used up: a node that does not answer is a load.
func stays(s *scene, c *client.Cache[row], key string, v row) {
	s.Helper()
	for range 20 {
		if r, err := c.Get(s.Context(), key); err != nil || r != v {
			s.Fatalf("%s is %v, %v; want %v", key, r, err, v)
		}
	}
}

// untrusted: each reader has a key of its own, since what one of them stores anew the others may read.
func untrusted(s *scene) {
	src := newSource(row{1, "old"})
	c, other := open(s, batching(src)), open(s, batching(src))
	keys := []string{"who invalidated", "who knew the node", "who did not"}
	_, err := c.GetMany(s.Context(), keys)
	s.must(err)
	want(s, other, keys[1], row{1, "old"}, client.LayerL2)
	s.do(0, "SAVE")
	for _, k := range keys {
		src.set(k, row{2, "new"})
	}
	s.must(c.InvalidateMany(s.Context(), keys))
	s.restored()
	for i, reader := range []*client.Cache[row]{c, other, open(s, batching(src))} {
		if p := where(s, c, keys[i]); i == 0 && !p.has(p.data) {
			s.Fatal("the snapshot does not have the old row: this shows nothing")
		}
		stays(s, reader, keys[i], row{2, "new"})
	}
	if other.Stats().Distrusted == 0 {
		s.Error("Distrusted is 0")
	}
}

// trusted: the source has another row by then, so that it shows where a row is from.
func trusted(s *scene) {
	src := newSource(row{1, "old"})
	cfg := s.config()
	cfg.TrustSnapshots = true
	cl := s.client(cfg)
	c := on(s, cl, batching(src))
	_, err := c.GetMany(s.Context(), []string{"invalidated", "not"})
	s.must(err)
	s.do(0, "SAVE")
	for _, k := range []string{"invalidated", "not"} {
		src.set(k, row{2, "new"})
	}
	s.must(c.Invalidate(s.Context(), "invalidated"))
	s.restored()
	if p := where(s, c, "invalidated"); !p.has(p.data) {
		s.Fatal("the snapshot does not have the old row: this shows nothing")
	}
	stays(s, c, "invalidated", row{2, "new"})
	want(s, c, "not", row{1, "old"}, client.LayerL2)
	s.paid(cl)
	other := on(s, s.client(cfg), batching(src))
	stays(s, other, "invalidated", row{2, "new"})
	want(s, other, "not", row{1, "old"}, client.LayerL2)
}

func trustedTruth(s *scene) {
	c := open(s, aTruth())
	s.must(c.Set(s.Context(), "k", row{1, "a"}))
	s.do(0, "SAVE")
	s.must(c.Set(s.Context(), "k", row{2, "after the snapshot"}))
	s.restored()
	for _, reader := range []*client.Cache[row]{open(s, aTruth()), c} {
		s.until("the node is used again", func() bool {
			r, err := reader.Lookup(s.Context(), "k")
			return err == nil && r.Value == row{1, "a"} && r.Layer == client.LayerL2
		})
	}
}
