// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	firstBytes = 4 << 10
	readBytes  = 32 << 10
)

// ProxyConn is one client's connection through a [Proxy]. Its methods are safe
// for concurrent use, also after its end.
type ProxyConn struct {
	proxy  *Proxy
	index  int
	client *net.TCPConn
	links  [2]*link        // by Direction
	gone   context.Context // ends with the connection
	leave  context.CancelFunc
	done   chan struct{} // closed when its goroutines have ended

	mu     sync.Mutex
	server *net.TCPConn // nil until dialled
	ended  bool
	first  []byte
}

func newProxyConn(p *Proxy, index int, client *net.TCPConn) *ProxyConn {
	c := &ProxyConn{proxy: p, index: index, client: client, links: [2]*link{newLink(), newLink()}, done: make(chan struct{})}
	c.gone, c.leave = context.WithCancel(p.ctx)
	return c
}

// Index counts the connections of the proxy in the order of their accept, from 0.
func (c *ProxyConn) Index() int { return c.index }

// ClientAddr is the client's own address.
func (c *ProxyConn) ClientAddr() string { return c.client.RemoteAddr().String() }

// First is what the client has sent so far, at most its first 4 KiB, passed on or
// not. The caller must not change it.
func (c *ProxyConn) First() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// Sent reports whether a complete command within [ProxyConn.First] begins with
// these words, upper or lower case, as in Sent("CLIENT", "SETNAME", "reader").
func (c *ProxyConn) Sent(words ...string) bool {
	commands, _, _ := parseCommands(c.First())
	for _, args := range commands {
		if beginsWith(args, words) {
			return true
		}
	}
	return false
}

// Passed is how many bytes have passed in the direction.
func (c *ProxyConn) Passed(d Direction) int64 { return c.links[d].count() }

// String says which connection it is, what passed, and the first commands.
func (c *ProxyConn) String() string {
	commands, _, _ := parseCommands(c.First())
	names := make([]string, 0, len(commands))
	for _, args := range commands[:min(len(commands), 5)] {
		names = append(names, strings.Join(args[:min(len(args), 3)], " "))
	}
	return fmt.Sprintf("%d from %s: %d bytes to server, %d to client; it began with %q",
		c.index, c.ClientAddr(), c.Passed(ToServer), c.Passed(ToClient), names)
}

// run serves the connection until both directions have ended.
func (c *ProxyConn) run() {
	defer c.leave()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.end(false)
	wg.Go(func() { c.fill(ToServer, c.client) })
	server := c.dial()
	if server == nil {
		return
	}
	wg.Go(func() { c.fill(ToClient, server) })
	var toServer sync.WaitGroup
	toServer.Go(func() { c.drain(ToServer, server) })
	c.drain(ToClient, c.client)
	toServer.Wait()
}

// dial connects to the server, once the way there is no black hole. Where the
// server refuses, so does the connection: with a reset. nil means that the
// connection has ended.
func (c *ProxyConn) dial() *net.TCPConn {
	for l := c.links[ToServer]; l.holed(); {
		select {
		case <-l.wake:
		case <-c.gone.Done():
			return nil
		}
	}
	conn, err := (&net.Dialer{}).DialContext(c.gone, "tcp", c.proxy.target)
	if err != nil {
		c.end(true)
		return nil
	}
	server := conn.(*net.TCPConn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		hangUp(server, true)
		return nil
	}
	c.server = server
	return server
}

// fill reads one side and queues what comes, until the end.
func (c *ProxyConn) fill(d Direction, from *net.TCPConn) {
	l, buf := c.links[d], make([]byte, readBytes)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			data := bytes.Clone(buf[:n])
			if d == ToServer {
				c.note(data)
			}
			for at := time.Now(); !l.push(chunk{data: data, arrived: at, luck: rand.Float64(), draw: rand.Float64()}); {
				select {
				case <-l.room:
				case <-c.gone.Done():
					return
				}
			}
		}
		if err != nil {
			l.push(chunk{arrived: time.Now(), luck: rand.Float64(), end: endOfStream(err)})
			return
		}
	}
}

// note adds to the first bytes, and asks anew which faults hold before these
// bytes are queued.
func (c *ProxyConn) note(data []byte) {
	c.mu.Lock()
	more := data[:min(len(data), firstBytes-len(c.first))]
	if len(more) > 0 {
		// A slice that was handed out keeps its bytes.
		c.first = append(c.first[:len(c.first):len(c.first)], more...)
	}
	c.mu.Unlock()
	if len(more) == 0 {
		return
	}
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.refresh(c.proxy.rules)
}

// refresh puts the faults into force that the rules give for this connection.
// The caller holds the proxy's mu.
func (c *ProxyConn) refresh(rules []rule) {
	var both [2]faults
	for _, r := range rules {
		if r.pick != nil && !r.pick(c) {
			continue
		}
		for d := range both {
			if r.dirs.has(Direction(d)) {
				both[d] = both[d].with(r)
			}
		}
	}
	now := time.Now()
	for d, f := range both {
		c.links[d].set(f, now)
	}
}

// drain writes to one side what may pass, until the end.
func (c *ProxyConn) drain(d Direction, to *net.TCPConn) {
	l := c.links[d]
	timer := time.NewTimer(forever)
	defer timer.Stop()
	passing := func(taken chunk) { c.proxy.passing(c.index, d, taken) }
	for {
		piece, end, wait := l.next(time.Now(), passing)
		switch {
		case end == finish:
			if to.CloseWrite() != nil {
				c.end(false)
			}
			return
		case end != open:
			c.end(end == reset)
			return
		case piece != nil:
			if _, err := to.Write(piece); err != nil {
				c.end(true) // bytes are lost, as they are when a peer is gone
				return
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-c.gone.Done():
			return
		}
	}
}

// end closes both sides. The goroutines of the connection end soon after.
func (c *ProxyConn) end(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	c.leave()
	hangUp(c.client, reset)
	if c.server != nil {
		hangUp(c.server, reset)
	}
}

// hangUp closes a connection, with a reset on request.
func hangUp(conn *net.TCPConn, reset bool) {
	if reset {
		_ = conn.SetLinger(0) // where that fails it is closed already
	} else {
		// With unread bytes a plain Close sends a reset, which may overtake what
		// was written.
		_ = conn.CloseWrite()
	}
	_ = conn.Close()
}

// endOfStream says what a read error means to the other side.
func endOfStream(err error) ending {
	switch {
	case errors.Is(err, io.EOF):
		return finish
	case errors.Is(err, syscall.ECONNRESET):
		return reset
	default:
		return cut // closed here, or the host gave up
	}
}
