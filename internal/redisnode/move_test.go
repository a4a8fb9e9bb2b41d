// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// TestMove: to its owner a move is like a restart. The old session is over, what comes next goes to the other server, which is told of before it carries a command, bodies included.
func TestMove(t *testing.T) {
	a, b := redistest.Start(t, redistest.Config{}), redistest.Start(t, redistest.Config{})
	var told, streams atomic.Int32
	n := newNode(t, a.Addr(), func(c *redisnode.Config) {
		c.OnRun = func(prev, cur redisnode.Info) {
			if told.Add(1) == 2 && (prev.RunID == cur.RunID || prev.RunID == "" || cur.Role != redisnode.RolePrimary) {
				t.Errorf("OnRun(%+v, %+v)", prev, cur)
			}
		}
		c.OnReplication = func(redisnode.Replication) { streams.Add(1) }
	})
	id := [16]byte([]byte(rand.Text())[:16])
	put := func(value string) {
		mustSet(t, n, "k", value)
		if err := n.PutBody(t.Context(), "body", append(id[:], value...), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	see := func(value string) {
		t.Helper()
		if v, _, err := n.Get(t.Context(), "k"); err != nil || string(v) != value {
			t.Errorf("k is %q, %v, want %q", v, err, value)
		}
		if v, err := n.GetBody(t.Context(), "body", id, len(value)); err != nil || !bytes.Equal(v.Bytes, []byte(value)) {
			t.Errorf("the body is %q, %v, want %q", v.Bytes, err, value)
		}
	}
	put("a")
	see("a")
	old, before := n.Session(), streams.Load()
	if !n.Move(b.Addr(), "") || n.Addr() != b.Addr() {
		t.Fatalf("not moved: %s", n.Addr())
	}
	if n.Move(b.Addr(), "") {
		t.Error("moved to where it is")
	}
	if _, _, err := old.Get(t.Context(), "k"); !errors.Is(err, redisnode.ErrRunChanged) {
		t.Errorf("the old session: %v", err)
	}
	if v, ok, err := n.Get(t.Context(), "k"); ok || err != nil {
		t.Errorf("the other server has %q, %v", v, err)
	}
	if told.Load() != 2 || streams.Load() <= before || n.Session().RunID() == old.RunID() {
		t.Errorf("%d runs, %d streams after %d", told.Load(), streams.Load(), before)
	}
	put("bb")
	see("bb")
	if n.Info().WasReplica {
		t.Error("nobody has said that it was a replica")
	}
	n.Move(a.Addr(), old.RunID()) // as one that was seen as a replica
	see("a")
	if !n.Info().WasReplica {
		t.Error("what the caller has seen is forgotten")
	}
}

// TestUnknownAddress: nothing is dialled, nothing is waited for, until somebody knows better.
func TestUnknownAddress(t *testing.T) {
	n := newNode(t, redisnode.Unknown, nil)
	within(t, 50*time.Millisecond, "asking nobody", func() {
		if _, _, err := n.Get(t.Context(), "k"); !errors.Is(err, redisnode.ErrUnknown) || !redisnode.IsTrouble(err) {
			t.Errorf("got %v", err)
		}
	})
	s := redistest.Start(t, redistest.Config{})
	n.Move(s.Addr(), "")
	if _, _, err := n.Get(t.Context(), "k"); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestMoveEndsTracking: what was read through the old server is watched by nobody any more; the new one gets a Tracking of its own.
func TestMoveEndsTracking(t *testing.T) {
	a, b := redistest.Start(t, redistest.Config{}), redistest.Start(t, redistest.Config{})
	var ended atomic.Int32
	n := newNode(t, a.Addr(), func(c *redisnode.Config) {
		c.Push = func(names []string) {
			if names == nil {
				ended.Add(1)
			}
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { _ = n.Run(ctx) })
	defer loop.Wait()
	defer stop()
	eventually(t, "it tracks", func() bool { return n.Tracking() != nil })
	old := n.Tracking()
	n.Move(b.Addr(), "")
	if !old.Over() || old.Fresh(time.Now()) {
		t.Error("copies of the old server are still believed")
	}
	mustProbe(t, n)
	eventually(t, "it tracks the other server", func() bool { now := n.Tracking(); return now != nil && now != old })
	if ended.Load() == 0 {
		t.Error("Push(nil) was not called")
	}
	if _, err := n.Tracking().MGet(t.Context(), []string{"k"}); err != nil {
		t.Error(err)
	}
	if err := b.Client().Set(t.Context(), "k", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestMovesUnderLoad: callers of all kinds while the node moves to and fro meet no error but those of the moment, and nothing is left behind.
func TestMovesUnderLoad(t *testing.T) {
	servers := []*redistest.Server{redistest.Start(t, redistest.Config{}), redistest.Start(t, redistest.Config{})}
	connected := func(s *redistest.Server) string {
		info, err := s.Info(t.Context(), "clients")
		if err != nil {
			t.Fatal(err)
		}
		return info["connected_clients"]
	}
	others := []string{connected(servers[0]), connected(servers[1])}
	goroutines := runtime.NumGoroutine()
	n := newNode(t, servers[0].Addr(), func(c *redisnode.Config) { c.Push = func([]string) {} })
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = n.Run(ctx) })
	var done atomic.Int64
	for i := range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				key := fmt.Sprint("k", i)
				_, _, err := n.Get(ctx, key)
				if err == nil {
					_, err = n.Eval(ctx, redisnode.Call{Script: echo, Args: []any{"x"}})
				}
				if err == nil && i == 0 {
					_, err = n.GetBody(ctx, key, [16]byte{1}, 10)
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("while it moves: %v", err)
				}
				done.Add(1)
			}
		})
	}
	for i := range 40 {
		before := done.Load()
		n.Move(servers[(i+1)%2].Addr(), "")
		eventually(t, "callers go on", func() bool { return done.Load() > before+16 })
	}
	stop()
	all.Wait()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	for i, s := range servers {
		eventually(t, "connections are gone", func() bool { return connected(s) == others[i] })
	}
	eventually(t, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// TestMoveAwayFromADeadServer: a node that is down is up at once where it has moved to: the new server has done nothing to be distrusted, and a promotion is
// worth nothing that nobody follows for a second.
func TestMoveAwayFromADeadServer(t *testing.T) {
	dead, next := redistest.Start(t, redistest.Config{}), redistest.Start(t, redistest.Config{})
	n, h := runNode(t, dead.Addr(), nil)
	dead.Kill()
	awaitState(t, h, redisnode.Down)
	if _, _, err := n.Get(t.Context(), "k"); !redisnode.IsDown(err) {
		t.Fatalf("a read of a dead node says %v", err)
	}
	if !n.Move(next.Addr(), "") {
		t.Fatal("not moved")
	}
	if _, _, err := n.Get(t.Context(), "k"); err != nil || n.Info().State != redisnode.Up {
		t.Errorf("after the move: %v, %v", err, n.Info().State)
	}
	if at, _ := h.last(redisnode.Up); at.IsZero() {
		t.Error("nobody was told that it is up")
	}
}
