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

// TestEvalAgain: a script is left when the node's patience is over, and not before; then the next call is made, until the timeout is used up. The outcome of each that was left is
// told, once, before Close returns.
func TestEvalAgain(t *testing.T) {
	n, err := New(Config{ID: "a", Addr: redistest.Start(t, redistest.Config{}).Addr(), Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	type outcome struct {
		try   int
		reply any
		err   error
	}
	late := make(chan outcome, 100)
	eval := func(ctx context.Context, ms ...int) (try int, reply any, took time.Duration, err error) {
		began := time.Now()
		try, reply, err = n.Session().EvalAgain(ctx,
			func(try int) Call { return Call{Script: busy, Args: []any{ms[min(try, len(ms)-1)]}} },
			func(try int, reply any, err error) { late <- outcome{try, reply, err} })
		return try, reply, time.Since(began), err
	}
	told := func(what string, tries int) {
		t.Helper()
		open := make(map[outcome]bool) // they end in any order
		for try := range tries {
			open[outcome{try, "done", nil}] = true
		}
		for range tries {
			if o := <-late; !open[o] {
				t.Errorf("%s: what was left ended with %+v, want %v", what, o, open)
			} else {
				delete(open, o)
			}
		}
	}
	const long = 500 // ms
	if try, reply, took, err := eval(t.Context(), long); try != 0 || reply != "done" || err != nil || took < long*time.Millisecond {
		t.Errorf("a node whose replies are all alike: %d, %v, %v after %v", try, reply, err, took)
	}
	n.pace.most.Store(int64(100 * time.Millisecond)) // no heartbeat sets it anew: the node does not run
	if try, reply, _, err := eval(t.Context(), 0); try != 0 || reply != "done" || err != nil {
		t.Errorf("in time: %d, %v, %v", try, reply, err)
	}
	// The server does one thing at a time: the second has its answer when the first has, before its own patience, 200 ms, is over.
	if try, reply, took, err := eval(t.Context(), 150, 0); try != 1 || reply != "done" || err != nil || took < 150*time.Millisecond {
		t.Errorf("the first is late: try %d, %v, %v after %v", try, reply, err, took)
	}
	told("the first is late", 1)
	n.cfg.Timeout = 400 * time.Millisecond
	try, reply, took, err := eval(t.Context(), 2*long, 0) // 100, 200, 100 ms
	if e := (*Error)(nil); try != 2 || reply != nil || !errors.As(err, &e) || e.Node != "a" || !IsTimeout(err) || !errors.Is(err, os.ErrDeadlineExceeded) || took > 2*long*time.Millisecond {
		t.Errorf("all are late: try %d, %v, %v after %v", try, reply, err, took)
	}
	n.cfg.Timeout = 5 * time.Second
	told("all are late", 3)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, _, _, err := eval(ctx, long); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller leaves: %v", err)
	}
	told("the caller leaves", 1)
	if n.State() != Up || n.breaker.shut("GET") != nil {
		t.Errorf("the node is blamed: %v", n.State())
	}

	if _, err := n.Session().EvalImpatiently(t.Context(), Call{Script: busy, Args: []any{long}}); !IsTimeout(err) {
		t.Errorf("impatiently: %v", err)
	}
	_, _, _, _ = eval(ctx, long)
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if len(late) != 1 {
		t.Errorf("when Close has returned, %d outcomes of 1 were told", len(late))
	}
	if _, _, _, err := eval(t.Context(), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
