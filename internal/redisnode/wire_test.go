// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// TestReadsKeepToTheirConnections: a crowd of reads, each with a command of its own, takes half of the connections and leaves the others to the rest. Who
// waits for one waits no longer than the timeout.
func TestReadsKeepToTheirConnections(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	p := redistest.StartProxy(t, s.Addr())
	n := newNode(t, p.Addr(), func(c *redisnode.Config) { c.PoolSize, c.Timeout = 6, 10*time.Second })
	mustSet(t, n, "k", "v")
	p.ToClient().Delay(20*time.Millisecond, 0)
	var crowd sync.WaitGroup
	for range 30 {
		crowd.Go(func() {
			if v, err := n.MGet(t.Context(), []string{"k", "none"}); err != nil || string(v[0]) != "v" || v[1] != nil {
				t.Errorf("%q, %v", v, err)
			}
		})
	}
	crowd.Wait()
	if conns := len(p.Conns()); conns > 3+1 {
		t.Errorf("%d connections, want 3 for reads and one for the rest", conns)
	}
	p.BlackHole()
	n = newNode(t, p.Addr(), func(c *redisnode.Config) { c.PoolSize, c.Timeout = 2, 100*time.Millisecond })
	late := make(chan error, 2)
	start := time.Now()
	for range 2 {
		go func() { _, err := n.MGet(t.Context(), []string{"k"}); late <- err }()
	}
	for range 2 {
		if wantTrouble(t, <-late); time.Since(start) > 5*time.Second {
			t.Errorf("after %v", time.Since(start))
		}
	}
}

// TestIdleConnectionsThatAreGone: the server has closed everything that was idle. Each read notices, and none fails.
func TestIdleConnectionsThatAreGone(t *testing.T) {
	s, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	mustSet(t, n, "k", "v")
	for round := range 5 {
		var crowd sync.WaitGroup
		for i := range 8 {
			crowd.Go(func() {
				var err error
				if i%2 == 0 {
					_, _, err = n.Get(t.Context(), "k")
				} else {
					_, err = n.MGet(t.Context(), []string{"k", fmt.Sprint(i)})
				}
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		crowd.Wait()
		if _, err := s.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadsByLimitedUsers: a user who may not ping reads all the same; one who may not read hears it from each read, over a connection that stays.
func TestReadsByLimitedUsers(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	for _, rule := range []string{
		"reader on >secret ~* +get +mget +info +time +hello +auth",
		"writer on >secret ~* +set +info +time +hello +auth",
	} {
		args := []any{"ACL", "SETUSER"}
		for _, word := range strings.Fields(rule) {
			args = append(args, word)
		}
		if _, err := s.Do(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	as := func(user string) *redisnode.Node {
		return newNode(t, s.Addr(), func(c *redisnode.Config) {
			c.Options = func(o *redis.Options) { o.Username, o.Password = user, "secret" }
		})
	}
	reader, writer := as("reader"), as("writer")
	if v, err := reader.MGet(t.Context(), []string{"k"}); err != nil || v[0] != nil {
		t.Errorf("%q, %v", v, err)
	}
	before := int64(0)
	for i := range 5 {
		_, _, err := writer.Get(t.Context(), "k")
		if err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("got %v, want NOPERM", err)
		}
		reply, err := s.Do(t.Context(), "INFO", "stats")
		if err != nil {
			t.Fatal(err)
		}
		var made int64
		for line := range strings.Lines(fmt.Sprint(reply)) {
			_, _ = fmt.Sscanf(line, "total_connections_received:%d", &made)
		}
		if i > 0 && made > before+1 { // one of them asks for the number
			t.Errorf("%d connections more for a read that was refused", made-before)
		}
		before = made
	}
}

// dialing makes a node's connections by a dialer of the test's.
func dialing(c *redisnode.Config, dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	c.Options = func(o *redis.Options) { o.Dialer = dial }
}

// TestConnectionsInTheMaking: callers who leave before a connection stands do not add up to more dials than there are connections for reads.
func TestConnectionsInTheMaking(t *testing.T) {
	var dials, most atomic.Int32
	n := newNode(t, "127.0.0.1:1", func(c *redisnode.Config) {
		c.PoolSize, c.Timeout = 4, time.Minute
		dialing(c, func(ctx context.Context, _, _ string) (net.Conn, error) {
			defer dials.Add(-1)
			for now := dials.Add(1); ; {
				if old := most.Load(); now <= old || most.CompareAndSwap(old, now) {
					break
				}
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
	})
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		if _, _, err := n.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the caller's own end", err)
		}
		cancel()
	}
	if most.Load() > 2 {
		t.Errorf("%d dials at once, want one for each of the 2 connections for reads", most.Load())
	}
	within(t, time.Second, "Close", func() { _ = n.Close() })
}

// TestHurriedReaders: readers who never have the time that a connection takes do read in the end: what one has begun is there for the next.
func TestHurriedReaders(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) {
		c.Timeout = 10 * time.Second
		dialing(c, func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(300 * time.Millisecond) // a handshake of TLS, far away
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		})
	})
	eventually(t, "a read by somebody who has 100 ms", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _, err := n.Get(ctx, "k")
		return err == nil
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := n.Get(gone, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the caller's own end", err)
	}
	if _, _, err := n.Get(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}

// doubling is a connection over which, once, more comes than was asked for.
type doubling struct {
	net.Conn
	done atomic.Bool
}

func (c *doubling) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.HasPrefix(b[:n], []byte("$1\r\na\r\n")) && c.done.CompareAndSwap(false, true) {
		n += copy(b[n:], "$5\r\nwrong\r\n")
	}
	return n, err
}

// TestAnswersOfNobody: what a server sends beyond the answer is not the answer to the next read.
func TestAnswersOfNobody(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) {
		c.Timeout = 5 * time.Second
		dialing(c, func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &doubling{Conn: conn}, err
		})
	})
	mustSet(t, n, "a", "a")
	mustSet(t, n, "b", "b")
	for _, key := range []string{"a", "b", "a", "b"} {
		if v, _, err := n.Get(t.Context(), key); err != nil || string(v) != key {
			t.Errorf("%s is %q, %v", key, v, err)
		}
	}
}

// TestConnectionsAreAsOldAsConfigured: what the driver's options say of how long a connection may be idle, and live, holds for those of reads too.
func TestConnectionsAreAsOldAsConfigured(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(o *redis.Options)
		want int32
	}{
		"by default":  {func(*redis.Options) {}, 1},
		"idle":        {func(o *redis.Options) { o.ConnMaxIdleTime = 10 * time.Second }, 2},
		"idle, long":  {func(o *redis.Options) { o.ConnMaxIdleTime = time.Hour }, 1},
		"idle, ever":  {func(o *redis.Options) { o.ConnMaxIdleTime = -1 }, 1},
		"life":        {func(o *redis.Options) { o.ConnMaxLifetime = 10 * time.Second }, 2},
		"life, long":  {func(o *redis.Options) { o.ConnMaxLifetime = time.Hour }, 1},
		"life, short": {func(o *redis.Options) { o.ConnMaxLifetime = time.Second }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := miniredis.NewMiniRedis()
				var dials atomic.Int32
				n := newNode(t, "pipe:1", func(c *redisnode.Config) {
					c.Options = func(o *redis.Options) {
						tc.set(o)
						o.Dialer = func(context.Context, string, string) (net.Conn, error) {
							dials.Add(1)
							return m.Dial()
						}
					}
				})
				for _, wait := range []time.Duration{0, 2 * time.Second, 30 * time.Second} {
					time.Sleep(wait)
					if _, _, err := n.Get(t.Context(), "k"); err != nil {
						t.Error(err)
					}
				}
				if got := dials.Load(); got != tc.want {
					t.Errorf("%d connections for three reads, want %d", got, tc.want)
				}
				_ = n.Close()
				m.Close()
			})
		})
	}
}
