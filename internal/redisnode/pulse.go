// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"net"
	"syscall"
)

// pulse looks whether a connection that nobody uses is still there, without a wait: what was cut since it was last used has its end waiting to be read. A connection that
// cannot be looked into (TLS, a dialer's own type) is taken for a good one.
type pulse struct {
	conn  syscall.Conn     // nil: it cannot be looked into
	raw   syscall.RawConn  // that of a socket, which stays the same; a dialer's own type may say by its error that it was cut
	look  func(fd uintptr) // made once, since it takes memory
	first [1]byte          // what waits to be read
	gone  bool
}

func (p *pulse) of(conn net.Conn) {
	inside := plain(conn)
	p.conn, _ = inside.(syscall.Conn)
	if _, ok := inside.(*net.TCPConn); ok {
		p.raw, _ = p.conn.SyscallConn() // one that is closed already says so when it is asked again
	}
	p.look = func(fd uintptr) { p.gone = cutOff(fd, &p.first) }
}

// stopped says that the connection is closed, here or by the other side, or that something has come which nobody has asked for, and which is no push.
func (p *pulse) stopped() bool {
	if p.conn == nil {
		return false
	}
	raw := p.raw
	if raw == nil {
		var err error
		if raw, err = p.conn.SyscallConn(); err != nil {
			return true
		}
	}
	return raw.Control(p.look) != nil || p.gone
}
