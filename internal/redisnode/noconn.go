// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"net"
	"time"
)

// noConn is a connection that could not be made; using it gives the reason. See [Session.dial].
type noConn struct{ err error }

func (c noConn) Read([]byte) (int, error)       { return 0, c.err }
func (c noConn) Write([]byte) (int, error)      { return 0, c.err }
func (noConn) Close() error                     { return nil }
func (noConn) LocalAddr() net.Addr              { return noAddr{} }
func (noConn) RemoteAddr() net.Addr             { return noAddr{} }
func (noConn) SetDeadline(time.Time) error      { return nil }
func (noConn) SetReadDeadline(time.Time) error  { return nil }
func (noConn) SetWriteDeadline(time.Time) error { return nil }

type noAddr struct{}

func (noAddr) Network() string { return "none" }
func (noAddr) String() string  { return "none" }
