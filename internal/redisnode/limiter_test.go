// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// wildLimiter panics where it is told to.
type wildLimiter struct{ allow, report atomic.Bool }

func (l *wildLimiter) Allow() error {
	if l.allow.Load() {
		panic("no more tokens")
	}
	return nil
}

func (l *wildLimiter) ReportResult(error) {
	if l.report.Load() {
		panic("no such counter")
	}
}

// TestLimiterThatPanics: it refuses, or is not heard; nothing is left behind that Close would wait for.
func TestLimiterThatPanics(t *testing.T) {
	l := new(wildLimiter)
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) {
		c.Timeout = 5 * time.Second
		c.Options = func(o *redis.Options) { o.Limiter = l }
	})
	ops := map[string]func() error{
		"GET":   func() error { _, _, err := n.Get(t.Context(), "k"); return err },
		"MGET":  func() error { _, err := n.MGet(t.Context(), []string{"k", "l"}); return err },
		"SET":   func() error { _, err := n.Do(t.Context(), redisnode.Command{"SET", "k", "v"}); return err },
		"PTTLs": func() error { return n.DoMany(t.Context(), []redisnode.Command{{"PTTL", "k"}, {"PTTL", "l"}})[1].Err },
	}
	for name, op := range ops {
		if err := op(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.allow.Store(true)
	for name, op := range ops {
		if err := op(); err == nil || !strings.Contains(err.Error(), "no more tokens") {
			t.Errorf("%s while Allow panics: %v", name, err)
		}
	}
	l.allow.Store(false)
	l.report.Store(true)
	for name, op := range ops {
		if err := op(); err != nil {
			t.Errorf("%s while ReportResult panics: %v", name, err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Close does not return")
	}
}
