// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/internal/redisnode"
)

// TestLastFailure: a refused command is seen in Info, also one that went over the own path for bodies; a health check or a success in between changes nothing.
func TestLastFailure(t *testing.T) {
	var told []string
	s, n := startNode(t, func(c *redisnode.Config) {
		c.OnRefusal = func(e *redisnode.Error) { told = append(told, e.Node+" "+e.Op) }
	})
	mustSet(t, n, "k", "v")
	if i := mustProbe(t, n); i.LastFailure != nil || !i.LastFailureAt.IsZero() {
		t.Errorf("at first: %v at %v", i.LastFailure, i.LastFailureAt)
	}
	if _, err := s.Do(t.Context(), "ACL", "SETUSER", "default", "-getrange", "-incr"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		op  string
		run func() error
	}{
		{"INCR", func() error {
			_, err := n.Do(t.Context(), redisnode.Command{"INCR", "n"})
			return err
		}},
		{"GETRANGE", func() error {
			_, err := n.GetBody(t.Context(), "k", [16]byte{1}, 1000)
			return err
		}},
	} {
		err := tc.run()
		wantTrouble(t, err)
		if _, _, err := n.Get(t.Context(), "k"); err != nil {
			t.Errorf("GET: %v", err)
		}
		i := mustProbe(t, n)
		if !errors.Is(i.LastFailure, err) || !strings.Contains(i.LastFailure.Error(), "cache-a: "+tc.op+": NOPERM") || i.LastFailureAt.IsZero() {
			t.Errorf("after %v: %v at %v", err, i.LastFailure, i.LastFailureAt)
		}
	}
	if _, err := s.Do(t.Context(), "ACL", "SETUSER", "default", "-time"); err != nil {
		t.Fatal(err)
	}
	if i, err := n.Probe(t.Context()); err == nil || !errors.Is(i.LastError, err) || !strings.Contains(i.LastFailure.Error(), "GETRANGE") {
		t.Errorf("after a health check that failed: %v, LastFailure %v", err, i.LastFailure)
	}
	if strings.Join(told, ", ") != "cache-a INCR" {
		t.Errorf("told of %q, want one within a minute", told)
	}
}
