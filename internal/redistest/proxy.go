// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/proc"
)

// Proxy stands between clients and one server, passes bytes on, and breaks the
// network on request. Its methods are safe for concurrent use.
//
// Without faults every byte passes at once and unchanged, an end of stream and a
// reset too. It is a proxy of TCP, not of Redis: only [Recording.Commands] and
// [ProxyConn.Sent] know the protocol.
//
// The faults of the embedded [Traffic] hit every connection and both
// directions; [Traffic.Only], [Traffic.Existing], [Traffic.New],
// [Traffic.ToServer] and [Traffic.ToClient] narrow them. As with a [Server],
// steps return nothing: where one fails, the test that owns the proxy fails;
// without a test, [Proxy.Err] and [Proxy.Close] return it.
//
// A client's dial may return a moment before the proxy has accepted. A connection
// on which anything was answered is certainly accepted, so existing.
//
// A proxy costs one goroutine, and four for each connection. It keeps at most
// 4 MiB in flight for each direction of a connection; beyond that it stops
// reading, and the sender is slowed down as it would be by a full network.
type Proxy struct {
	Traffic
	target string
	port   *proc.Port
	report func(error)        // called with each failure, without mu
	cancel context.CancelFunc // of what is being dialled
	ctx    context.Context
	wg     sync.WaitGroup // accept loops and connections
	recs   atomic.Pointer[[]*Recording]

	mu       sync.Mutex // before ProxyConn.mu, and that before link.mu
	listener net.Listener
	conns    map[int]*ProxyConn
	accepted int // the index of the next connection
	rules    []rule
	ruled    int // the id of the last rule
	closed   bool
	err      error
}

// StartProxy runs a proxy in front of the address for the test. It is closed when
// the test ends; if the test failed by then, its connections are listed.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := LaunchProxy(target)
	if err != nil {
		tb.Fatal(err)
	}
	p.report = func(err error) { tb.Error(err) }
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(p)
		}
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// LaunchProxy is [StartProxy] without a test. The target is the host:port that is
// dialled for each connection; it need not answer yet. The proxy lives until
// [Proxy.Close].
func LaunchProxy(target string) (*Proxy, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("redistest: proxy: target %q must be host:port: %w", target, err)
	}
	p := &Proxy{target: target, report: func(error) {}, conns: make(map[int]*ProxyConn)}
	p.Traffic = Traffic{proxy: p, dirs: bothDirections}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for try := 1; ; try++ {
		port, err := proc.ReservePort()
		if err != nil {
			return nil, fmt.Errorf("redistest: proxy: %w", err)
		}
		p.port = port
		if err = p.open(); err == nil {
			return p, nil
		}
		err = errors.Join(err, port.Release())
		if try == portTries {
			return nil, fmt.Errorf("redistest: proxy: %w", err)
		}
	}
}

// Addr is the address for clients, as in "127.0.0.1:16380". It never changes.
func (p *Proxy) Addr() string { return p.port.Addr() }

// Target is the address of the server behind the proxy.
func (p *Proxy) Target() string { return p.target }

// Conns are the connections that are open now, the oldest first.
func (p *Proxy) Conns() []*ProxyConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := make([]*ProxyConn, 0, len(p.conns))
	for _, index := range slices.Sorted(maps.Keys(p.conns)) {
		conns = append(conns, p.conns[index])
	}
	return conns
}

// Accepted is how many connections there have been, refused ones not counted.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Refuse closes the listening socket: who dials gets "connection refused", as
// from a machine on which nothing listens. Existing connections stay. For a
// server that accepts and hangs up see [Traffic.CutAfter].
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut()
}

// Heal ends every fault, those of narrowed traffic too, and accepts connections
// again. What a delay or a black hole held back is passed on at once.
func (p *Proxy) Heal() {
	p.Traffic.Heal()
	p.step("heal", func() error {
		if p.closed {
			return errClosed
		}
		if p.listener != nil {
			return nil
		}
		return p.open()
	})
}

// Err is the first failure of a step, or nil.
func (p *Proxy) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Close ends all connections, waits for the goroutines of the proxy, and frees
// its port. It returns the first failure of an earlier step. Closing a closed
// proxy does nothing more.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.shut()
	for _, c := range p.conns {
		c.end(false)
	}
	err := p.err
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
	return errors.Join(err, p.port.Release())
}

// String lists the open connections: who, what passed, and the first commands.
func (p *Proxy) String() string {
	var b strings.Builder
	conns := p.Conns()
	fmt.Fprintf(&b, "proxy %s of %s: %d connections accepted, %d open", p.Addr(), p.target, p.Accepted(), len(conns))
	for _, c := range conns {
		fmt.Fprintf(&b, "\n  %v", c)
	}
	return b.String()
}

// step runs one step and reports its failure.
func (p *Proxy) step(what string, act func() error) {
	p.mu.Lock()
	err := act()
	if err != nil {
		err = fmt.Errorf("redistest: %s proxy %s: %w", what, p.Addr(), err)
		if p.err == nil {
			p.err = err
		}
	}
	p.mu.Unlock()
	if err != nil {
		p.report(err)
	}
}

// open listens. The caller holds mu, or has the proxy for itself.
func (p *Proxy) open() error {
	listener, err := net.Listen("tcp", p.Addr())
	if err != nil {
		return err
	}
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	return nil
}

// shut ends the listening. The caller holds mu.
func (p *Proxy) shut() {
	if p.listener != nil {
		_ = p.listener.Close() // it was open
		p.listener = nil
	}
}

// accept serves the listener until it is closed.
func (p *Proxy) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			p.adopt(listener, conn.(*net.TCPConn))
		case errors.Is(err, net.ErrClosed):
			return
		default:
			p.step("accept at", func() error { return err })
			select {
			case <-p.ctx.Done():
			case <-time.After(10 * time.Millisecond): // out of files, for instance
			}
		}
	}
}

// adopt makes a connection one of the proxy's, unless its listener was closed
// while it was on its way here.
func (p *Proxy) adopt(listener net.Listener, client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		hangUp(client, true)
		return
	}
	c := newProxyConn(p, p.accepted, client)
	p.accepted++
	p.conns[c.index] = c
	c.refresh(p.rules)
	p.wg.Go(func() {
		c.run()
		p.mu.Lock()
		delete(p.conns, c.index)
		p.mu.Unlock()
		close(c.done)
	})
}
