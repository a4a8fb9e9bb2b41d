// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
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
