// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// happenings collects events.
type happenings struct {
	mu     sync.Mutex
	events []client.Event
}

func (h *happenings) add(e client.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// of is what happened to a node's state, as in "up-suspect", the latest last.
func (h *happenings) of(node string) (changes []string, latest client.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.Node == node && e.Kind == client.EventState {
			changes, latest = append(changes, e.From+"-"+e.To), e
		}
	}
	return changes, latest
}

// TestNodeStates: stats and events tell of them; while a node is down its keys are loaded without a wait, and what was owed to it is sent when it is up.
func TestNodeStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		heard := new(happenings)
		cfg := nodes.Config()
		cfg.OnEvent, cfg.OperationTimeout = heard.add, 0
		cl := open(t, cfg)
		src := newSource(map[string]string{"k": "v1"})
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, L1: client.L1Off, Load: src.load})
		want(t, c, "k", "v1", client.LayerSource)
		want(t, c, "k", "v1", client.LayerL2)
		state := func() string { return cl.Stats().Nodes[0].State }
		if s := cl.Stats().Nodes[0]; s.State != "up" || !s.StateSince.IsZero() {
			t.Errorf("at first %q since %v", s.State, s.StateSince)
		}
		for i, fault := range []func(){nodes.Node(0).Hang, nodes.Node(0).Down, func() { nodes.Node(0).Slow(200 * time.Millisecond) },
			func() { nodes.Node(0).Fail("LOADING Redis is loading the dataset in memory") }} {
			began := time.Now()
			fault()
			for state() != "down" {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("fault %d: down after %v", i, took)
			}
			if since := cl.Stats().Nodes[0].StateSince; since.Before(began) || since.After(time.Now()) {
				t.Errorf("down since %v", since)
			}
			began = time.Now()
			want(t, c, "k", "v1", client.LayerSource)
			if err := c.Invalidate(t.Context(), "k"); !client.NodesOnly(err) || !client.Unavailable(err) {
				t.Errorf("an invalidation: %v", err)
			}
			if got, err := c.GetMany(t.Context(), []string{"k"}); err != nil || got["k"] == "" {
				t.Errorf("GetMany: %v, %v", got, err)
			}
			if _, _, err := cl.Get(t.Context(), "raw"); !client.Unavailable(err) || !strings.Contains(err.Error(), "is down since") {
				t.Errorf("a raw read: %v", err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("fault %d: calls while it is down took %v", i, took)
			}
			time.Sleep(20 * time.Second) // so that the next fault is no flapping
			nodes.Node(0).Up()
			began = time.Now()
			for state() != "up" {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("fault %d: up after %v", i, took)
			}
			synctest.Wait()
			time.Sleep(time.Millisecond)
			if s := cl.Stats(); s.Owed > 0 {
				t.Errorf("fault %d: %d owed though it is up", i, s.Owed)
			}
			changes, e := heard.of("node-0")
			if !slices.Equal(changes[len(changes)-4:], []string{"up-suspect", "suspect-down", "down-recovering", "recovering-up"}) || e.Err != nil || e.At.IsZero() {
				t.Errorf("fault %d: %v, %+v", i, changes, e)
			}
			want(t, c, "k", "v1", client.LayerSource)
			want(t, c, "k", "v1", client.LayerL2)
			time.Sleep(20 * time.Second)
		}
	})
}

// TestDeadlineOfTheCaller: it is honoured within 5 ms on a node that is stopped, or cut off, by reads with a connection of their own and by those that share one.
func TestDeadlineOfTheCaller(t *testing.T) {
	for _, how := range []string{"stopped", "black-holed"} {
		t.Run(how, func(t *testing.T) {
			s := redistest.Start(t, redistest.Config{})
			p := redistest.StartProxy(t, s.Addr())
			cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: p.Addr()}}, OperationTimeout: 10 * time.Second})
			c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
				Load: func(context.Context, string) (string, error) { return "v", nil }})
			want(t, c, "k", "v", client.LayerSource)
			if how == "stopped" {
				s.Stop()
				defer s.Cont()
			} else {
				p.BlackHole()
			}
			var best []time.Duration
			for range 12 { // a busy machine may spoil some
				took := deadlines(t, c)
				if t.Logf("p50 %v, p99 %v, longest %v", took[len(took)/2], took[len(took)*99/100], took[len(took)-1]); best == nil || took[len(took)*99/100] < best[len(best)*99/100] {
					best = took
				}
				if best[len(best)*99/100] <= 25*time.Millisecond {
					return
				}
			}
			t.Errorf("p99 of a deadline of 20 ms is %v", best[len(best)*99/100])
		})
	}
}

// deadlines reads with a deadline of 20 ms, 20 callers at a time, and returns how long each took, in order.
func deadlines(t *testing.T, c *client.Cache[string]) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	for range 10 {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				began := time.Now()
				_, err := c.Get(ctx, fmt.Sprint("k", i))
				d := time.Since(began)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, d)
			})
		}
		wg.Wait()
	}
	slices.Sort(took)
	return took
}
