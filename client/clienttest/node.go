// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package clienttest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Node is one embedded node and its fault switches. A switch acts at once, also on connections that are open.
type Node struct {
	id     string
	server *miniredis.Miniredis
	clock  clock

	mu    sync.Mutex // guards what follows
	down  bool
	hung  bool
	delay time.Duration
	conns map[*conn]struct{}
	pumps sync.WaitGroup // one goroutine a connection, see conn
}

func newNode(id string) *Node {
	server := miniredis.NewMiniRedis()
	return &Node{id: id, server: server, clock: newClock(server), conns: make(map[*conn]struct{})}
}

// ID is the node's id in the configuration.
func (n *Node) ID() string { return n.id }

// Down makes the node refuse connections and cuts those that are open, as a process that was killed. What it stores it keeps: call Flush for a
// node that comes back empty.
func (n *Node) Down() {
	n.mu.Lock()
	n.down = true
	conns := n.conns
	n.conns = make(map[*conn]struct{})
	n.mu.Unlock()
	for c := range conns {
		_ = c.Close() // a pipe: closing cannot fail
	}
}

// Up ends Down, Hang, Slow and Fail.
func (n *Node) Up() {
	n.mu.Lock()
	n.down, n.hung, n.delay = false, false, 0
	n.mu.Unlock()
	n.server.SetError("")
}

// Hang makes the node take requests and never answer, as a process that was stopped or a network that swallows packets. Requests that it took
// while hanging are lost.
func (n *Node) Hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = true
}

// Slow delays every request by d before the node sees it; 0 ends that.
func (n *Node) Slow(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = max(d, 0)
}

// Fail makes the node answer every command with an error, for example "LOADING Redis is loading the dataset in memory" or
// "OOM command not allowed when used memory > 'maxmemory'."; "" ends that.
func (n *Node) Fail(message string) { n.server.SetError(message) }

// Flush removes everything that the node stores, as a restart without persistence or a FLUSHALL does.
func (n *Node) Flush() { n.server.FlushAll() }

// Keys lists the physical keys that the node stores now, sorted: entries and their companions.
func (n *Node) Keys() []string { return n.present().Keys() }

// Get returns the bytes stored under a physical key.
func (n *Node) Get(key string) (value []byte, ok bool) {
	v, err := n.present().Get(key)
	return []byte(v), err == nil
}

// Set stores bytes under a physical key with no expiry: to plant what some other program may have left there.
func (n *Node) Set(key string, value []byte) error {
	if err := n.present().Set(key, string(value)); err != nil {
		return fmt.Errorf("clienttest: set %q on %s: %w", key, n.id, err)
	}
	return nil
}

// Delete removes a physical key, as an eviction does.
func (n *Node) Delete(key string) { n.server.Del(key) }

// TTL is what is left of a physical key's life; 0 when it has no expiry or is not there.
func (n *Node) TTL(key string) time.Duration { return n.present().TTL(key) }

// FastForward lets d pass for the expiry of the node's keys alone. In a synctest bubble time.Sleep does that, for everything.
func (n *Node) FastForward(d time.Duration) { n.present().FastForward(d) }

// SetTime sets the node's clock, which TIME and expiry go by, to t, as an operator or NTP does, and stops it there until the next call; the zero time lets it
// follow the true time again. Set forward, keys expire by as much earlier. Set back, they live on for what was left of them (a real server
// keeps them longer by the step).
func (n *Node) SetTime(t time.Time) { n.clock.set(t) }

// present is the server with its keys as they are now.
func (n *Node) present() *miniredis.Miniredis {
	n.clock.follow()
	return n.server
}

// dial is the Dialer that the configuration hands to the driver.
func (n *Node) dial(context.Context, string, string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	pipe, err := n.server.Dial()
	if err != nil {
		return nil, fmt.Errorf("clienttest: dial %s: %w", n.id, err)
	}
	c := &conn{Conn: pipe, node: n, requests: make(chan []byte, 64), closed: make(chan struct{})}
	n.conns[c] = struct{}{}
	n.pumps.Go(c.pump)
	return c, nil
}

// state reads the switches that a request meets.
func (n *Node) state() (hung bool, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hung, n.delay
}

func (n *Node) close() {
	n.Down()
	n.pumps.Wait()
	n.server.Close()
}

// pieceBytes is the size of the server's own read buffer.
const pieceBytes = 4 << 10

// conn is a client's connection. Requests pass through a goroutine of its own, so that a delayed or swallowed one does not block the
// writer: the client's timeout then runs on the reply, as it does on a network.
type conn struct {
	net.Conn
	node     *Node
	requests chan []byte
	once     sync.Once
	closed   chan struct{}
}

func (c *conn) Write(b []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case c.requests <- append([]byte(nil), b...):
		return len(b), nil
	}
}

// pump carries requests to the server until the connection is closed.
func (c *conn) pump() {
	for {
		select {
		case <-c.closed:
			return
		case b := <-c.requests:
			hung, delay := c.node.state()
			if hung {
				continue
			}
			if delay > 0 && !c.sleep(delay) {
				return
			}
			if !c.deliver(b) {
				return
			}
		}
	}
}

// deliver hands bytes to the server. It does so in pieces: those of a long pipeline wait until the server has served what is before them, and
// meanwhile time passes.
func (c *conn) deliver(b []byte) bool {
	for piece := range slices.Chunk(b, pieceBytes) {
		c.node.clock.follow()
		if _, err := c.Conn.Write(piece); err != nil {
			return false
		}
	}
	return true
}

func (c *conn) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.closed:
		return false
	}
}

// SetDeadline sets the deadline of reads only: a write never waits long here, and the pump's writes are not the client's.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing, see SetDeadline.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn is what the driver looks at before it uses a connection again. It finds that one was cut, as it would of a socket; into one that stands it
// cannot look.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	select {
	case <-c.closed:
		return nil, net.ErrClosed
	default:
		return opaque{}, nil
	}
}

// opaque is the inside of a pipe.
type opaque struct{}

func (opaque) Control(func(uintptr)) error    { return nil }
func (opaque) Read(func(uintptr) bool) error  { return nil }
func (opaque) Write(func(uintptr) bool) error { return nil }

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.node.mu.Lock()
		delete(c.node.conns, c)
		c.node.mu.Unlock()
	})
	return c.Conn.Close()
}
