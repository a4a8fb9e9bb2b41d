// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"cmp"
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// line is a connection of a Tracking. The driver reads a connection only while it waits for a reply, and would find out at
// the next command that it was closed. A line is read all the time: its end is noticed at once.
//
// What was read waits in a pipe, which the driver reads as if it were the connection.
type line struct {
	net.Conn
	in   net.Conn
	shut atomic.Bool // by this side
}

func (l *line) Read(b []byte) (int, error)         { return l.in.Read(b) }
func (l *line) SetReadDeadline(at time.Time) error { return l.in.SetReadDeadline(at) }

func (l *line) SetDeadline(at time.Time) error {
	return cmp.Or(l.in.SetReadDeadline(at), l.Conn.SetWriteDeadline(at))
}

func (l *line) Close() error {
	l.shut.Store(true)
	_ = l.in.Close() // a pipe has nothing to say about it
	return l.Conn.Close()
}

// dialer gives the dialer of one of t's connections. It connects once: the driver would replace a connection that it has
// lost and say nothing, but another connection is another Tracking. Like [Session.dial] it never fails.
func (t *Tracking) dialer(conn int) dialFunc {
	var used atomic.Bool
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if used.Swap(true) {
			t.lost(conn, ErrTrackingOver)
			return noConn{ErrTrackingOver}, nil
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(t.ctx, cancel) //nolint:contextcheck // two contexts end a dial: the driver's and the Tracking's
		defer stop()
		c, err := t.node.options.Dialer(ctx, network, addr)
		if err != nil {
			return noConn{&connectError{"connecting", err}}, nil
		}
		return t.watch(conn, c), nil
	}
}

// watch starts reading c for as long as it lives. The end of t closes it.
func (t *Tracking) watch(conn int, c net.Conn) net.Conn {
	t.mu.Lock() // a dial that ends too late must not begin something that nobody waits for
	defer t.mu.Unlock()
	if t.why != notEnded {
		_ = c.Close()
		return noConn{ErrTrackingOver}
	}
	in, out := net.Pipe()
	l := &line{Conn: c, in: in}
	t.workers.Add(1)
	context.AfterFunc(t.ctx, func() { defer t.workers.Done(); _ = l.Close() })
	t.workers.Go(func() {
		_, err := io.Copy(out, c)
		// First the end, then the pipe: whoever sees the error of a read finds t over. But a connection that the driver has
		// closed in the handshake was refused, and the command that it was made for comes back with the reason.
		if !l.shut.Load() || t.isReady() {
			t.lost(conn, cmp.Or(err, io.EOF))
		}
		_ = out.Close()
		_ = l.Close()
	})
	return l
}

// lost ends t because of one of its connections.
func (t *Tracking) lost(conn int, err error) {
	if conn == listener {
		t.end(listenerLost, err)
	} else {
		t.end(fillLost, err)
	}
}
