// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bytes"
	"context"
	"net"
	"slices"
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

// TestRunsAreToldInOrder: the node moves while it is told of its old server's run. That of the new one comes after it, and is what stays.
func TestRunsAreToldInOrder(t *testing.T) {
	var n *Node
	var told []string // one at a time, or the race detector says so
	done := make(chan struct{})
	n, err := New(Config{ID: "a", Addr: "127.0.0.1:1", OnRun: func(_, now Info) {
		if now.RunID == "A" {
			n.Move("127.0.0.1:2", "")
			go func() {
				defer close(done)
				n.met(n.Session(), greeting{runID: "B"}, true)
			}()
			time.Sleep(50 * time.Millisecond) // it has its chance
		}
		told = append(told, now.RunID)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close() //nolint:errcheck // always nil
	n.met(n.Session(), greeting{runID: "A"}, true)
	<-done
	if !slices.Equal(told, []string{"A", "B"}) || n.Info().RunID != "B" {
		t.Errorf("told of %q, and Info says %q", told, n.Info().RunID)
	}
}
