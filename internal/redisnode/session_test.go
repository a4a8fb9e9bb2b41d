// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

func withScripts(c *redisnode.Config) {
	for _, s := range invalidation.Scripts() {
		c.Scripts = append(c.Scripts, redisnode.Script(s))
	}
}

// The server is killed and comes back: the node finds a new session by itself, the old one is over.
func TestRestartMakesANewSession(t *testing.T) {
	var runs atomic.Int32
	s, n := startNode(t, func(c *redisnode.Config) {
		c.OnRun = func(prev, cur redisnode.Info) {
			if (prev.RunID == "") != (runs.Add(1) == 1) || cur.RunID == "" || cur.RunID == prev.RunID {
				t.Errorf("OnRun(%q, %q)", prev.RunID, cur.RunID)
			}
		}
	})
	mustSet(t, n, "k", "v")
	old, first := n.Session(), n.Info()

	s.Kill()
	s.Restart()
	if _, ok, err := n.Get(t.Context(), "k"); ok || err != nil {
		t.Errorf("first read of the new process: %t, %v, want a miss", ok, err)
	}
	if n.Session() == old || old.RunID() == n.Session().RunID() || n.Info().RunID != n.Session().RunID() {
		t.Errorf("sessions %q and %q, info %q", old.RunID(), n.Session().RunID(), n.Info().RunID)
	}
	if !n.Info().StartedAt.After(first.StartedAt) {
		t.Errorf("started at %v, before that at %v", n.Info().StartedAt, first.StartedAt)
	}
	if got := runs.Load(); got != 2 {
		t.Errorf("OnRun was called %d times, want 2", got)
	}
	_, err := old.Eval(t.Context(), redisnode.Call{Script: echo, Args: []any{"x"}})
	if !errors.Is(err, redisnode.ErrRunChanged) || redisnode.IsTrouble(err) {
		t.Errorf("the old session answered %v", err)
	}
	if _, _, err = old.Get(t.Context(), "k"); !errors.Is(err, redisnode.ErrRunChanged) {
		t.Errorf("the old session read: %v", err)
	}
	if _, err = old.MGet(t.Context(), []string{"k"}); !errors.Is(err, redisnode.ErrRunChanged) {
		t.Errorf("the old session read: %v", err)
	}
	if r := old.EvalMany(t.Context(), []redisnode.Call{{Script: echo}}); !errors.Is(r[0].Err, redisnode.ErrRunChanged) {
		t.Errorf("the old session answered %v", r)
	}
	if v, err := n.Eval(t.Context(), redisnode.Call{Script: echo, Args: []any{"x"}}); v != "x" || err != nil {
		t.Errorf("the node answered %v, %v", v, err)
	}
}

// A snapshot brings the lease of a dead process back, and an invalidation that came after the
// snapshot is undone. The reader's fill must not go through, although the token is there.
func TestSnapshotBringsALeaseBack(t *testing.T) {
	s := redistest.Start(t, redistest.Config{Persist: true})
	n := newNode(t, s.Addr(), withScripts)
	k := invalidation.Keys{Data: "d", Lease: "l", Mark: "m"}
	old := n.Session()
	reply, err := old.Eval(t.Context(), call(invalidation.Lease(k, "reader", invalidation.LeaseMiss, time.Minute)))
	if r, perr := invalidation.ParseLease(reply); err != nil || perr != nil || r.Status != invalidation.Granted {
		t.Fatal(reply, err, perr)
	}
	if err := s.Client().Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Eval(t.Context(), call(invalidation.Invalidate(k, 0, time.Second, 0))); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Restart()
	if v := s.Client().Get(t.Context(), k.Lease).Val(); v != "treader" {
		t.Fatalf("the lease did not come back (%q): this test tests nothing", v)
	}

	fill := call(invalidation.Fill(k, invalidation.Filling{Token: "reader", Value: []byte("stale"), TTL: time.Minute}))
	if _, err := old.Eval(t.Context(), fill); !errors.Is(err, redisnode.ErrRunChanged) {
		t.Errorf("the fill: %v, want ErrRunChanged", err)
	}
	if r := old.EvalMany(t.Context(), []redisnode.Call{fill}); !errors.Is(r[0].Err, redisnode.ErrRunChanged) {
		t.Errorf("the fill in a pipeline: %v, want ErrRunChanged", r[0].Err)
	}
	if there := s.Client().Exists(t.Context(), k.Data).Val(); there != 0 {
		t.Error("a stale value is there")
	}
	// Only the session stood in its way: any other connection would have carried it.
	reply, err = n.Eval(t.Context(), fill)
	if o, perr := invalidation.ParseFill(reply); err != nil || perr != nil || o != invalidation.Stored {
		t.Errorf("the same fill on the new session: %v, %v", o, err)
	}
}

// After many refused dials the driver would try only once a second. The first call after the
// server is back must get through.
func TestNoWaitingAfterManyFailures(t *testing.T) {
	s, n := startNode(t, func(c *redisnode.Config) { c.PoolSize = 2; c.Timeout = time.Second })
	mustProbe(t, n)
	s.Kill()
	for i := range 50 {
		_, _, err := n.Get(t.Context(), "k")
		if wantTrouble(t, err); redisnode.IsTimeout(err) {
			t.Fatalf("call %d timed out: %v", i, err)
		}
	}
	s.Restart()
	start := time.Now()
	if _, _, err := n.Get(t.Context(), "k"); err != nil {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// gate is a dialer that leads to one of several servers under one address.
type gate struct {
	addr  atomic.Pointer[string]
	sends atomic.Int64 // over all connections
}

func (g *gate) to(addr string) { g.addr.Store(&addr) }

func (g *gate) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, *g.addr.Load())
	return counted{conn, &g.sends}, err
}

type counted struct {
	net.Conn
	sends *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	c.sends.Add(1)
	return c.Conn.Write(b)
}

// The address moves to another server while the old one lives on and an operation is under way
// there. That operation ends in peace; nothing new goes to the old server.
func TestAddressMoves(t *testing.T) {
	servers := redistest.StartNodes(t, 2)
	var g gate
	g.to(servers[0].Addr())
	n := newNode(t, "cache-a.example:6379", func(c *redisnode.Config) {
		c.Timeout = 30 * time.Second
		c.Options = func(o *redis.Options) { o.Dialer = g.dial }
	})
	mustSet(t, n, "k", "old server")
	old := n.Session()

	oldClient := n.Client()
	servers[0].Stop()
	before, pending := g.sends.Load(), make(chan string)
	go func() {
		v, _, err := old.Get(t.Context(), "k")
		pending <- fmt.Sprintf("%s, %v", v, err)
	}()
	eventually(t, "the read is under way", func() bool { return g.sends.Load() > before })

	g.to(servers[1].Addr())
	if _, ok, err := n.Get(t.Context(), "k"); ok || err != nil {
		t.Errorf("read on the new server: %t, %v, want a miss", ok, err)
	}
	if _, _, err := old.Get(t.Context(), "k"); !errors.Is(err, redisnode.ErrRunChanged) {
		t.Errorf("the old session reads on: %v", err)
	}
	servers[0].Cont()
	if got := <-pending; got != "old server, <nil>" {
		t.Errorf("the operation under way ended with %s", got)
	}
	eventually(t, "the old client is closed", func() bool {
		return errors.Is(oldClient.Ping(t.Context()).Err(), redis.ErrClosed)
	})
}

// A session never reaches another process, whatever happens around it: the server itself says
// which run answered. Also everything at once for the race detector.
func TestSessionNeverMeetsAnotherRun(t *testing.T) {
	whoami := script("whoami", "return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')")
	s, n := startNode(t, func(c *redisnode.Config) { c.Scripts = []redisnode.Script{whoami}; c.PoolSize = 4 })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var answered, refused atomic.Int64
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				session := n.Session()
				for range 5 { // a lease and a fill would be two
					run, err := session.Eval(ctx, redisnode.Call{Script: whoami})
					switch {
					case err == nil && run != session.RunID():
						t.Errorf("session of run %q was answered by run %q", session.RunID(), run)
					case err == nil:
						answered.Add(1)
					case errors.Is(err, redisnode.ErrRunChanged):
						refused.Add(1)
					case !redisnode.IsTrouble(err) && ctx.Err() == nil:
						t.Errorf("unexpected error: %v", err)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _ = n.Probe(ctx)
			_ = n.Info()
			_ = n.Now(time.Now())
		}
	})
	for range 5 {
		before := answered.Load()
		eventually(t, "calls are answered", func() bool { return answered.Load() > before+100 })
		s.Kill()
		s.Restart()
	}
	cancel()
	wg.Wait()
	t.Logf("%d answered, %d refused because the run had changed", answered.Load(), refused.Load())
	if refused.Load() == 0 {
		t.Error("no session was used across a restart: this test tests nothing")
	}
}
