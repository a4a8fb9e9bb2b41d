// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// many is a Many from the beginning to the end, with copies of its values; "-" is a missing one.
func many(ctx context.Context, n *redisnode.Node, keys ...string) (got []string, err error) {
	m := n.Many(len(keys))
	defer m.Free()
	for _, key := range keys {
		m.Add(key)
	}
	m.Send(ctx, time.Now().Add(time.Second))
	m.Here()
	vals, err := m.Read(ctx)
	for _, v := range vals {
		if v == nil {
			got = append(got, "-")
		} else {
			got = append(got, string(v))
		}
	}
	return got, err
}

func wantMany(tb testing.TB, n *redisnode.Node, want string, keys ...string) {
	tb.Helper()
	if got, err := many(context.Background(), n, keys...); err != nil || strings.Join(got, " ") != want {
		tb.Errorf("%v: %q, %v; want %q", keys, got, err, want)
	}
}

func TestMany(t *testing.T) {
	_, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 10 * time.Second })
	large := strings.Repeat("x", 100_000) // longer than a connection's buffer
	mustSet(t, n, "a", "1")
	mustSet(t, n, "empty", "")
	mustSet(t, n, "large", large)
	if err := n.Client().RPush(t.Context(), "list", "x").Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first needs a connection, the others have one
		wantMany(t, n, "1 -  - 1", "a", "none", "empty", "list", "a")
		wantMany(t, n, "1 "+large+" -", "a", "large", "none")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := many(ctx, n, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context has ended: %v", err)
	}
	wantMany(t, n, "1", "a")
}

// TestManyShare: a crowd of callers gets its own values each, over few connections and in fewer replies than there are callers.
func TestManyShare(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	p := redistest.StartProxy(t, s.Addr())
	n := newNode(t, p.Addr(), func(c *redisnode.Config) { c.Timeout = 20 * time.Second })
	for i := range 40 {
		mustSet(t, n, fmt.Sprint("k", i), fmt.Sprint("v", i))
	}
	wantMany(t, n, "v0", "k0")
	p.ToClient().Delay(20*time.Millisecond, 0)
	var crowd sync.WaitGroup
	start := time.Now()
	for i := range 40 {
		crowd.Go(func() {
			for round := range 3 {
				j := (i + round) % 40
				wantMany(t, n, fmt.Sprintf("v%d - v%d", i, j), fmt.Sprint("k", i), "none", fmt.Sprint("k", j))
			}
		})
	}
	crowd.Wait()
	if conns := len(p.Conns()); conns > 2+1 {
		t.Errorf("%d connections, want 2 for these reads and one for the rest", conns)
	}
	if took := time.Since(start); took > 120*20*time.Millisecond/2 {
		t.Errorf("120 commands took %v: as if none had shared a round trip of 20 ms with another", took)
	}
}

// TestManyOfASilentNode: nobody waits for more than a moment in turn, and the error comes after the timeout. Those that are queued get it too.
func TestManyOfASilentNode(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	p := redistest.StartProxy(t, s.Addr())
	n := newNode(t, p.Addr(), func(c *redisnode.Config) { c.Timeout = 300 * time.Millisecond })
	mustSet(t, n, "k", "v")
	eventually(t, "a connection is free", func() bool { // its worker puts one back after it has told of the reply
		m := n.Many(1)
		defer m.Free()
		m.Add("k")
		m.Send(t.Context(), time.Now().Add(time.Second))
		sent := m.Sent()
		_, err := m.Read(t.Context())
		return sent && err == nil
	})
	p.BlackHole()
	within(t, 1200*time.Millisecond, "8 silent reads", func() {
		var all []*redisnode.Many
		for range 8 {
			m := n.Many(1)
			m.Add("k")
			m.Send(t.Context(), time.Now().Add(time.Millisecond))
			all = append(all, m)
		}
		if !all[0].Sent() || all[7].Sent() {
			t.Errorf("the first was sent: %v, the last: %v; want only the first over a connection of its own", all[0].Sent(), all[7].Sent())
		}
		start := time.Now()
		if all[0].Here() || time.Since(start) > 200*time.Millisecond {
			t.Errorf("Here after %v of silence", time.Since(start))
		}
		for _, m := range all {
			_, err := m.Read(t.Context())
			wantTrouble(t, err)
			m.Free()
		}
	})
	p.Heal()
	eventually(t, "read again", func() bool { got, err := many(t.Context(), n, "k"); return err == nil && got[0] == "v" })
}

// TestManyOverDeadConnections: where the server has closed what was idle, it is asked again.
func TestManyOverDeadConnections(t *testing.T) {
	s, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 10 * time.Second })
	mustSet(t, n, "k", "v")
	for range 10 {
		var crowd sync.WaitGroup
		for range 6 {
			crowd.Go(func() { wantMany(t, n, "v -", "k", "none") })
		}
		crowd.Wait()
		if _, err := s.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyThatNobodyReads: the reply of one that was given up is nobody else's.
func TestManyThatNobodyReads(t *testing.T) {
	_, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 10 * time.Second })
	mustSet(t, n, "a", "1")
	mustSet(t, n, "b", "2")
	for range 20 {
		wantMany(t, n, "1", "a")
		m := n.Many(1)
		m.Add("b")
		m.Send(t.Context(), time.Now())
		m.Free()
	}
	wantMany(t, n, "1 2", "a", "b")
}

// TestManyRefused: each caller gets the server's refusal, and the connections go on.
func TestManyRefused(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	p := redistest.StartProxy(t, s.Addr())
	n := newNode(t, p.Addr(), func(c *redisnode.Config) { c.Timeout = 10 * time.Second })
	mustSet(t, n, "k", "v")
	wantMany(t, n, "v", "k")
	admin := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer func() { _ = admin.Close() }()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", "-mget").Err(); err != nil {
		t.Fatal(err)
	}
	var crowd sync.WaitGroup
	for range 20 {
		crowd.Go(func() {
			if _, err := many(t.Context(), n, "k"); !redis.HasErrorPrefix(err, "NOPERM") {
				t.Errorf("%v, want the server's refusal", err)
			}
		})
	}
	crowd.Wait()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", "+mget").Err(); err != nil {
		t.Fatal(err)
	}
	wantMany(t, n, "v", "k")
	if conns := len(p.Conns()); conns > 2+1 {
		t.Errorf("%d connections, want 2 for these reads and one for the rest", conns)
	}
}

// TestManyAndClose: what is queued or under way ends, and Close returns.
func TestManyAndClose(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	p := redistest.StartProxy(t, s.Addr())
	n := newNode(t, p.Addr(), func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	mustSet(t, n, "k", "v")
	wantMany(t, n, "v", "k")
	p.BlackHole()
	var crowd sync.WaitGroup
	sent := make(chan struct{}, 10)
	for range cap(sent) {
		m := n.Many(1)
		m.Add("k")
		m.Send(t.Context(), time.Now())
		crowd.Go(func() {
			defer m.Free()
			sent <- struct{}{}
			if _, err := m.Read(t.Context()); !errors.Is(err, redisnode.ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
		})
	}
	for range cap(sent) {
		<-sent
	}
	within(t, time.Second, "Close", func() { _ = n.Close() })
	crowd.Wait()
	if _, err := many(t.Context(), n, "k"); !errors.Is(err, redisnode.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
