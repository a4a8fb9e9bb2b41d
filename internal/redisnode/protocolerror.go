// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bytes"
	"net"
	"sync/atomic"
	"syscall"
)

// watchfulConn closes itself when the server answers that it will: after "-ERR Protocol error" (a value beyond its proto-max-bulk-len) a Redis server
// hangs up. Without it:
//
//  1. the driver takes that for an ordinary error reply and puts the connection back into the pool
//  2. the server's close is still on its way when a script of another key is sent over it: EOF, and scripts are sent once
//
// So that other key's fill, release or invalidation is lost. The driver asks a connection whether it is well before it uses it again; a closed one is not.
type watchfulConn struct {
	net.Conn
	session *Session // that keeps it
	ours    bool     // it is a wire's
	over    atomic.Bool
}

// Close implements net.Conn.
func (c *watchfulConn) Close() error {
	if c.session != nil {
		c.session.drop(c)
	}
	return c.Conn.Close()
}

// protocolError is how such a reply begins. It is all that a read brings: the driver waits for one reply at a time, and one in the
// middle of a pipeline's is met like any other connection that is cut. A long value that holds these words comes in pieces, of which one may begin with them:
// it has no end of a line there, or not just one. A wire knows by itself (replied).
var protocolError = []byte("-ERR Protocol error")

func (c *watchfulConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.ours && bytes.HasPrefix(b[:n], protocolError) && bytes.IndexByte(b[:n], '\n') == n-1 {
		c.over.Store(true)
		_ = c.Conn.Close() // what has been read is still parsed
	}
	return n, err
}

// SyscallConn is what the driver looks at a connection through. For one that has none (TLS) it answers as the driver itself would: it is well, as far as
// can be told; unless it is over.
func (c *watchfulConn) SyscallConn() (syscall.RawConn, error) {
	if c.over.Load() {
		return nil, net.ErrClosed
	}
	if conn, ok := c.Conn.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return opaque{}, nil
}

// opaque is the inside of a connection that cannot be looked into.
type opaque struct{}

func (opaque) Control(func(uintptr)) error    { return nil }
func (opaque) Read(func(uintptr) bool) error  { return nil }
func (opaque) Write(func(uintptr) bool) error { return nil }
