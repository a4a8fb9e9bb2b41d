// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// TestConnectionAfterAProtocolError: a value beyond the server's proto-max-bulk-len costs its own connection and no other command. The connection here is
// one whose close stays on its way, to make it certain.
func TestConnectionAfterAProtocolError(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	script := redisnode.Script{Name: "one", Source: "return 1", SHA1: "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"}
	n, err := redisnode.New(redisnode.Config{ID: "a", Addr: server.Addr(), Timeout: 5 * time.Second, PoolSize: 1, Scripts: []redisnode.Script{script},
		Options: func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return &limited{Conn: conn}, err
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx := t.Context()
	if _, err := n.Session().Eval(ctx, redisnode.Call{Script: script, Args: []any{strings.Repeat("x", 2<<20)}}); err == nil {
		t.Fatal("the large argument was taken")
	}
	if _, err := n.Session().Eval(ctx, redisnode.Call{Script: script}); err != nil {
		t.Errorf("the next script: %v", err)
	}
}

// limited is a connection to a server that takes no more than a megabyte at once, seen from far away.
type limited struct {
	net.Conn
	over, told atomic.Bool
}

func (c *limited) Write(b []byte) (int, error) {
	if c.over.Load() {
		return len(b), nil // the peer has closed, this end does not know it yet
	}
	if len(b) > 1<<20 {
		c.over.Store(true)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *limited) Read(b []byte) (int, error) {
	switch {
	case !c.over.Load():
		return c.Conn.Read(b)
	case c.told.CompareAndSwap(false, true):
		return copy(b, "-ERR Protocol error: invalid bulk length\r\n"), nil
	default:
		return 0, net.ErrClosed
	}
}

// byLine is a connection of which a read brings one line at most.
type byLine struct {
	net.Conn
	r *bufio.Reader
}

func (c *byLine) Read(b []byte) (int, error) {
	for i := range b {
		next, err := c.r.ReadByte()
		if err != nil {
			return i, err
		}
		if b[i] = next; next == '\n' {
			return i + 1, nil
		}
	}
	return len(b), nil
}

// TestAValueThatSpeaksOfProtocolErrors: a value comes in pieces, and one of them may begin like the error after which a server hangs up.
func TestAValueThatSpeaksOfProtocolErrors(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	n := newNode(t, server.Addr(), func(c *redisnode.Config) {
		c.Timeout = 5 * time.Second
		c.Options = func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return &byLine{conn, bufio.NewReader(conn)}, err
			}
		}
	})
	value := strings.Repeat("-ERR Protocol error: so it says\n", 5000)
	mustSet(t, n, "k", value)
	if v, _, err := n.Get(t.Context(), "k"); err != nil || string(v) != value {
		t.Errorf("%d bytes, %v", len(v), err)
	}
}
