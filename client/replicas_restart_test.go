// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// swap is a dialer that leads to another server once it is told to: what a restart looks like to the client, at a moment that the test chooses.
type swap struct {
	mu    sync.Mutex
	from  string
	to    string // "": not yet
	conns []net.Conn
}

func (s *swap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if addr == s.from && s.to != "" {
		addr = s.to
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil && addr == s.from {
		s.conns = append(s.conns, conn)
	}
	return conn, err
}

// lead ends the connections there are.
func (s *swap) lead(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// TestReplicaIsRestartedUnderARead: a replica is restarted from an old snapshot, and the first command that it gets is the read of somebody who has found that it may be
// read, going by what the run before had. What it answers is not used: nobody knows what it has.
func TestReplicaIsRestartedUnderARead(t *testing.T) {
	for name, read := range map[string]func(c *client.Cache[string]) (string, error){
		"Get": func(c *client.Cache[string]) (string, error) { return c.Get(t.Context(), "k") },
		"GetMany": func(c *client.Cache[string]) (string, error) {
			m, err := c.GetMany(t.Context(), []string{"k", "l"})
			return m["k"], err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s swap
			r := startReplicated(t, 1, func(c *client.Config) {
				c.ReadFrom = client.ReadReplica
				s.from = c.Nodes[0].Replicas[0]
				c.Redis = func(_ ring.Node, o *redis.Options) { o.Dialer = s.dial }
			})
			c := r.cache(t, nil)
			if _, err := read(c); err != nil {
				t.Fatal(err)
			}
			old := redistest.Start(t, redistest.Config{})
			primary, snapshot := r.servers[0].Client(), old.Client()
			names, err := primary.Keys(t.Context(), "*").Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if dump, err := primary.Dump(t.Context(), name).Result(); err == nil {
					snapshot.Restore(t.Context(), name, time.Hour, dump)
				}
			}
			r.arrived(t)
			r.readable(t, 1)
			before := c.Stats().ReplicaHits
			if _, err := read(c); err != nil || c.Stats().ReplicaHits == before {
				t.Fatalf("the replica is not read: %v", err)
			}
			_, entry := c.Where("k")
			if n, err := primary.Del(t.Context(), entry).Result(); n != 1 || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			r.arrived(t)
			before, loads := c.Stats().ReplicaHits, r.loads.Load()
			s.lead(old.Addr())
			if _, err := read(c); err != nil || c.Stats().ReplicaHits != before || r.loads.Load() == loads {
				t.Errorf("%d reads were answered by what the restarted replica had from before, %d loads, %v", c.Stats().ReplicaHits-before, r.loads.Load()-loads, err)
			}
		})
	}
}
