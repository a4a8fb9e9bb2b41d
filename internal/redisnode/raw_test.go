// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"math"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
)

func TestDoAndDoMany(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, n *redisnode.Node) {
		ctx := t.Context()
		if r, err := n.Do(ctx, redisnode.Command{"SET", "k", []byte("\x00\r\n"), "PX", int64(60_000)}); r != "OK" || err != nil {
			t.Errorf("SET: %v, %v", r, err)
		}
		if r, err := n.Do(ctx, redisnode.Command{"SET", "k", "other", "NX"}); r != nil || err != nil {
			t.Errorf("a nil reply is %v, %v", r, err)
		}
		if ms, err := n.AskInt(ctx, redisnode.Command{"PTTL", "k"}); ms < 1 || ms > 60_000 || err != nil {
			t.Errorf("PTTL: %d, %v", ms, err)
		}
		if _, err := n.DoInt(ctx, redisnode.Command{"GET", "k"}); err == nil || redisnode.IsRefusal(err) {
			t.Errorf("a reply that is no integer: %v", err)
		}
		got := n.DoMany(ctx, []redisnode.Command{{"RPUSH", "list", "x"}, {"GET", "list"}, {"GET", "none"}, {"GET", "k"}})
		if got[0].Reply != int64(1) || got[2] != (redisnode.Result{}) || !reflect.DeepEqual(got[3], redisnode.Result{Reply: "\x00\r\n"}) {
			t.Errorf("DoMany: %v", got)
		}
		if err := got[1].Err; !redisnode.IsRefusal(err) || !redisnode.IsWrongType(err) || redisnode.IsTrouble(err) {
			t.Errorf("a list read as a string: %v", err)
		}
		if got := n.DoMany(ctx, nil); len(got) != 0 {
			t.Errorf("DoMany of nothing: %v", got)
		}
	})
}

func TestIncrIsExactAndExpires(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, n *redisnode.Node) {
		ctx := t.Context()
		for _, step := range []struct{ by, want int64 }{{1<<53 - 1, 1<<53 - 1}, {1, 1 << 53}, {1, 1<<53 + 1}, {math.MaxInt64 - 1<<53 - 1, math.MaxInt64}, {-math.MaxInt64, 0}, {-7, -7}} {
			if got, err := n.Incr(ctx, "c", step.by, time.Minute); got != step.want || err != nil {
				t.Errorf("Incr by %d: %d, %v; want %d", step.by, got, err, step.want)
			}
		}
		if ms, err := n.AskInt(ctx, redisnode.Command{"PTTL", "c"}); ms < 1 || ms > 60_000 || err != nil {
			t.Errorf("PTTL of a new counter: %d, %v", ms, err)
		}
		mustSet(t, n, "old", "5") // no expiry: it keeps what it has
		if got, err := n.Incr(ctx, "old", 1, time.Minute); got != 6 || err != nil {
			t.Errorf("Incr: %d, %v", got, err)
		}
		if ms, err := n.AskInt(ctx, redisnode.Command{"PTTL", "old"}); ms != -1 || err != nil {
			t.Errorf("PTTL of an old counter: %d, %v, want -1", ms, err)
		}
		mustSet(t, n, "text", "five")
		mustSet(t, n, "full", "9223372036854775807")
		for _, key := range []string{"text", "full"} {
			if got, err := n.Incr(ctx, key, 1, time.Minute); !redisnode.IsRefusal(err) || got != 0 {
				t.Errorf("Incr of %q: %d, %v, want a refusal", key, got, err)
			} else if redisnode.IsNoInteger(err) != (key == "text") || strings.Contains(err.Error(), "script") {
				t.Errorf("Incr of %q: %v must say what is there, and nothing of our script", key, err)
			}
		}
	})
}

// TestDeadConnectionsAndCommands: a read is sent again on a connection that turns out to be dead; a write is not, nobody knows whether it was done.
func TestDeadConnectionsAndCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		var mu sync.Mutex
		var open []net.Conn
		n := newNode(t, "pipe:1", func(c *redisnode.Config) {
			c.Options = func(o *redis.Options) {
				o.Dialer = func(context.Context, string, string) (net.Conn, error) {
					conn, err := m.Dial()
					mu.Lock()
					defer mu.Unlock()
					open = append(open, conn)
					return conn, err
				}
			}
		})
		cut := func() {
			t.Helper()
			if _, err := n.AskInt(t.Context(), redisnode.Command{"PTTL", "k"}); err != nil { // there is a connection
				t.Fatal(err)
			}
			for _, conn := range open {
				_ = conn.Close()
			}
		}
		cut()
		if _, err := n.AskInt(t.Context(), redisnode.Command{"PTTL", "k"}); err != nil {
			t.Errorf("a read: %v", err)
		}
		cut()
		_, err := n.Do(t.Context(), redisnode.Command{"SET", "k", "v"})
		wantTrouble(t, err)
		cut()
		_, err = n.Incr(t.Context(), "c", 1, time.Minute)
		wantTrouble(t, err)
		cut()
		wantTrouble(t, n.DoMany(t.Context(), []redisnode.Command{{"SET", "k", "v"}})[0].Err)
		_ = n.Close()
		m.Close()
	})
}

// TestCommandsOfANewRun: a command that finds another run of the server was not sent, so it goes to the next session, writes too.
func TestCommandsOfANewRun(t *testing.T) {
	s, n := startNode(t, nil)
	for i, do := range []func() error{
		func() error { _, err := n.Do(t.Context(), redisnode.Command{"SET", "k", "v"}); return err },
		func() error {
			return n.DoMany(t.Context(), []redisnode.Command{{"SET", "k", "v"}, {"SET", "l", "v"}})[1].Err
		},
		func() error { _, err := n.AskInt(t.Context(), redisnode.Command{"PTTL", "k"}); return err },
		func() error { _, err := n.Incr(t.Context(), "c", 1, time.Minute); return err },
	} {
		mustProbe(t, n)
		old := n.Session()
		s.Kill()
		s.Restart()
		if err := do(); err != nil {
			t.Errorf("command %d after a restart: %v", i, err)
		}
		if n.Session() == old {
			t.Errorf("command %d: the session is the same: this test tests nothing", i)
		}
		if r := old.DoMany(t.Context(), []redisnode.Command{{"SET", "k", "v"}}); r[0].Err == nil {
			t.Errorf("command %d: the old session took a command", i)
		}
	}
}

// TestCommandsToAServerThatHangs end with its timeout.
func TestCommandsToAServerThatHangs(t *testing.T) {
	const timeout = 100 * time.Millisecond
	s, n := startNode(t, func(c *redisnode.Config) { c.Timeout = timeout })
	mustProbe(t, n)
	s.Stop()
	defer s.Cont()
	within(t, timeout, "Do", func() { _, err := n.Do(t.Context(), redisnode.Command{"SET", "k", "v"}); wantTrouble(t, err) })
	within(t, timeout, "DoMany", func() {
		wantTrouble(t, n.DoMany(t.Context(), []redisnode.Command{{"SET", "k", "v"}, {"SET", "l", "v"}})[1].Err)
	})
	within(t, timeout, "Incr", func() { _, err := n.Incr(t.Context(), "c", 1, time.Minute); wantTrouble(t, err) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := n.AskInt(ctx, redisnode.Command{"PTTL", "k"}); err != context.DeadlineExceeded { //nolint:errorlint // exactly this
		t.Errorf("AskInt: %v, want the caller's own deadline", err)
	}
}
