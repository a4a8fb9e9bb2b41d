// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// TestRepliesAreTheDrivers: each reply of a server comes in the types that the driver gives.
func TestRepliesAreTheDrivers(t *testing.T) {
	_, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	var commands []redisnode.Command
	for _, lua := range []string{
		"return 'text'", "return ARGV", "return ''", "return false", "return true", "return 7", "return {}", "return {1, 'a', {false, {}}, {err = 'inside'}}",
		"return redis.status_reply('FINE')", "return redis.error_reply('WRONG so it is')", "return redis.call('LPUSH', 'text', 'x')",
		"redis.setresp(3); return true", "redis.setresp(3); return {double = 1.5}", "redis.setresp(3); return {double = 1/0}", "redis.setresp(3); return {map = {a = 1}}",
		"redis.setresp(3); return {set = {a = true}}", "redis.setresp(3); return {big_number = '1234567890123456789012345'}",
		"redis.setresp(3); return {verbatim_string = {string = 'so', format = 'txt'}}", "redis.setresp(3); return redis.call('HGETALL', 'hash')",
	} {
		commands = append(commands, redisnode.Command{"EVAL", lua, 0, "a", []byte("b"), 1, int32(-2), uint32(1 << 31), int64(math.MinInt64), uint64(math.MaxUint64), 0.1, 1e300, -2.0, math.Inf(1)})
	}
	n.Client().HSet(t.Context(), "hash", "field", "value")
	n.Client().SAdd(t.Context(), "set", "a")
	n.Client().ZAdd(t.Context(), "sorted", redis.Z{Score: 2.5, Member: "m"})
	mustSet(t, n, "text", strings.Repeat("long", 20_000))
	commands = append(commands, []redisnode.Command{
		{"GET", "text"}, {"GET", "missing"}, {"GET", "hash"}, {"HGETALL", "hash"}, {"HGETALL", "missing"}, {"SMEMBERS", "set"}, {"ZSCORE", "sorted", "m"},
		{"ZRANGE", "sorted", 0, -1, "WITHSCORES"}, {"CONFIG", "GET", "maxmemory"}, {"LRANGE", "missing", 0, -1}, {"BLPOP", "missing", "0.001"}, {"TYPE", "set"},
		{"LATENCY", "DOCTOR"}, {"COMMAND", "INFO", "get", "none"}, {"NOSUCH"}, {"GETRANGE", []byte("text"), uint64(1), 3},
		{"GETRANGE", "text", int64(-5), "-2"},
	}...)
	for _, c := range commands {
		want, wantErr := n.Client().Do(t.Context(), c...).Result()
		if wantErr == redis.Nil { //nolint:errorlint // exactly this
			wantErr = nil
		}
		one, err := n.Do(t.Context(), c)
		check := func(got any, err error) {
			t.Helper()
			if plain(got) != plain(want) || reflect.TypeOf(got) != reflect.TypeOf(want) {
				t.Errorf("%q: %#v, and from the driver %#v", c, got, want)
			}
			if (err == nil) != (wantErr == nil) || err != nil && (!strings.HasSuffix(err.Error(), wantErr.Error()) || !redis.HasErrorPrefix(err, strings.Fields(wantErr.Error())[0]) && !strings.HasPrefix(wantErr.Error(), "ERR ")) {
				t.Errorf("%q: %v, and from the driver %v", c, err, wantErr)
			}
		}
		check(one, err)
		for _, r := range n.DoMany(t.Context(), []redisnode.Command{c}) {
			check(r.Reply, r.Err)
		}
	}
}

// plain shows a reply with its types, in which two of the same kind are the same.
func plain(v any) string {
	switch v := v.(type) {
	case error:
		return "error " + v.Error()
	case []any:
		var parts []string
		for _, part := range v {
			parts = append(parts, plain(part))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprintf("%T %v", v, v)
}

// TestConnectionsInAll: reads, scripts, other commands and the driver's client together have no more than PoolSize, and who does one thing at a time has one.
func TestConnectionsInAll(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	for _, size := range []int{1, 2, 3, 4, 6, 16} {
		p := redistest.StartProxy(t, s.Addr())
		n := newNode(t, p.Addr(), func(c *redisnode.Config) { c.PoolSize, c.Timeout = size, 30*time.Second })
		ctx := t.Context()
		ops := []func() error{
			func() error { _, err := n.MGet(ctx, []string{"k"}); return err },
			func() error { _, err := n.Eval(ctx, redisnode.Call{Script: echo, Args: []any{"x"}}); return err },
			func() error { return n.EvalMany(ctx, []redisnode.Call{{Script: echo, Args: []any{"x"}}})[0].Err },
			func() error { _, err := n.Do(ctx, redisnode.Command{"PTTL", "k"}); return err },
			func() error { return n.DoMany(ctx, []redisnode.Command{{"PTTL", "k"}})[0].Err },
		}
		for _, op := range ops {
			if err := op(); err != nil {
				t.Error(err)
			}
		}
		if got := p.Accepted(); got != 1 {
			t.Errorf("PoolSize %d: %d connections for one command after the other, want 1", size, got)
		}
		p.ToClient().Delay(10*time.Millisecond, 0)
		ops = append(ops, func() error { return n.Client().Ping(ctx).Err() })
		var crowd sync.WaitGroup
		for range 12 {
			for _, op := range ops {
				crowd.Go(func() {
					if err := op(); err != nil {
						t.Error(err)
					}
				})
			}
		}
		crowd.Wait()
		if got := p.Accepted(); got > max(2, size) || got <= size/2 {
			t.Errorf("PoolSize %d: %d connections for a crowd", size, got)
		}
	}
}

// TestReadsDoNotWaitForTheRest: where commands take all connections that they may have, reads have theirs.
func TestReadsDoNotWaitForTheRest(t *testing.T) {
	s, n := startNode(t, func(c *redisnode.Config) { c.PoolSize, c.Timeout = 4, 10*time.Second })
	mustSet(t, n, "k", "v")
	var crowd sync.WaitGroup
	for range 10 {
		crowd.Go(func() {
			if _, err := n.Do(t.Context(), redisnode.Command{"BLPOP", "list", 0}); err != nil { // waits, as a slow script would
				t.Error(err)
			}
		})
	}
	eventually(t, "a command waits", func() bool {
		reply, err := s.Do(t.Context(), "INFO", "clients")
		return err == nil && strings.Contains(fmt.Sprint(reply), "blocked_clients:1")
	})
	within(t, time.Second, "a read", func() {
		if v, _, err := n.Get(t.Context(), "k"); err != nil || string(v) != "v" {
			t.Errorf("%q, %v", v, err)
		}
	})
	for range 10 {
		if _, err := s.Do(t.Context(), "RPUSH", "list", "x"); err != nil {
			t.Fatal(err)
		}
	}
	crowd.Wait()
}

// TestScriptsOverConnectionsThatAreGone: the server has closed what was idle. Scripts and writes, which are not sent twice, notice before they are sent.
func TestScriptsOverConnectionsThatAreGone(t *testing.T) {
	s, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	session := n.Session()
	ops := map[string]func() error{
		"Eval": func() error {
			_, err := session.Eval(t.Context(), redisnode.Call{Script: echo, Args: []any{"x"}})
			return err
		},
		"EvalMany": func() error {
			return session.EvalMany(t.Context(), []redisnode.Call{{Script: echo, Args: []any{"x"}}})[0].Err
		},
		"Do":     func() error { _, err := session.Do(t.Context(), redisnode.Command{"SET", "k", "v"}); return err },
		"DoMany": func() error { return session.DoMany(t.Context(), []redisnode.Command{{"SET", "k", "v"}})[0].Err },
	}
	for range 3 {
		for name, op := range ops {
			var crowd sync.WaitGroup
			for range 6 {
				crowd.Go(func() {
					if err := op(); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			crowd.Wait()
			if _, err := s.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// losing is a connection that is lost when told so: the command has arrived and was carried out, and its reply is lost.
type losing struct {
	net.Conn
	lose *atomic.Bool
}

func (c losing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lose.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// TestScriptsAreSentOnce: what was sent over a connection that is lost before the reply is an error, and nothing is sent again.
func TestScriptsAreSentOnce(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	lose := new(atomic.Bool)
	count := script("count", "return redis.call('INCR', KEYS[1])")
	n := newNode(t, s.Addr(), func(c *redisnode.Config) {
		c.Timeout, c.Scripts = 5*time.Second, []redisnode.Script{count}
		dialing(c, func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return losing{conn, lose}, err
		})
	})
	for name, op := range map[string]func(key string) error{
		"Eval": func(key string) error {
			_, err := n.Eval(t.Context(), redisnode.Call{Script: count, Keys: []string{key}})
			return err
		},
		"Do": func(key string) error { _, err := n.Do(t.Context(), redisnode.Command{"INCR", key}); return err },
		"DoMany": func(key string) error {
			return n.DoMany(t.Context(), []redisnode.Command{{"INCR", key}, {"PTTL", key}})[0].Err
		},
		"EvalMany": func(key string) error {
			r := n.EvalMany(t.Context(), []redisnode.Call{{Script: count, Keys: []string{key}}, {Script: count, Keys: []string{key + " too"}}})
			if r[0].Err != nil && r[0].Err != r[1].Err { //nolint:errorlint // the very same: it has failed once
				t.Errorf("two failures for one: %v, %v", r[0].Err, r[1].Err)
			}
			return r[0].Err
		},
	} {
		if err := op("before"); err != nil { // there is a connection
			t.Error(err)
		}
		lose.Store(true)
		err := op(name)
		if wantTrouble(t, err); lose.Load() {
			t.Errorf("%s: nothing was lost", name)
		}
		if v, err := s.Do(t.Context(), "GET", name); v != "1" || err != nil {
			t.Errorf("%s was carried out %v times, %v", name, v, err)
		}
		if err := op("after"); err != nil {
			t.Errorf("%s, over the next connection: %v", name, err)
		}
	}
}

// TestLongArguments: they go out from where they lie, over connections of the system and over others, and arrive as they are.
func TestLongArguments(t *testing.T) {
	all := script("all", "return {KEYS[1], unpack(ARGV)}")
	wrapped := func(c *redisnode.Config) {
		dialing(c, func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return counted{conn, new(atomic.Int64)}, err
		})
	}
	for name, change := range map[string]func(*redisnode.Config){"plain": func(*redisnode.Config) {}, "wrapped": wrapped} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(c *redisnode.Config) { c.Timeout = 10 * time.Second; change(c) }, func(t *testing.T, n *redisnode.Node) {
				var args, want []any
				key := strings.Repeat("key", 10_000)
				want = append(want, key)
				for i, size := range []int{0, 1, 8 << 10, 8<<10 + 1, 3, 100_000, 1 << 20, 0, 700_000, 5} {
					arg := strings.Repeat(strconv.Itoa(i), size)
					want = append(want, arg)
					if i%3 == 0 {
						args = append(args, arg)
					} else {
						args = append(args, []byte(arg))
					}
				}
				for range 2 {
					got, err := n.Eval(t.Context(), redisnode.Call{Script: all, Keys: []string{key}, Args: args})
					if err != nil || !reflect.DeepEqual(got, want) {
						t.Errorf("Eval: %.100v, %v", got, err)
					}
					for _, r := range n.EvalMany(t.Context(), []redisnode.Call{{Script: all, Keys: []string{key}, Args: args}, {Script: all, Keys: []string{key}, Args: args}}) {
						if r.Err != nil || !reflect.DeepEqual(r.Reply, want) {
							t.Errorf("EvalMany: %.100v, %v", r.Reply, r.Err)
						}
					}
				}
				for i, arg := range args {
					if b, ok := arg.([]byte); ok && string(b) != want[i+1] {
						t.Errorf("argument %d has changed", i)
					}
				}
			})
		})
	}
}

// TestLongArgumentsAreNotCopied by us.
func TestLongArgumentsAreNotCopied(t *testing.T) {
	length := script("length", "return #ARGV[1]")
	_, n := startNode(t, func(c *redisnode.Config) { c.Timeout, c.Scripts = 10*time.Second, []redisnode.Script{length} })
	const size, times = 512 << 10, 20
	c := redisnode.Call{Script: length, Args: []any{make([]byte, size)}}
	eval := func() {
		if got, err := n.Eval(t.Context(), c); got != int64(size) || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
	eval()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		eval()
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > times*size/8 {
		t.Errorf("%d bytes were allocated to send %d times %d", took, times, size)
	}
}

// TestArgumentsOfOtherTypes are refused, and nothing of their command is sent, nor of those with it.
func TestArgumentsOfOtherTypes(t *testing.T) {
	_, n := startNode(t, func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	for _, arg := range []any{nil, struct{}{}, []string{"a"}, time.Second, float32(1.5)} {
		_, err := n.Do(t.Context(), redisnode.Command{"SET", "k", arg})
		_, err2 := n.Eval(t.Context(), redisnode.Call{Script: echo, Args: []any{arg}})
		many := n.DoMany(t.Context(), []redisnode.Command{{"SET", "k", "v"}, {"SET", "k", arg}})
		for _, err := range []error{err, err2, many[0].Err, many[1].Err} {
			if err == nil || !strings.Contains(err.Error(), "must be a string, bytes") {
				t.Errorf("%T: %v", arg, err)
			}
		}
		if v, there, err := n.Get(t.Context(), "k"); there || err != nil {
			t.Errorf("%T: %q was stored, %v", arg, v, err)
		}
	}
}

// answering is a connection on which one answer is another one: instead is what comes in place of the first that begins with answer.
type answering struct {
	net.Conn
	answer, instead string
	done            *atomic.Bool
}

func (c answering) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.HasPrefix(b[:n], []byte(c.answer)) && c.done.CompareAndSwap(false, true) {
		n = copy(b, c.instead)
	}
	return n, err
}

// TestStrangeAnswers: one that does not leave a connection as it was is the last over it, and is told as it was before.
func TestStrangeAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		instead string
		want    []string // replies, or what is in the errors
	}{
		"twice":          {"$1\r\na\r\n$1\r\na\r\n$1\r\nx\r\n", []string{"a", "a"}},
		"a push behind":  {"$1\r\na\r\n$1\r\na\r\n>1\r\n+x\r\n", []string{"a", "a"}},
		"a push before":  {">1\r\n+x\r\n$1\r\na\r\n$1\r\na\r\n", []string{"a", "a"}},
		"a push between": {"$1\r\na\r\n>2\r\n+x\r\n*1\r\n:1\r\n$1\r\na\r\n", []string{"a", "a"}},
		"NOAUTH":         {"-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.\r\n", []string{"NOAUTH", "NOAUTH"}},
		"NOAUTH, once":   {"-NOAUTH Authentication required.\r\n$1\r\na\r\n", []string{"NOAUTH", "a"}},
		"NOAUTH, then":   {"$1\r\na\r\n-NOAUTH Authentication required.\r\n", []string{"a", "NOAUTH"}},
		"no type":        {"x\r\n$1\r\na\r\n", []string{"must be a reply", "must be a reply"}},
		"no length":      {"$1\r\na\r\n$x\r\n", []string{"a", "must be a value"}},
		"an error":       {"-ERR no\r\n$1\r\na\r\n", []string{"ERR no", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t, redistest.Config{})
			done := new(atomic.Bool)
			done.Store(true)
			var dials atomic.Int32
			n := newNode(t, s.Addr(), func(c *redisnode.Config) {
				c.Timeout = 5 * time.Second
				dialing(c, func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials.Add(1)
					conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
					return answering{conn, "$1\r\na\r\n", tc.instead, done}, err
				})
			})
			two := func() []redisnode.Result {
				return n.EvalMany(t.Context(), []redisnode.Call{{Script: echo, Args: []any{"a"}}, {Script: echo, Args: []any{"a"}}})
			}
			if r := two(); r[0].Err != nil || r[1].Err != nil {
				t.Fatal(r)
			}
			before := dials.Load()
			done.Store(false)
			for i, r := range two() {
				if text := fmt.Sprint(r.Reply, r.Err); !strings.Contains(text, tc.want[i]) {
					t.Errorf("reply %d: %s, want %q", i, text, tc.want[i])
				}
			}
			for range 3 { // over whatever connection, they have their own answers
				for _, want := range []string{"b", "c"} {
					if got, err := n.Eval(t.Context(), redisnode.Call{Script: echo, Args: []any{want}}); got != want || err != nil {
						t.Errorf("then %v, %v, want %s", got, err, want)
					}
				}
			}
			good := strings.Contains(name, "push") || name == "an error"
			if made := dials.Load() - before; (made == 0) != good {
				t.Errorf("%d connections were made", made)
			}
		})
	}
}

// slowly is a connection over which each long write, and the next read, takes its time.
type slowly struct {
	net.Conn
	each time.Duration
	long atomic.Bool
}

func (c *slowly) Write(b []byte) (int, error) {
	if len(b) > 1000 {
		time.Sleep(c.each)
		c.long.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *slowly) Read(b []byte) (int, error) {
	if c.long.CompareAndSwap(true, false) {
		time.Sleep(c.each)
	}
	return c.Conn.Read(b)
}

// TestLongCommandsHaveTheirTime: one timeout to be sent, and another for the reply; the caller's deadline holds for both together.
func TestLongCommandsHaveTheirTime(t *testing.T) {
	for each, want := range map[time.Duration]bool{700 * time.Millisecond: true, 1100 * time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			m := miniredis.NewMiniRedis()
			n := newNode(t, "pipe:1", func(c *redisnode.Config) {
				c.Timeout = time.Second
				dialing(c, func(context.Context, string, string) (net.Conn, error) {
					conn, err := m.Dial()
					return &slowly{Conn: conn, each: each}, err
				})
			})
			value := strings.Repeat("x", 100_000)
			_, err := n.Do(t.Context(), redisnode.Command{"SET", "k", value})
			if (err == nil) != want || err != nil && !redisnode.IsTimeout(err) {
				t.Errorf("each %v: %v", each, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
			defer cancel()
			_, err = n.Do(ctx, redisnode.Command{"SET", "k", value})
			if each == 700*time.Millisecond && err != context.DeadlineExceeded { //nolint:errorlint // exactly this
				t.Errorf("each %v, of the caller's 1.2 s: %v", each, err)
			}
			_ = n.Close()
			m.Close()
		})
	}
}

// TestFailuresAreNamed: an error says which script, also of one that has gone out again, behind the others, since the server did not know it.
func TestFailuresAreNamed(t *testing.T) {
	_, n := startNode(t, func(c *redisnode.Config) { c.Timeout, c.Scripts = 5*time.Second, []redisnode.Script{echo} })
	n.Client().RPush(t.Context(), "list", "x")
	for i, r := range n.EvalMany(t.Context(), []redisnode.Call{{Script: echo, Args: []any{"x"}}, {Script: broken, Keys: []string{"list"}}}) {
		if i == 0 && (r.Reply != "x" || r.Err != nil) {
			t.Errorf("the first: %v, %v", r.Reply, r.Err)
		}
		if e := (*redisnode.Error)(nil); i == 1 && (!errors.As(r.Err, &e) || e.Op != "EVALSHA broken" || !redisnode.IsWrongType(r.Err)) {
			t.Errorf("the second: %v, %v", r.Reply, r.Err)
		}
	}
}
