// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"bytes"
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// What a wire can be cut for.
const (
	anything   = ""        // the nodes are out of reach
	allScripts = "evalsha" // reads get through: no invalidation, lease or fill does
)

// wire is the network between one process and its nodes, whatever they are, and breaks on demand. Other processes have their own. The zero value passes everything.
type wire struct {
	mu  sync.Mutex
	cut *string // connections that carry these bytes to a node break; nil: none does
}

// hook leads a client's connections through the wire, see scene.config.
func (w *wire) hook(o *redis.Options) {
	dial := o.Dialer
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wireConn{c, w}, nil
	}
}

func (w *wire) breaks(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = &what
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = nil
}

func (w *wire) carries(b []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut == nil || !bytes.Contains(b, []byte(*w.cut))
}

// wireConn is one connection of a wire.
type wireConn struct {
	net.Conn
	w *wire
}

func (c *wireConn) Write(b []byte) (int, error) {
	if !c.w.carries(b) {
		_ = c.Close() // it is broken
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return c.Conn.Write(b)
}
