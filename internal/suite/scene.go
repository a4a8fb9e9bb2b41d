// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/ring"
)

// patience is how long a behaviour waits for what must come. Nothing takes as long on an idle machine.
const patience = 20 * time.Second

// leaseTTL is the lifetime of the leases of plain caches.
const leaseTTL = 30 * time.Second

// scene is what a behaviour works on: the servers, and what it makes on them, which ends with the test.
type scene struct {
	*testing.T
	engine  Engine
	servers []Server
	raws    map[int]*redis.Client
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// until polls for what must come to be.
func (s *scene) until(what string, reached func() bool) {
	s.Helper()
	for deadline := time.Now().Add(patience); !reached(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// config reaches the servers as node-0, node-1, ... The timeout is longer than the default because a busy machine is not what is tested.
func (s *scene) config(hooks ...func(o *redis.Options)) client.Config {
	cfg := client.Config{OperationTimeout: patience}
	byID := make(map[string]Server)
	for i, srv := range s.servers {
		n := ring.Node{ID: fmt.Sprintf("node-%d", i), Addr: srv.Addr}
		cfg.Nodes, byID[n.ID] = append(cfg.Nodes, n), srv
	}
	cfg.Redis = func(n ring.Node, o *redis.Options) {
		if dial := byID[n.ID].Dial; dial != nil {
			o.Dialer = dial
		}
		for _, hook := range hooks {
			hook(o)
		}
	}
	return cfg
}

// many is n, or less where the engine is slow.
func (s *scene) many(n int) int {
	if s.engine.SlowScripts {
		return n / 5
	}
	return n
}

// client makes a client that ends with the test.
func (s *scene) client(cfg client.Config) *client.Client {
	s.Helper()
	cl, err := client.New(s.Context(), cfg)
	s.must(err)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := cl.Close(ctx); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return cl
}

// open makes a cache on a client of its own: two of them are two processes, as far as the nodes can tell.
func open[V any](s *scene, cfg client.CacheConfig[V]) *client.Cache[V] {
	s.Helper()
	return on(s, s.client(s.config()), cfg)
}

// on makes a cache on a client.
func on[V any](s *scene, cl *client.Client, cfg client.CacheConfig[V]) *client.Cache[V] {
	s.Helper()
	c, err := client.NewCache(cl, cfg)
	s.must(err)
	return c
}

// plain is a configuration without chance: no jitter, no early refresh, no copies in the process, and loads and leases that a busy machine does not outlast.
func plain[V any](load func(ctx context.Context, key string) (V, error)) client.CacheConfig[V] {
	return client.CacheConfig[V]{
		Name: "x", TTL: time.Minute, NoJitter: true, NoEarlyRefresh: true, L1: client.L1Off, Load: load,
		LoadTimeout: patience, LeaseTTL: leaseTTL,
	}
}

// raw is a driver's client of the i-th server, to look at it and to disturb it.
func (s *scene) raw(i int) *redis.Client {
	if s.raws[i] == nil {
		s.fresh(i)
	}
	return s.raws[i]
}

// fresh is raw with new connections, for a server that was restarted.
func (s *scene) fresh(i int) *redis.Client {
	if s.raws == nil {
		s.raws = make(map[int]*redis.Client)
	}
	o := &redis.Options{
		Addr: s.servers[i].Addr, Protocol: 2, MaxRetries: -1, DisableIdentity: true, ReadTimeout: patience, WriteTimeout: patience,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if dial := s.servers[i].Dial; dial != nil {
		o.Dialer = dial
	}
	rdb := redis.NewClient(o)
	s.Cleanup(func() { _ = rdb.Close() }) // nothing was written that a Close could lose
	s.raws[i] = rdb
	return rdb
}

// do runs a command on the i-th server.
func (s *scene) do(i int, args ...any) any {
	s.Helper()
	v, err := s.raw(i).Do(s.Context(), args...).Result()
	if err != nil {
		s.Fatalf("%v: %v", args, err)
	}
	return v
}

// names are all names on the i-th server but those of whole caches (their generations and tag logs), which every cache has and which stay.
func (s *scene) names(i int) (names []string) {
	s.Helper()
	all, err := s.raw(i).Keys(s.Context(), "*").Result()
	s.must(err)
	for _, n := range all {
		if !strings.HasPrefix(n, "~g:") && !strings.HasPrefix(n, "~t:") {
			names = append(names, n)
		}
	}
	return names
}

// empty: no entry, lease or mark of any key is left on any server.
func (s *scene) empty(when string) {
	s.Helper()
	for i := range s.servers {
		if names := s.names(i); len(names) > 0 {
			s.Errorf("%s: node-%d has %.200q", when, i, names)
		}
	}
}

// place is where a key lives: its node and the names of what is there.
type place struct {
	s                 *scene
	node              *redis.Client
	data, lease, mark string
}

func where[V any](s *scene, c *client.Cache[V], key string) place {
	s.Helper()
	id, name := c.Where(key)
	var i int
	if _, err := fmt.Sscanf(id, "node-%d", &i); err != nil {
		s.Fatal(err)
	}
	return place{s, s.raw(i), name, "~l:" + name, "~m:" + name}
}

// has says whether the node stores something under a name.
func (p place) has(name string) bool {
	p.s.Helper()
	n, err := p.node.Exists(p.s.Context(), name).Result()
	p.s.must(err)
	return n > 0
}

// ttl is what the node still gives a name to live; negative if it has none, or is not there.
func (p place) ttl(name string) time.Duration {
	p.s.Helper()
	d, err := p.node.PTTL(p.s.Context(), name).Result()
	p.s.must(err)
	return d
}

// plant puts somebody else's lease there.
func (p place) plant(ttl time.Duration) {
	p.s.Helper()
	p.s.must(p.node.Set(p.s.Context(), p.lease, "tsomebody", ttl).Err())
}
