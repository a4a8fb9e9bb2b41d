// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"crypto/sha1" //nolint:gosec // what EVALSHA wants
	"encoding/hex"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
)

// busy is a script that keeps the server busy for as many milliseconds as it is told, and then says so.
var busy = func() Script {
	const source = `
local function now() local t = redis.call('TIME'); return t[1] * 1000 + t[2] / 1000 end
local ends = now() + tonumber(ARGV[1])
repeat until now() >= ends
return 'done'`
	sum := sha1.Sum([]byte(source)) //nolint:gosec // what EVALSHA wants
	return Script{Name: "busy", Source: source, SHA1: hex.EncodeToString(sum[:])}
}()

// TestEvalImpatiently: a script is left when the node's patience is over, and not before; its outcome is told, once, to whoever left it, before Close returns.
func TestEvalImpatiently(t *testing.T) {
	n, err := New(Config{ID: "a", Addr: redistest.Start(t, redistest.Config{}).Addr(), Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	late := make(chan Result, 10)
	eval := func(ctx context.Context, ms int) (any, error, time.Duration) {
		began := time.Now()
		reply, err := n.Session().EvalImpatiently(ctx, Call{Script: busy, Args: []any{ms}}, func(reply any, err error) { late <- Result{reply, err} })
		return reply, err, time.Since(began)
	}
	const long = 500 // ms
	if reply, err, took := eval(t.Context(), long); reply != "done" || err != nil || took < long*time.Millisecond {
		t.Errorf("a node whose replies are all alike: %v, %v after %v", reply, err, took)
	}
	n.pace.most.Store(int64(20 * time.Millisecond)) // no heartbeat sets it anew: the node does not run
	if reply, err, _ := eval(t.Context(), 0); reply != "done" || err != nil {
		t.Errorf("in time: %v, %v", reply, err)
	}
	reply, err, took := eval(t.Context(), long)
	if e := (*Error)(nil); reply != nil || !errors.As(err, &e) || e.Node != "a" || !IsTimeout(err) || !errors.Is(err, os.ErrDeadlineExceeded) || took > long*time.Millisecond/2 {
		t.Errorf("late: %v, %v after %v", reply, err, took)
	}
	if r := <-late; r.Reply != "done" || r.Err != nil {
		t.Errorf("what was left ended with %v, %v", r.Reply, r.Err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err, _ := eval(ctx, long); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller leaves: %v", err)
	}
	if r := <-late; r.Reply != "done" || r.Err != nil {
		t.Errorf("what the caller left ended with %v, %v", r.Reply, r.Err)
	}
	if n.State() != Up || n.breaker.shut("GET") != nil {
		t.Errorf("the node is blamed: %v", n.State())
	}

	_, _, _ = eval(t.Context(), long)
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if len(late) != 1 {
		t.Errorf("when Close has returned, %d outcomes of 1 were told", len(late))
	}
	if _, err, _ := eval(t.Context(), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
