// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"crypto/sha1" //nolint:gosec // what EVALSHA wants
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

// newNode makes a node that is closed with the test. The timeout is long for a cache, because the
// machine that runs tests may be busy; what is tested is that operations end, not how soon.
func newNode(tb testing.TB, addr string, change func(*redisnode.Config)) *redisnode.Node {
	tb.Helper()
	cfg := redisnode.Config{ID: "cache-a", Addr: addr, Timeout: 500 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	n, err := redisnode.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = n.Close() })
	return n
}

func startNode(tb testing.TB, change func(*redisnode.Config)) (*redistest.Server, *redisnode.Node) {
	tb.Helper()
	s := redistest.Start(tb, redistest.Config{})
	return s, newNode(tb, s.Addr(), change)
}

func script(name, source string) redisnode.Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // what EVALSHA wants
	return redisnode.Script{Name: name, Source: source, SHA1: hex.EncodeToString(sum[:])}
}

// call converts as the client does.
func call(c invalidation.Call) redisnode.Call {
	return redisnode.Call{Script: redisnode.Script(c.Script), Keys: c.Keys, Args: c.Args}
}

func mustSet(tb testing.TB, n *redisnode.Node, key, value string) {
	tb.Helper()
	if err := n.Client().Set(tb.Context(), key, value, 0).Err(); err != nil {
		tb.Fatal(err)
	}
}

func mustProbe(tb testing.TB, n *redisnode.Node) redisnode.Info {
	tb.Helper()
	info, err := n.Probe(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

// wantTrouble checks that err blames the node and says which one.
func wantTrouble(tb testing.TB, err error) {
	tb.Helper()
	var e *redisnode.Error
	if !redisnode.IsTrouble(err) || !errors.As(err, &e) || e.Node != "cache-a" || e.Op == "" {
		tb.Errorf("got %v, want trouble with cache-a", err)
	}
}

// within fails the test if f takes longer than its bound, to which a busy machine may add a second.
func within(tb testing.TB, bound time.Duration, what string, f func()) {
	tb.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > bound+time.Second {
		tb.Errorf("%s took %v, want at most %v", what, took, bound)
	}
}

// eventually polls a condition.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within 10 s: %s", what)
		}
	}
}
