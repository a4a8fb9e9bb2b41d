// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

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
