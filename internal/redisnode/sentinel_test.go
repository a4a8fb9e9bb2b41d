// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// TestAskSentinels: all at once, so that one that is silent, one that is dead and one with another password delay nobody who is well.
func TestAskSentinels(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{})
	kit := redistest.StartSentinels(t, redistest.SentinelConfig{Primaries: map[string]*redistest.Server{"shelf-a": primary}, Password: "secret"})
	kit.Stop(0)
	kit.Kill(1)
	s := redisnode.NewSentinels(redisnode.SentinelConfig{Addrs: kit.Addrs(), Password: "secret"})
	defer s.Close()
	began := time.Now()
	var firstAfter time.Duration
	failed := map[string]bool{}
	for c := range s.Ask(t.Context(), "shelf-a") {
		if c.Err != nil {
			failed[c.Sentinel] = true
			continue
		}
		firstAfter = time.Since(began)
		if c.Addr != primary.Addr() || c.Sentinel != kit.Addrs()[2] {
			t.Errorf("%+v", c)
		}
	}
	if firstAfter == 0 || firstAfter > 400*time.Millisecond {
		t.Errorf("the good one answered after %v", firstAfter)
	}
	if took := time.Since(began); took > 3*time.Second || len(failed) != 2 {
		t.Errorf("%v failed, after %v", failed, took)
	}
	for n := range s.Names(t.Context()) {
		if n.Err == nil && !slices.Equal(n.Names, []string{"shelf-a"}) {
			t.Errorf("%+v", n)
		}
	}
	for c := range s.Ask(t.Context(), "another") {
		if c.Sentinel == kit.Addrs()[2] && (c.Addr != "" || c.Err != nil) {
			t.Errorf("of a name that nobody knows: %+v", c)
		}
	}
	wrong := redisnode.NewSentinels(redisnode.SentinelConfig{Addrs: kit.Addrs()[2:], Password: "wrong"})
	defer wrong.Close()
	for c := range wrong.Ask(t.Context(), "shelf-a") {
		if c.Err == nil {
			t.Errorf("with a wrong password: %+v", c)
		}
	}
}

// TestSentinelNews: what is published comes from every Sentinel, also from one that was silent for a while: the driver would wait for it for ever. Nothing is left behind.
func TestSentinelNews(t *testing.T) {
	servers := redistest.StartReplicated(t, 1)
	kit := redistest.StartSentinels(t, redistest.SentinelConfig{Primaries: map[string]*redistest.Server{"shelf-a": servers[0]}})
	line := redistest.StartProxy(t, kit.Addrs()[0])
	goroutines := runtime.NumGoroutine()
	addrs := append([]string{line.Addr()}, kit.Addrs()[1:]...)
	s := redisnode.NewSentinels(redisnode.SentinelConfig{Addrs: addrs})
	var mu sync.Mutex
	begun, switched := map[string]int{}, map[string]string{}
	ctx, stop := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() {
		s.Run(ctx, func(n redisnode.News) {
			mu.Lock()
			defer mu.Unlock()
			if n.Name == "" {
				begun[n.Sentinel]++
			}
			if n.Addr != "" {
				switched[n.Sentinel] = n.Addr
			}
		})
	})
	count := func(of func() int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return of() == 3 }
	}
	eventually(t, "three subscriptions", count(func() int { return len(begun) }))
	before := line.Accepted()
	line.BlackHole()
	eventually(t, "the silent subscription is given up", func() bool { return line.Accepted() > before })
	line.Heal()
	eventually(t, "a new subscription", func() bool { mu.Lock(); defer mu.Unlock(); return begun[line.Addr()] > 1 })
	kit.Failover("shelf-a")
	eventually(t, "all have told of the new primary", count(func() int {
		n := 0
		for _, addr := range switched {
			if addr == servers[1].Addr() {
				n++
			}
		}
		return n
	}))
	stop()
	loop.Wait()
	s.Close()
	eventually(t, "goroutines are gone", func() bool { line.Reset(); return runtime.NumGoroutine() <= goroutines })
}
