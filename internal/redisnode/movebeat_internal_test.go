// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
)

// writeHook is a connection that tells what it is about to write.
type writeHook struct {
	net.Conn
	before func([]byte)
}

func (c writeHook) Write(b []byte) (int, error) {
	c.before(b)
	return c.Conn.Write(b)
}

// TestMoveUnderAHeartbeat: the node moves while its old server, which has become a replica, is asked whether it takes writes. That it does not is no word against the new one.
func TestMoveUnderAHeartbeat(t *testing.T) {
	servers := redistest.StartReplicated(t, 1)
	var n *Node
	var armed atomic.Bool
	n, err := New(Config{
		ID: "a", Addr: servers[1].Addr(), Timeout: 5 * time.Second, WriteCheck: "w",
		Options: func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return writeHook{conn, func(b []byte) {
					if bytes.Contains(bytes.ToLower(b), []byte("unlink")) && armed.Swap(false) {
						n.Move(servers[0].Addr(), "")
					}
				}}, err
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close() //nolint:errcheck // always nil
	defer n.breaker.run()()
	armed.Store(true)
	var h health
	h.beat(t.Context(), n)
	if n.Addr() != servers[0].Addr() {
		t.Fatal("the node has not moved")
	}
	if s := n.State(); s != Up {
		t.Errorf("the new server is %v for what the old one has said", s)
	}
	if h.beat(t.Context(), n); n.State() != Up {
		t.Errorf("%v", n.State())
	}
}
