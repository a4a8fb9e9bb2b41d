// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// rb30 is the scene of RB-30: two hot keys, each on 4 nodes, which two processes read that keep nothing themselves.
type rb30 struct {
	cfg     client.Config
	servers map[string]*redistest.Server
	p, q    *chosen
	src     *source
}

func newRB30(t *testing.T) *rb30 {
	t.Helper()
	s := &rb30{servers: make(map[string]*redistest.Server), src: newSource(map[string]string{"k": "v1", "l": "v1"})}
	cfg := client.Config{OperationTimeout: time.Second, TrustSnapshots: true}
	for i, server := range redistest.StartNodes(t, 4) {
		id := fmt.Sprintf("node-%d", i)
		s.servers[id] = server
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: id, Addr: server.Addr()})
	}
	s.cfg = cfg
	s.p, s.q = newChosen(t, cfg, s.src.load, nil), newChosen(t, cfg, s.src.load, nil)
	for _, key := range []string{"k", "l"} {
		s.p.spread(t, key, 4)
		s.q.spread(t, key, 4)
	}
	return s
}

// copies are the indexes at which a copy lies, whatever readers make of it.
func (s *rb30) copies(t *testing.T, key string) (there []int) {
	t.Helper()
	for i := 1; i < 4; i++ {
		node, name := s.p.CopyAt(key, i)
		if n, _ := mustDo(t, s.servers[node], "EXISTS", name).(int64); n > 0 {
			there = append(there, i)
		}
	}
	return there
}

// TestRB30_NoCopyKeepsTheOldValue: a key is on several nodes, and in L1 of two processes. After an invalidation that returned nil no copy gives the old value, whatever the
// number of copies is or was; one copy that is not reached is told, by its node, though the others succeed, and is not served here.
func TestRB30_NoCopyKeepsTheOldValue(t *testing.T) {
	for name, change := range map[string]func(s *rb30){
		"as many as before":     func(*rb30) {},
		"4, 2 before":           func(s *rb30) { s.p.split(2, "k"); s.q.split(2, "k") },
		"unsplit before":        func(s *rb30) { s.p.split(1, "k"); s.q.split(1, "k") },
		"unknown to the writer": func(s *rb30) { s.p.split(0, "k") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newRB30(t)
			change(s)
			if name == "4, 2 before" { // the copies under 2 are brought anew meanwhile
				for i := range 2 {
					s.q.at(t, "k", i)
				}
			}
			s.src.set("k", "v2")
			if err := s.p.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if there := s.copies(t, "k"); len(there) > 0 {
				t.Errorf("copies %v are there after the invalidation", there)
			}
			s.q.noneReads(t, "the other process", "k", "v2", 4)
			s.p.noneReads(t, "the writer", "k", "v2", 4)
			if there := s.copies(t, "l"); !slices.Equal(there, []int{1, 2, 3}) {
				t.Errorf("of the other key copies %v are left", there)
			}
		})
	}
	t.Run("many keys", func(t *testing.T) {
		s := newRB30(t)
		s.src.set("k", "v2")
		s.src.set("l", "v2")
		if err := s.p.InvalidateMany(t.Context(), []string{"k", "l"}); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			s.q.split(4, "k", "l")
			s.q.index.Store(int64(i))
			for range 2 {
				if m, err := s.q.GetMany(t.Context(), []string{"k", "l"}); err != nil || m["k"] != "v2" || m["l"] != "v2" {
					t.Errorf("index %d: %v, %v", i, m, err)
				}
			}
		}
	})
}

// TestRB30_InL1Too: two processes keep the key themselves as well. They take it from the owner, never from a copy, and lose it: the one that invalidates at once, the other with the
// owner's push.
func TestRB30_InL1Too(t *testing.T) {
	s := newRB30(t)
	inL1 := func(c *client.CacheConfig[string]) { c.L1 = client.L1All }
	l, m := newChosen(t, s.cfg, s.src.load, inL1), newChosen(t, s.cfg, s.src.load, inL1)
	for _, c := range []*chosen{l, m} {
		c.split(4, "k")
		c.index.Store(3)
		eventually(t, "the key is in L1, from its owner", func() bool {
			r, err := c.Lookup(t.Context(), "k")
			return err == nil && r.Layer == client.LayerL1 && r.Node == ownerOf(c.Cache, "k")
		})
	}
	s.src.set("k", "v2")
	if err := l.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	l.noneReads(t, "the writer", "k", "v2", 4)
	s.q.noneReads(t, "who keeps nothing", "k", "v2", 4)
	eventually(t, "the push has come", func() bool { v, err := m.Get(t.Context(), "k"); return err == nil && v == "v2" })
	m.noneReads(t, "the other who keeps it", "k", "v2", 4)
}

// TestRB30_TheCountChangesAroundTheDelete: from 4 nodes to 2 and back while the key is invalidated again and again.
func TestRB30_TheCountChangesAroundTheDelete(t *testing.T) {
	s := newRB30(t)
	for i, k := range []int{4, 2, 4, 1, 3, 2, 4, 4, 1, 2} {
		s.p.split(k, "k")
		for index := range 4 { // those who have not heard of the change
			s.q.split(4, "k")
			s.q.at(t, "k", index)
		}
		v := fmt.Sprint("v", i+2)
		s.src.set("k", v)
		if err := s.p.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		s.q.noneReads(t, fmt.Sprint("round ", i, ", other process"), "k", v, 4)
		s.p.noneReads(t, fmt.Sprint("round ", i), "k", v, 4)
	}
}

// TestRB30_OneNodeRefuses: the node of copy 1 takes no writes, while the last copy goes.
func TestRB30_OneNodeRefuses(t *testing.T) {
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprint("many=", many), func(t *testing.T) {
			s := newRB30(t)
			node, _ := s.p.CopyAt("k", 1)
			mustDo(t, s.servers[node], "CONFIG", "SET", "min-replicas-to-write", "1")
			s.src.set("k", "v2")
			err := s.p.Invalidate(t.Context(), "k")
			if many {
				err = s.p.InvalidateMany(t.Context(), []string{"k"})
			}
			var of *client.NodeError
			if !client.NodesOnly(err) || !errors.As(err, &of) || of.Node != node || of.Op != "invalidate copy" || !slices.Equal(of.Keys, []string{"k"}) {
				t.Fatalf("the invalidation says %v, want the copy on %s", err, node)
			}
			if there := s.copies(t, "k"); !slices.Equal(there, []int{1}) {
				t.Errorf("copies %v are left, want 1 alone", there)
			}
			s.p.noneReads(t, "the writer", "k", "v2", 4)
			if s.p.cl.Stats().Owed == 0 {
				t.Error("nothing is owed")
			}
			mustDo(t, s.servers[node], "CONFIG", "SET", "min-replicas-to-write", "0")
			paid(t, s.p.cl)
			eventually(t, "the copy is read again", func() bool { s.p.split(4, "k"); return s.p.at(t, "k", 1).Node == node })
			s.q.noneReads(t, "the other process, once the node is back", "k", "v2", 4)
		})
	}
}
