// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

func TestConfigIsChecked(t *testing.T) {
	bad := script("echo", "return 1")
	bad.SHA1 = strings.ToUpper(bad.SHA1)
	for want, cfg := range map[string]redisnode.Config{
		"ID is empty":               {Addr: "a:1"},
		`Addr of node "a" is empty`: {ID: "a"},
		`Timeout of node "a" is -1ns: must not be negative`: {ID: "a", Addr: "a:1", Timeout: -1},
		`PoolSize of node "a" is -1: must not be negative`:  {ID: "a", Addr: "a:1", PoolSize: -1},
		`Scripts[0].SHA1 of node "a" is`:                    {ID: "a", Addr: "a:1", Scripts: []redisnode.Script{bad}},
	} {
		n, err := redisnode.New(cfg)
		if n != nil || err == nil || !strings.HasPrefix(err.Error(), "redisnode: "+want) {
			t.Errorf("got %v, want redisnode: %s", err, want)
		}
	}
}

func TestInfoOfRedis(t *testing.T) {
	before := time.Now().Add(-time.Second)
	s, n := startNode(t, nil)
	if n.ID() != "cache-a" || n.Addr() != s.Addr() {
		t.Errorf("ID %q, Addr %q", n.ID(), n.Addr())
	}
	if got := n.Info(); got != (redisnode.Info{}) {
		t.Errorf("before the first connection: %+v", got)
	}
	if local := time.Now(); !n.Now(local).Equal(local) {
		t.Error("before the first connection the node's time is not the local one")
	}
	got, err := n.Probe(t.Context())
	if err != nil || got.Engine != redisnode.EngineRedis || !strings.Contains(got.Version, ".") || len(got.RunID) != 40 ||
		got.Role != redisnode.RolePrimary || got.WasReplica || got.Capabilities != (redisnode.Capabilities{Tracking: true, Lua: true}) {
		t.Errorf("%+v, %v", got, err)
	}
	// The server runs on this machine, so its clock is ours.
	if got.ClockOffset.Abs() > got.ClockError+time.Millisecond || got.ClockError <= 0 {
		t.Errorf("clock is off by %v ± %v", got.ClockOffset, got.ClockError)
	}
	if got.StartedAt.Before(before) || got.StartedAt.After(time.Now()) {
		t.Errorf("started at %v, want after %v", got.StartedAt, before)
	}
}

func TestInfoOfEmbedded(t *testing.T) {
	m := miniredis.RunT(t)
	n := newNode(t, m.Addr(), nil)
	got, err := n.Probe(t.Context())
	want := redisnode.Info{Engine: redisnode.EngineEmbedded, Capabilities: redisnode.Capabilities{Lua: true}, ClockOffset: got.ClockOffset, ClockError: got.ClockError}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	s := n.Session()
	m.Close()
	_, _, err = n.Get(t.Context(), "k")
	wantTrouble(t, err)
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, _, err = n.Get(t.Context(), "k"); err != nil || n.Session() != s {
		t.Errorf("after its restart: %v, a new session: %t", err, n.Session() != s)
	}
}

// The node's clock is an hour ahead, is then set back, and each time the estimate follows.
func TestClockOfTheNode(t *testing.T) {
	m := miniredis.RunT(t)
	n := newNode(t, m.Addr(), nil)
	for _, offset := range []time.Duration{time.Hour, -10 * time.Minute, 0} {
		m.SetTime(time.Now().Add(offset))
		info := mustProbe(t, n)
		local := time.Now()
		if d := n.Now(local).Sub(local) - offset; d.Abs() > time.Second {
			t.Errorf("offset is %v, want %v", d+offset, offset)
		}
		if d := info.ClockOffset - offset; d.Abs() > time.Second {
			t.Errorf("Info has offset %v, want %v", info.ClockOffset, offset)
		}
	}
}

// pipes makes a node that reaches m without a network, for use inside a bubble of fake time.
func pipes(tb testing.TB, m *miniredis.Miniredis) *redisnode.Node {
	tb.Helper()
	n, err := redisnode.New(redisnode.Config{ID: "cache-a", Addr: "pipe", Options: func(o *redis.Options) {
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return m.Dial() }
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// An hour of the health loop in fake time. It notices that the server's clock is set within a
// beat, keeps the last error while the server is gone, and leaves nothing running.
func TestRunInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		n := pipes(t, m)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- n.Run(ctx) }()
		synctest.Wait()
		if info := n.Info(); info.Engine != redisnode.EngineEmbedded || info.LastError != nil {
			t.Errorf("after the first beat: %+v", info)
		}
		time.Sleep(time.Hour)
		m.SetTime(time.Now().Add(time.Minute))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := n.Info().ClockOffset; got < 55*time.Second || got > 65*time.Second {
			t.Errorf("offset is %v, want about 1m", got)
		}
		m.SetError("LOADING soon")
		time.Sleep(time.Second)
		synctest.Wait()
		if err := n.Info().LastError; !redisnode.IsTrouble(err) {
			t.Errorf("LastError is %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		m.Close()
	})
}

func TestCloseEndsRun(t *testing.T) {
	n := newNode(t, miniredis.RunT(t).Addr(), nil)
	ended := make(chan error)
	go func() { ended <- n.Run(context.Background()) }()
	eventually(t, "the first beat", func() bool { return n.Info().Engine != "" })
	_ = n.Close()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Close while operations run and after a restart: they end, and neither goroutines nor connections
// stay behind.
func TestCloseLeavesNothing(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	clients := func() int { return strings.Count(s.Client().ClientList(t.Context()).Val(), "\n") }
	others, goroutines := clients(), runtime.NumGoroutine()

	n := newNode(t, s.Addr(), nil)
	mustProbe(t, n)
	s.Restart()
	others = min(others, clients())
	var wg sync.WaitGroup
	started := make(chan struct{}, 32)
	for range 32 {
		wg.Go(func() {
			for i := 0; ; i++ {
				if _, _, err := n.Get(t.Context(), "k"); errors.Is(err, redisnode.ErrClosed) {
					return
				} else if err != nil {
					t.Error(err)
				}
				if i == 0 {
					started <- struct{}{}
				}
			}
		})
	}
	for range 32 {
		<-started
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := n.Probe(t.Context()); !errors.Is(err, redisnode.ErrClosed) {
		t.Errorf("Probe of a closed node: %v", err)
	}
	eventually(t, "connections are gone", func() bool { return clients() <= others })
	eventually(t, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// Close waits for what is under way: here a dialer that does not care about its context.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		n, err := redisnode.New(redisnode.Config{ID: "cache-a", Addr: "pipe", Options: func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) { <-release; return nil, errors.New("too late") }
		}})
		if err != nil {
			t.Fatal(err)
		}
		got, closed := make(chan error, 1), make(chan struct{})
		go func() { _, _, err := n.Get(t.Context(), "k"); got <- err }()
		synctest.Wait()
		go func() { _ = n.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait")
		default:
		}
		close(release)
		<-closed
		if err := <-got; !errors.Is(err, redisnode.ErrClosed) {
			t.Errorf("the operation under way: %v", err)
		}
	})
}
