// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// lines is a log that tests can read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// take returns what was written since the last call.
func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return l.buf.String()
}

// TestLoggerHearsOfTrouble: one line when a node fails, one when it is back, none while it stays as it is.
func TestLoggerHearsOfTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 2)
		log := new(lines)
		cfg := nodes.Config()
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		cl := open(t, cfg)
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() {}, ""},
			{nodes.Node(1).Down, "node is in trouble"},
			{func() {}, ""},
			{nodes.Node(1).Up, "node is well again"},
			{func() {}, ""},
			{nodes.Node(0).Hang, "node is in trouble"},
		} {
			step.do()
			time.Sleep(5 * time.Second)
			got := log.take()
			if n := strings.Count(got, "\n"); step.want == "" && n > 0 || step.want != "" && (n != 1 || !strings.Contains(got, step.want)) {
				t.Errorf("logged %q, want %q", got, step.want)
			}
		}
		if s := cl.Stats().Nodes[0]; s.LastError == nil || s.ID != "node-0" {
			t.Errorf("%+v", s)
		}
	})
}

// TestNodesOnly: a caller can tell a database error from a node that was not reached.
func TestNodesOnly(t *testing.T) {
	nodes := clienttest.Start(t, 2)
	c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
	nodes.Node(0).Down()
	nodes.Node(1).Down()
	failed := errors.New("failed")
	for _, tc := range []struct {
		fn   error
		only bool
	}{{nil, true}, {failed, false}} {
		err := c.Write(t.Context(), "k", func(context.Context) error { return tc.fn })
		if client.NodesOnly(err) != tc.only || (tc.fn != nil && !errors.Is(err, tc.fn)) || !slices.Equal(client.UnreachedKeys(err), []string{"k"}) {
			t.Errorf("fn %v: %v: NodesOnly %v, UnreachedKeys %v", tc.fn, err, client.NodesOnly(err), client.UnreachedKeys(err))
		}
	}
	keys := []string{"a", "b", "c", "d", "e", "f"}
	err := fmt.Errorf("wrapped: %w", c.InvalidateMany(t.Context(), keys))
	unreached := client.UnreachedKeys(err)
	slices.Sort(unreached)
	if !client.NodesOnly(err) || !slices.Equal(unreached, keys) {
		t.Errorf("%v: UnreachedKeys %v", err, unreached)
	}
	if client.NodesOnly(nil) || client.UnreachedKeys(nil) != nil || client.NodesOnly(failed) {
		t.Error("no error, or another one, is not of nodes")
	}
}
