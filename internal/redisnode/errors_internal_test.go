// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestTrouble(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err              error
		trouble, timeout bool
	}{
		{io.EOF, true, false},
		{refused, true, false},
		{&connectError{"connecting", refused}, true, false},
		{os.ErrDeadlineExceeded, true, true},
		{redis.ErrPoolTimeout, true, true},
		{&notTheCallers{context.DeadlineExceeded}, true, true},
		{&notTheCallers{context.Canceled}, true, false},
		{&modeError{"a", "b", "cluster"}, true, false},
		{errors.New("redis: can't parse reply"), true, false},
		{ErrRunChanged, false, false},
		{ErrClosed, false, false},
		{replyError("READONLY You can't write against a read only replica."), true, false},
		{replyError("MISCONF Redis is configured to save RDB snapshots, but ..."), true, false},
		{replyError("NOREPLICAS Not enough good replicas to write."), true, false},
		{replyError("OOM command not allowed when used memory > 'maxmemory'. script: 0123, on @user_script:5."), true, false},
		{replyError("LOADING Redis is loading the dataset in memory"), true, false},
		{replyError("MASTERDOWN Link with MASTER is down"), true, false},
		{replyError("BUSY Redis is busy running a script."), true, false},
		{replyError("NOAUTH Authentication required."), true, false},
		{&connectError{"INFO", replyError("NOPERM this user has no permissions")}, true, false},
		{replyError("ERR max number of clients reached"), true, false},
		{replyError("ERR Error running script (call to f_12): @user_script:3: @user_script: 3: -READONLY You can't write against a read only replica."), true, false},
		{replyError("ERR Error running script (call to f_12): @user_script:3: no -READONLYish code"), false, false},
		{replyError("WRONGTYPE Operation against a key holding the wrong kind of value"), false, false},
		{replyError("ERR syntax error"), false, false},
		{replyError("NOSCRIPT No matching script."), false, false},
	} {
		err := fmt.Errorf("client: %w", &Error{"a", "GET", c.err})
		if got := IsTrouble(err); got != c.trouble {
			t.Errorf("IsTrouble(%v) is %t", err, got)
		}
		if got := IsTimeout(err); got != c.timeout {
			t.Errorf("IsTimeout(%v) is %t", err, got)
		}
		if got, want := IsPoolTimeout(err), errors.Is(c.err, redis.ErrPoolTimeout); got != want {
			t.Errorf("IsPoolTimeout(%v) is %t", err, got)
		}
	}
	for _, err := range []error{nil, context.Canceled, context.DeadlineExceeded, io.EOF} {
		if IsTrouble(err) || IsTimeout(err) {
			t.Errorf("%v does not come from a node, but counts as its trouble", err)
		}
	}
}

// TestWithoutScript: what is left of an error reply is the command's own.
func TestWithoutScript(t *testing.T) {
	const own = "ERR value is not an integer or out of range"
	for _, text := range []string{
		own, own + " script: 0123, on @user_script:21.",
		"ERR Error running script (call to f_12): @user_script:21: " + own, // Redis 6
		"ERR Error running script (call to f_12): @user_script:21: @user_script: 21: -" + own,
		"ERR Error compiling script (new function): :20: " + own + " stack traceback:  [G]: in function 'call'  :20: in main chunk  [G]: ?", // miniredis
	} {
		err := withoutScript(&Error{"a", "EVALSHA incr", replyError(text)})
		if want := "redisnode: a: EVALSHA incr: " + own; err.Error() != want || !IsNoInteger(err) {
			t.Errorf("%q becomes %v, want %s", text, err, want)
		}
	}
	if err := error(&Error{"a", "EVALSHA incr", io.EOF}); withoutScript(err) != err { //nolint:errorlint // this very one
		t.Error("no error reply is changed")
	}
}

func TestErrorTextAndChain(t *testing.T) {
	err := error(&Error{"cache-a", "GET", &connectError{"connecting", io.EOF}})
	if got, want := err.Error(), "redisnode: cache-a: GET: connecting: EOF"; got != want {
		t.Errorf("text is %q, want %q", got, want)
	}
	if !errors.Is(err, io.EOF) {
		t.Error("the cause is lost")
	}
	if errors.Is(&Error{"a", "GET", &notTheCallers{context.DeadlineExceeded}}, context.DeadlineExceeded) {
		t.Error("the node's own timeout looks like the end of the caller's context")
	}
	mode := &modeError{"cache-a", "10.0.0.1:6379", "cluster"}
	for _, part := range []string{"cache-a", "10.0.0.1:6379", "cluster-enabled no"} {
		if !strings.Contains(mode.Error(), part) {
			t.Errorf("%q does not name %q", mode, part)
		}
	}
	if !errors.Is(mode, ErrClusterMode) || errors.Is(&modeError{mode: "sentinel"}, ErrClusterMode) {
		t.Error("ErrClusterMode is for cluster mode and for nothing else")
	}
}

// TestJudge: what opens the breaker, and what does not.
func TestJudge(t *testing.T) {
	of := func(err error) error { return &Error{Node: "a", Op: "GET", Err: err} }
	reply := func(text string) error { return of(plainReply(text)) }
	for want, errs := range map[verdict][]error{
		good: {
			nil, reply("WRONGTYPE Operation against a key"), reply("ERR value is not an integer or out of range"), reply("NOSCRIPT No matching script"),
			reply("OOM command not allowed when used memory > 'maxmemory'."), reply("NOPERM this user has no permissions"),
			reply("ERR Error running script (call to f_1): @user_script:3: -OOM command not allowed"),
		},
		neutral: {
			context.Canceled, context.DeadlineExceeded, of(redis.ErrPoolTimeout), of(ErrRunChanged), of(ErrClosed), of(ErrTrackingOver), of(&downError{}), of(&limited{io.EOF}),
			of(&connectError{"connecting", ErrRunChanged}),
		},
		bad: {
			of(io.EOF), of(os.ErrDeadlineExceeded), of(syscall.ECONNREFUSED), of(&notTheCallers{context.DeadlineExceeded}), of(errors.New("nonsense")),
			reply("LOADING Redis is loading"), reply("BUSY Redis is busy running a script"), reply("MASTERDOWN Link with MASTER is down"), reply("MOVED 3999 127.0.0.1:6381"),
			reply("NOAUTH Authentication required."), reply("ERR max number of clients reached"),
			of(&connectError{"INFO on a new connection", plainReply("NOPERM this user has no permissions")}), of(&modeError{"a", "h:1", "cluster"}),
		},
		unwritable: {
			reply("READONLY You can't write against a read only replica."), reply("MISCONF Redis is configured"), reply("NOREPLICAS Not enough good replicas to write."),
			reply("ERR Error running script (call to f_1): @user_script:3: -READONLY You can't write"),
		},
		writesHang: {of(&writesHanging{os.ErrDeadlineExceeded})},
	} {
		for _, err := range errs {
			if got := judge(err); got != want {
				t.Errorf("%v: %d, want %d", err, got, want)
			}
		}
	}
}
