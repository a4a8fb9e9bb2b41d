// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestFailures: the latest failure stays, and of refusals one a minute is told.
func TestFailures(t *testing.T) {
	told := 0
	f := failures{tell: func(*Error) { told++ }}
	if at, err := f.latest(); err != nil || !at.IsZero() {
		t.Errorf("at first: %v at %v", err, at)
	}
	t0 := time.Now()
	for _, c := range []struct {
		name  string
		after time.Duration
		err   error
		noted bool
		told  int // in all
	}{
		{"connection lost: noted, and health checks tell", 0, io.EOF, true, 0},
		{"refused", time.Second, replyError("OOM command not allowed"), true, 1},
		{"refused again", 60 * time.Second, replyError("NOPERM this user"), true, 1},
		{"the key's fault", 61 * time.Second, replyError("WRONGTYPE Operation against"), false, 1},
		{"our own queue", 61 * time.Second, redis.ErrPoolTimeout, false, 1},
		{"another run", 61 * time.Second, ErrRunChanged, false, 1},
		{"refused a minute later", 61 * time.Second, replyError("OOM command not allowed"), true, 2},
		{"a command that is not there", 200 * time.Second, replyError("ERR unknown command 'EVALSHA'"), true, 3},
	} {
		e := &Error{Node: "a", Op: "GET", Err: c.err}
		at := t0.Add(c.after)
		f.note(e, at)
		if when, err := f.latest(); (errors.Is(err, e) && when.Equal(at)) != c.noted {
			t.Errorf("%s: the latest is %v at %v", c.name, err, when.Sub(t0))
		}
		if told != c.told {
			t.Errorf("%s: told %d times, want %d", c.name, told, c.told)
		}
	}
}
