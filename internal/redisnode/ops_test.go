// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

func onBoth(t *testing.T, change func(*redisnode.Config), test func(*testing.T, *redisnode.Node)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { test(t, newNode(t, miniredis.RunT(t).Addr(), change)) })
	t.Run("redis", func(t *testing.T) {
		_, n := startNode(t, change)
		test(t, n)
	})
}

var oddKeys = []string{"plain", "", "{a}b", "}{", "nul\x00nul", "cr\r\nlf", "\xff\xfe", "*3\r\n$3\r\nDEL", " "}

func TestGetAndMGet(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, n *redisnode.Node) {
		for _, key := range oddKeys {
			mustSet(t, n, key, "value of "+key)
		}
		mustSet(t, n, "empty", "")
		n.Client().RPush(t.Context(), "list", "x")

		for _, key := range oddKeys {
			if v, ok, err := n.Get(t.Context(), key); string(v) != "value of "+key || !ok || err != nil {
				t.Errorf("Get(%q) = %q, %t, %v", key, v, ok, err)
			}
		}
		if v, ok, err := n.Get(t.Context(), "empty"); v == nil || len(v) > 0 || !ok || err != nil {
			t.Errorf("an empty value is %#v, %t, %v", v, ok, err)
		}
		if v, ok, err := n.Get(t.Context(), "missing"); v != nil || ok || err != nil {
			t.Errorf("a missing value is %#v, %t, %v", v, ok, err)
		}
		var e *redisnode.Error
		if _, _, err := n.Get(t.Context(), "list"); !errors.As(err, &e) || redisnode.IsTrouble(err) {
			t.Errorf("a key of another type is %v, want an error that is not trouble", err)
		}

		got, err := n.MGet(t.Context(), append([]string{"missing", "empty", "list"}, oddKeys...))
		want := [][]byte{nil, {}, nil}
		for _, key := range oddKeys {
			want = append(want, []byte("value of "+key))
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("MGet = %q, %v\nwant   %q", got, err, want)
		}
		if got, err := n.MGet(t.Context(), nil); len(got) != 0 || err != nil {
			t.Errorf("MGet of nothing = %q, %v", got, err)
		}
	})
}

// What Get returns belongs to the caller: writing to it touches nobody else.
func TestBytesAreTheCallers(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, n *redisnode.Node) {
		mustSet(t, n, "k", "value")
		a, _, _ := n.Get(t.Context(), "k")
		many, _ := n.MGet(t.Context(), []string{"k", "k"})
		_ = append(a, "xxxxxxxx"...)
		_ = append(many[0], "xxxxxxxx"...)
		a[0], many[0][0] = 'X', 'X'
		if b, _, _ := n.Get(t.Context(), "k"); string(b) != "value" || string(many[1]) != "value" {
			t.Errorf("got %q and %q", b, many[1])
		}
	})
}

var (
	echo   = script("echo", "return ARGV[1]")
	none   = script("none", "return false")
	broken = script("broken", "return redis.call('GET', KEYS[1])")
	nested = script("nested", "return { 'a', false, 7 }")
)

func TestEval(t *testing.T) {
	load := func(c *redisnode.Config) { c.Scripts = []redisnode.Script{echo, none, nested} }
	onBoth(t, load, func(t *testing.T, n *redisnode.Node) {
		n.Client().RPush(t.Context(), "list", "x")
		calls := []redisnode.Call{
			{Script: echo, Args: []any{"\x00\r\n\xff"}},
			{Script: none},
			{Script: nested},
			{Script: broken, Keys: []string{"list"}}, // never loaded
			{Script: echo, Args: []any{int64(1<<62 + 1)}},
			{Script: echo, Args: []any{[]byte("bytes")}},
		}
		want := []any{"\x00\r\n\xff", nil, []any{"a", nil, int64(7)}, nil, "4611686018427387905", "bytes"}
		for _, flush := range []bool{false, true} {
			for i, c := range calls {
				if flush {
					n.Client().ScriptFlush(t.Context())
				}
				got, err := n.Eval(t.Context(), c)
				if !reflect.DeepEqual(got, want[i]) || (err != nil) != (i == 3) {
					t.Errorf("flush %t: Eval %d = %#v, %v; want %#v", flush, i, got, err, want[i])
				}
			}
			if flush {
				n.Client().ScriptFlush(t.Context())
			}
			for i, r := range n.EvalMany(t.Context(), calls) {
				if !reflect.DeepEqual(r.Reply, want[i]) || (r.Err != nil) != (i == 3) || redisnode.IsTrouble(r.Err) {
					t.Errorf("flush %t: EvalMany %d = %#v, %v; want %#v", flush, i, r.Reply, r.Err, want[i])
				}
			}
		}
		if got := n.EvalMany(t.Context(), nil); len(got) != 0 {
			t.Errorf("EvalMany of nothing = %v", got)
		}
	})
}

// Scripts are there after a connect: no call has to bring its text along.
func TestScriptsAreLoadedOnConnect(t *testing.T) {
	s, n := startNode(t, func(c *redisnode.Config) { c.Scripts = []redisnode.Script{echo, none} })
	for range 2 {
		mustProbe(t, n)
		if there, err := s.Client().ScriptExists(t.Context(), echo.SHA1, none.SHA1).Result(); err != nil || !there[0] || !there[1] {
			t.Errorf("scripts loaded: %v, %v", there, err)
		}
		s.Kill()
		s.Restart()
	}
}

// The caller's own deadline or cancellation comes back as it is, and does not blame the node.
func TestCallersContext(t *testing.T) {
	s, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	mustProbe(t, n)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := n.Get(ended, "k"); err != context.Canceled { //nolint:errorlint // exactly this
		t.Errorf("cancelled before: %v", err)
	}
	s.Stop()
	defer s.Cont()
	for _, what := range []string{"on an idle connection", "on a new connection"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		within(t, 20*time.Millisecond, what, func() {
			if _, err := n.MGet(ctx, []string{"k"}); err != context.DeadlineExceeded { //nolint:errorlint // exactly this
				t.Errorf("%s: %v, want the context's own error", what, err)
			}
		})
		cancel()
	}
	for i, r := range n.EvalMany(ended, []redisnode.Call{{Script: echo}, {Script: echo}}) {
		if r.Err != context.Canceled { //nolint:errorlint // exactly this
			t.Errorf("EvalMany %d: %v", i, r.Err)
		}
	}
}

// Error replies that say "this node must not be used" are trouble.
func TestReplicaIsReadOnly(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{})
	n := newNode(t, primary.Replica(t, redistest.Config{}).Addr(), nil)
	set := script("set", "return redis.call('SET', KEYS[1], 'v')")
	_, err := n.Eval(t.Context(), redisnode.Call{Script: set, Keys: []string{"k"}})
	wantTrouble(t, err)
	if info := n.Info(); info.Role != redisnode.RoleReplica || !info.WasReplica {
		t.Errorf("role is %q, was a replica: %t", info.Role, info.WasReplica)
	}
	if err := n.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if info := mustProbe(t, n); info.Role != redisnode.RolePrimary || !info.WasReplica {
		t.Errorf("after its promotion the role is %q, was a replica: %t", info.Role, info.WasReplica)
	}
}
