// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/ring"
)

// TestFilterNeedsTheDocumentedRights: a user who may see the patterns that Config.Namespace and FilterConfig name, and no others, can tell and hear of additions, store a build and take one over.
func TestFilterNeedsTheDocumentedRights(t *testing.T) {
	servers, cfg := copyNodes(t, 2)
	cfg.OperationTimeout, cfg.Namespace = 5*time.Second, "ns"
	rights := []any{"ACL", "SETUSER", "shelf", "on", ">secret", "resetkeys", "-@all", "+@read", "+@write", "+@scripting", "+info", "+time"}
	for _, pattern := range []string{"", "~l:", "~m:", "~b:", "~g:", "~t:", "~w:", "~k:", "~ks:", "~kc:", "~kl:"} {
		rights = append(rights, "~"+pattern+"ns/*")
	}
	for _, s := range servers {
		mustDo(t, s, rights...)
	}
	cfg.Redis = func(_ ring.Node, o *redis.Options) { o.Username, o.Password = "shelf", "secret" }
	s := newTable(10)
	c := s.filtered(t, open(t, cfg), client.FilterConfig{})
	complete(t, c, true)
	eventually(t, "stored for others", func() bool { return c.Stats().Filter.Saves > 0 })
	cl := open(t, cfg)
	other := s.filtered(t, cl, client.FilterConfig{})
	complete(t, other, true)
	if st := other.Stats().Filter; st.Loads != 1 {
		t.Errorf("the build was not taken over: %+v", st)
	}
	s.set("new", "v")
	if err := other.Known(t.Context(), "new"); err != nil {
		t.Error(err)
	}
	soon(t, c, "new")
	for _, n := range cl.Stats().Nodes {
		if n.LastFailure != nil {
			t.Errorf("%s: %v", n.ID, n.LastFailure)
		}
	}
}

// TestFilterCountsEachMissOnce: what gets past the filter though it is absent is counted once, however it is read: by Get or GetMany, with LoadMany or without, loaded or remembered.
func TestFilterCountsEachMissOnce(t *testing.T) {
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprint("LoadMany=", many), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTable(1000)
				cfg := client.CacheConfig[string]{
					Name: "x", TTL: time.Hour, Load: s.load, L1: client.L1Off, NegativeRate: 1000,
					Filter: &client.FilterConfig{ExpectedKeys: 1000, FalsePositives: 0.5, Keys: s.keys},
				}
				var calls [][]string
				if many {
					cfg.LoadMany = s.loadMany(&calls)
				}
				c := newCache(t, open(t, clienttest.Start(t, 1).Config()), cfg)
				complete(t, c, true)
				keys := make([]string, 200)
				for i := range keys {
					keys[i] = fmt.Sprint("nobody", i)
				}
				for range 2 {
					if m, err := c.GetMany(t.Context(), keys); err != nil || len(m) > 0 {
						t.Fatal(m, err)
					}
				}
				for _, key := range append(keys, "other", "another", "one more") {
					if _, err := c.Get(t.Context(), key); !errors.Is(err, client.ErrNotFound) {
						t.Fatal(err)
					}
				}
				st := c.Stats().Filter
				if st.Misses != st.Lookups-st.Absents || st.Misses < 150 || st.Lookups != 603 {
					t.Errorf("%d of %d questions were not answered \"absent\", all of them for keys that are not there; counted: %d", st.Lookups-st.Absents, st.Lookups, st.Misses)
				}
			})
		})
	}
}
