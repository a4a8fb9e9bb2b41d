// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"strings"
	"time"

	"github.com/go-shelf/shelf/client"
)

var pushes = []behaviour{
	{name: "a copy in the process goes when anybody changes the entry", needs: []Ability{Pushes}, test: pushed},
	{name: "a listener whose connection was killed misses nothing for long", needs: []Ability{Pushes, Connections}, alone: true, test: killedListener},
	{name: "a user with the documented rights hears the pushes", needs: []Ability{Pushes, Users}, alone: true, test: pushRights},
	{name: "without pushes a copy in the process lives L1BlindTTL", test: blind},
}

// soon is far less than the lifetime of a copy that pushes keep coherent (L1TTL).
const soon = 10 * time.Second

// watching opens a cache that keeps what it reads, and waits until its nodes push.
func watching(s *scene, clients client.Config, cfg client.CacheConfig[row]) *client.Cache[row] {
	s.Helper()
	cfg.L1, cfg.TTL, cfg.L1TTL = client.L1All, time.Hour, time.Hour
	cl := s.client(clients)
	c := on(s, cl, cfg)
	s.until("the nodes push", func() bool {
		for i, n := range cl.Stats().Nodes {
			_, err := c.Get(s.Context(), numbered(i + 1)[i]) // nothing is watched before it is read
			s.must(err)
			if !n.Pushing {
				return false
			}
		}
		return true
	})
	return c
}

// keeps reads a key until the process has its own copy.
func keeps(s *scene, c *client.Cache[row], key string, v row) {
	s.Helper()
	s.until("a copy in L1 of "+key, func() bool {
		r, err := c.Lookup(s.Context(), key)
		s.must(err)
		return r.Layer == client.LayerL1 && r.Value == v
	})
}

// sees waits for a value, which must come soon.
func sees(s *scene, c *client.Cache[row], key string, v row) {
	s.Helper()
	begin := time.Now()
	s.until("the new row under "+key, func() bool {
		r, err := c.Get(s.Context(), key)
		s.must(err)
		return r == v
	})
	if d := time.Since(begin); d > soon {
		s.Errorf("%s: the new row was seen after %v", key, d)
	}
}

func pushed(s *scene) {
	for _, namespace := range []string{"", "mine"} {
		clients := s.config()
		clients.Namespace = namespace
		pushedIn(s, clients)
	}
}

func pushedIn(s *scene, clients client.Config) {
	src := newSource(row{1, "old"})
	a, b := watching(s, clients, versioned(src.load)), on(s, s.client(clients), versioned(src.load))
	changes := map[string]func(key string) error{
		"invalidated": func(k string) error { return b.Invalidate(s.Context(), k) },
		"announced":   func(k string) error { return b.InvalidateVersion(s.Context(), k, 2) },
		"deleted":     func(k string) error { p := where(s, b, k); return p.node.Del(s.Context(), p.data).Err() },
		"cleared":     func(string) error { return b.Clear(s.Context()) },
	}
	for k, change := range changes {
		keeps(s, a, k, row{1, "old"})
		src.set(k, row{2, "new"})
		s.must(change(k))
		sees(s, a, k, row{2, "new"})
	}
	if a.Stats().Pushes == 0 {
		s.Error("Pushes is 0")
	}
}

func killedListener(s *scene) {
	src := newSource(row{1, "old"})
	a, b := watching(s, s.config(), versioned(src.load)), open(s, versioned(src.load))
	for i, name := range []string{"shelf-listener", "shelf-fill"} {
		key := "k" + name
		keeps(s, a, key, row{1, "old"})
		list, _ := s.do(0, "CLIENT", "LIST").(string)
		killed := 0
		for line := range strings.Lines(list) {
			if id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " "); strings.Contains(line, "name="+name) {
				s.do(0, "CLIENT", "KILL", "ID", id)
				killed++
			}
		}
		if killed == 0 {
			s.Errorf("no connection %s in\n%s", name, list)
		}
		src.set(key, row{uint64(i) + 2, "new"})
		s.must(b.Invalidate(s.Context(), key))
		sees(s, a, key, row{uint64(i) + 2, "new"})
		keeps(s, a, key, row{uint64(i) + 2, "new"})
	}
}

func pushRights(s *scene) {
	user(s, "~* "+Rights)
	cl := s.client(s.config(asUser("shelf", "secret")))
	s.until("it is said why there are no pushes", func() bool { return cl.Stats().Nodes[0].PushError != nil })
	user(s, "~* "+Rights+" "+PushRights)
	cl = s.client(s.config(asUser("shelf", "secret")))
	cfg := plain(newSource(row{1, "a"}).load)
	cfg.L1 = client.L1All
	c := on(s, cl, cfg)
	s.until("the node pushes", func() bool {
		_, err := c.Get(s.Context(), "k")
		s.must(err)
		return cl.Stats().Nodes[0].Pushing
	})
	if err := cl.Stats().Nodes[0].PushError; err != nil {
		s.Errorf("PushError: %v", err)
	}
}

func blind(s *scene) {
	src := newSource(row{Text: "a"})
	cfg := plain(src.load)
	cfg.L1, cfg.L1BlindTTL = client.L1All, 200*time.Millisecond
	clients := s.config()
	clients.NoPush = true
	a, b := on(s, s.client(clients), cfg), on(s, s.client(clients), cfg)
	keeps(s, a, "k", row{Text: "a"})
	src.set("k", row{Text: "b"})
	s.must(b.Invalidate(s.Context(), "k"))
	invalidated := time.Now()
	want(s, b, "k", row{Text: "b"}, client.LayerSource)
	s.until("a sees the other process's update", func() bool {
		asked := time.Now()
		v, err := a.Get(s.Context(), "k")
		s.must(err)
		if v.Text == "a" && asked.Sub(invalidated) > cfg.L1BlindTTL {
			s.Errorf("the old copy is served %v after the invalidation, L1BlindTTL is %v", asked.Sub(invalidated), cfg.L1BlindTTL)
		}
		return v.Text == "b"
	})
	src.set("k", row{Text: "c"})
	s.must(a.Invalidate(s.Context(), "k"))
	want(s, a, "k", row{Text: "c"}, client.LayerSource)
}
