// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// body is what lies on the node: an id and n bytes.
func body(id [16]byte, n int) []byte { return append(id[:], bytes.Repeat([]byte{id[0]}, n)...) }

func TestBodyIsReadByItsID(t *testing.T) {
	_, n := startNode(t, nil)
	ctx, id := t.Context(), [16]byte{7}
	if err := n.PutBody(ctx, "b", body(id, 300_000), time.Minute); err != nil {
		t.Fatal(err)
	}
	if ttl := n.Client().PTTL(ctx, "b").Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("lives %v", ttl)
	}
	b, err := n.GetBody(ctx, "b", id, 300_000)
	if err != nil || b.Shared || !bytes.Equal(b.Bytes, body(id, 300_000)[16:]) {
		t.Errorf("%d bytes, shared %v, %v", len(b.Bytes), b.Shared, err)
	}
	n.Client().LPush(ctx, "list", "x")
	for name, tc := range map[string]struct {
		key  string
		id   [16]byte
		size int
	}{
		"another id": {"b", [16]byte{8}, 300_000}, "shorter": {"b", id, 300_001}, "missing": {"none", id, 10}, "a list": {"list", id, 10},
	} {
		if b, err := n.GetBody(ctx, tc.key, tc.id, tc.size); err != nil || b.Bytes != nil {
			t.Errorf("%s: %d bytes, %v; want none", name, len(b.Bytes), err)
		}
	}
}

// TestBodiesKeepToTheirConnections: a crowd of large reads takes LargeConns connections and leaves the pool's alone. The timeout is long, since 200 MiB pass and
// a busy machine is not what is tested.
func TestBodiesKeepToTheirConnections(t *testing.T) {
	_, n := startNode(t, func(c *redisnode.Config) { c.PoolSize, c.Timeout = 1, time.Minute })
	ctx := t.Context()
	for i := range 20 {
		if err := n.PutBody(ctx, fmt.Sprint("b", i), body([16]byte{byte(i)}, 1<<20), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			id := [16]byte{byte(i % 20)}
			if b, err := n.GetBody(ctx, fmt.Sprint("b", i%20), id, 1<<20); err != nil || !bytes.Equal(b.Bytes, body(id, 1<<20)[16:]) {
				t.Errorf("%d bytes, %v", len(b.Bytes), err)
			}
		})
	}
	wg.Wait()
	mustSet(t, n, "k", "v")
	if clients := strings.Count(n.Client().ClientList(ctx).Val(), "id="); clients > redisnode.LargeConns+1 {
		t.Errorf("%d connections, want at most %d", clients, redisnode.LargeConns+1)
	}
}

// TestSmallReadsPassBodies: bodies whose answers do not come, more of them than there are connections for, hold up no small read, though the pool has one
// connection.
func TestSmallReadsPassBodies(t *testing.T) {
	s, writer := startNode(t, nil)
	p := redistest.StartProxy(t, s.Addr())
	n := newNode(t, p.Addr(), func(c *redisnode.Config) { c.PoolSize, c.Timeout = 1, 5*time.Second })
	for i := range byte(10) {
		if err := writer.PutBody(t.Context(), fmt.Sprint("b", i), body([16]byte{i}, 100_000), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	mustSet(t, writer, "k", "v")
	ofBodies := func(c *redistest.ProxyConn) bool { return c.Sent("GETRANGE") }
	p.Only(ofBodies).ToClient().BlackHole()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer p.Heal()
	for i := range byte(10) {
		wg.Go(func() {
			if b, err := n.GetBody(t.Context(), fmt.Sprint("b", i), [16]byte{i}, 100_000); err != nil || len(b.Bytes) != 100_000 {
				t.Errorf("body %d, in the end: %d bytes, %v", i, len(b.Bytes), err)
			}
		})
	}
	eventually(t, "each connection for bodies has one under way", func() bool {
		return len(slices.DeleteFunc(p.Conns(), func(c *redistest.ProxyConn) bool { return !ofBodies(c) })) == redisnode.LargeConns
	})
	for range 100 {
		if v, _, err := n.Get(t.Context(), "k"); string(v) != "v" || err != nil {
			t.Fatalf("a small read beside them: %q, %v", v, err)
		}
	}
}

// TestBodyOfANodeThatHangs: a transfer ends with its own allowance, a caller with its own context, and neither takes the other along.
func TestBodyOfANodeThatHangs(t *testing.T) {
	s, n := startNode(t, nil)
	id := [16]byte{1}
	if err := n.PutBody(t.Context(), "b", body(id, 1<<20), time.Minute); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	defer s.Cont()
	var wg sync.WaitGroup
	for range 8 { // joined to one transfer
		wg.Go(func() {
			within(t, 600*time.Millisecond, "a transfer", func() {
				_, err := n.GetBody(t.Context(), "b", id, 1<<20)
				wantTrouble(t, err)
				if !redisnode.IsTimeout(err) {
					t.Errorf("%v is no timeout", err)
				}
			})
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := n.GetBody(ctx, "b", id, 1<<20); !errors.Is(err, context.DeadlineExceeded) || redisnode.IsTrouble(err) {
		t.Errorf("a caller whose time was over: %v", err)
	}
	wg.Wait()
	within(t, 1200*time.Millisecond, "PutBody", func() { wantTrouble(t, n.PutBody(t.Context(), "c", body(id, 1<<20), time.Minute)) })
	s.Cont()
	eventually(t, "the body is read again", func() bool {
		b, err := n.GetBody(t.Context(), "b", id, 1<<20)
		return err == nil && b.Bytes != nil
	})
}

// TestBodyQueueIsBounded: who waits for a turn longer than for a transfer is told so, as a pool timeout.
func TestBodyQueueIsBounded(t *testing.T) {
	s, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 200 * time.Millisecond })
	if err := n.PutBody(t.Context(), "b0", body([16]byte{}, 10), time.Minute); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	defer s.Cont()
	var wg sync.WaitGroup
	var mu sync.Mutex
	queued := 0
	for i := range 12 * redisnode.LargeConns {
		wg.Go(func() {
			within(t, 500*time.Millisecond, "a transfer and its queue", func() {
				_, err := n.GetBody(t.Context(), fmt.Sprint("b", i), [16]byte{}, 10)
				wantTrouble(t, err)
				mu.Lock()
				defer mu.Unlock()
				if redisnode.IsPoolTimeout(err) {
					queued++
				}
			})
		})
	}
	wg.Wait()
	if queued == 0 {
		t.Error("nobody was told that the queue was too long")
	}
}

// TestBodyAfterRestart: a connection of the old process is no obstacle, and its bodies are gone.
func TestBodyAfterRestart(t *testing.T) {
	s, n := startNode(t, nil)
	id := [16]byte{1}
	if err := n.PutBody(t.Context(), "b", body(id, 100), time.Minute); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if _, err := n.GetBody(t.Context(), "b", id, 100); !redisnode.IsTrouble(err) {
		t.Errorf("got %v, want trouble", err)
	}
	s.Restart()
	if b, err := n.GetBody(t.Context(), "b", id, 100); err != nil || b.Bytes != nil {
		t.Errorf("%d bytes, %v; want none", len(b.Bytes), err)
	}
	if err := n.PutBody(t.Context(), "b", body(id, 100), time.Minute); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsTransfers(t *testing.T) {
	s, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 20 * time.Second })
	mustSet(t, n, "k", "v")
	if err := n.PutBody(t.Context(), "b", body([16]byte{}, 10), time.Minute); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	defer s.Cont()
	var wg sync.WaitGroup
	started := make(chan struct{}, 10)
	for i := range 10 {
		wg.Go(func() {
			started <- struct{}{}
			_, err := n.GetBody(t.Context(), fmt.Sprint("b", i), [16]byte{}, 10)
			if !errors.Is(err, redisnode.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		})
	}
	for range 10 {
		<-started
	}
	within(t, time.Second, "Close", func() { _ = n.Close() })
	wg.Wait()
	if _, err := n.GetBody(t.Context(), "b", [16]byte{}, 10); !errors.Is(err, redisnode.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := n.PutBody(t.Context(), "b", nil, time.Minute); !errors.Is(err, redisnode.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
