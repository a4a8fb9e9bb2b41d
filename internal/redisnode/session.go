// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"cmp"
	"context"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Session is the driver's client, and the connections that reads have of their own, bound to one run of the server process. Its first connection
// fixes the run; a later one that reaches another run fails with [ErrRunChanged] before it has
// carried a command, and so does every operation from then on: a session never comes back.
//
// Take a session from [Node.Session] before an operation that must meet the same process again
// (a lease and its fill) and keep it until the last of them; it needs no closing. For anything
// else use the methods of the Node. Safe for concurrent use.
//
// A context whose deadline passes, or that is cancelled while an operation waits for a connection,
// ends it with the context's own error. A command that was sent is not given up when the context
// is merely cancelled: its reply is waited for, for no longer than the timeout.
//
// What a session cannot see is a restart behind a proxy that keeps the client's connection, and
// one of a server that has no INFO (miniredis, or Redis with INFO renamed away).
type Session struct {
	node   *Node
	client *redis.Client
	wires  wires // for reads
	addr   string
	dialer dialFunc
	run    atomic.Pointer[string] // nil until the first connection
	stream atomic.Pointer[string]

	meeting sync.Mutex // held while a connection is admitted

	asking  atomic.Int32 // heartbeats under way
	connsMu sync.Mutex
	conns   map[*watchfulConn]struct{} // that are open

	dialling bool // while the node is down: the one connection that it may have is being made; guarded by connsMu

	// users counts operations and dials under way; retiring subtracts a number that keeps it
	// negative. Whoever brings it back to exactly that number was the last and closes the client.
	// So a session that was swapped out lives as long as its users, and nothing has to wait.
	users   atomic.Int64
	closing sync.Once
	drained chan struct{} // closed with the last user gone

	// ended is cancelled when nothing should be waited for any more: it ends dials.
	ended context.Context
	end   context.CancelFunc
}

const retired = math.MinInt64 / 2

func newSession(n *Node) *Session {
	s := &Session{node: n, drained: make(chan struct{}), conns: make(map[*watchfulConn]struct{})}
	s.ended, s.end = context.WithCancel(context.Background())
	s.addr, s.dialer = n.Addr(), n.options.Dialer
	o := s.options()
	o.PoolSize = max(1, n.cfg.PoolSize-n.cfg.wires())
	s.wires.turns = make(chan struct{}, n.cfg.wires())
	s.wires.rest, s.wires.life = max(0, cmp.Or(o.ConnMaxIdleTime, maxIdle)), max(0, o.ConnMaxLifetime) // the driver's: below zero is no limit
	s.client = redis.NewClient(&o)
	return s
}

// options is the driver's configuration for connections of the session: a copy, which the driver may keep.
func (s *Session) options() redis.Options {
	o := s.node.options
	o.Addr, o.Dialer = s.addr, s.dial
	user := o.OnConnect
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error { return s.onConnect(ctx, cn, user) }
	return o
}

// RunID is the run id of the server process that the session is bound to; "" before the first
// connection, and for servers that have none (miniredis).
func (s *Session) RunID() string {
	if run := s.run.Load(); run != nil {
		return *run
	}
	return ""
}

// begin begins an operation: the error is why it is not sent. It ends with leave.
func (s *Session) begin(ctx context.Context, op string) error {
	return s.beginIf(ctx, op, s.node.breaker.shut(op))
}

// beginRead is begin for a read: where a part of the operations fails, only a share of the reads is sent. That a read is not sent costs a load at most; a
// write that is not sent is an error, or owed.
func (s *Session) beginRead(ctx context.Context, op string) error {
	return s.beginIf(ctx, op, s.node.breaker.admit(op))
}

func (s *Session) beginIf(ctx context.Context, op string, refused error) error {
	if refused != nil {
		return refused
	}
	if !s.enter() {
		return s.failure(ctx, op, s.gone())
	}
	return nil
}

// enter begins a use; false means that the session has ended.
func (s *Session) enter() bool {
	if s.users.Add(1) > 0 {
		return true
	}
	s.leave()
	return false
}

func (s *Session) leave() {
	if s.users.Add(-1) == retired {
		s.drain()
	}
}

// retire ends the session: no new operation begins; the client is closed behind the last one.
func (s *Session) retire() {
	for {
		n := s.users.Load()
		if n < 0 {
			return
		}
		if s.users.CompareAndSwap(n, n+retired) {
			if n == 0 {
				s.drain()
			}
			return
		}
	}
}

// drain runs when a retired session has no users; it may do so more than once, since a caller
// that comes too late counts as one for a moment.
func (s *Session) drain() {
	s.closing.Do(func() {
		s.end()
		s.wires.end()
		_ = s.client.Close() // a second Close, after cut, has nothing to say
		s.node.forget(s)
		close(s.drained)
	})
}

// cut ends the session without waiting for its users: their operations fail.
func (s *Session) cut() {
	s.retire()
	s.end()
	_ = s.client.Close() // closes sockets that are in use, which may complain about it
	s.hangUp()           // those of wires too
}

// gone is why an operation on a session that has ended is refused.
func (s *Session) gone() error {
	if s.node.closed() {
		return ErrClosed
	}
	return ErrRunChanged
}

// dial makes connections for the driver, and never fails: where there is none, it hands out one
// that returns the error at its first use, which is the handshake. The driver counts failed dials,
// and after as many as its pool is large it dials only once a second, from a goroutine of its own:
// a node that is back would be missed for up to a second. It also logs each of them.
func (s *Session) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.dialFor(ctx, network, addr, false)
}

// dialFor is dial; ours: for a wire.
func (s *Session) dialFor(ctx context.Context, network, addr string, ours bool) (net.Conn, error) {
	if !s.enter() {
		return noConn{s.gone()}, nil
	}
	defer s.leave()
	alone, err := s.full(ours)
	if err != nil {
		return noConn{err}, nil
	}
	if alone {
		defer s.dialled()
	}
	if addr == Unknown {
		return noConn{&connectError{"connecting", ErrUnknown}}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.ended, cancel) //nolint:contextcheck // two contexts end a dial: the driver's and the session's
	defer stop()
	conn, err := s.dialer(ctx, network, addr)
	if err != nil {
		return noConn{&connectError{"connecting", err}}, nil
	}
	c := &watchfulConn{Conn: conn, session: s, ours: ours}
	if s.keep(c); s.ended.Err() != nil { // cut has hung up before it was kept
		_ = c.Close()
		return noConn{s.gone()}, nil
	}
	return c, nil
}

// admit binds the session to the run that a new connection has reached, or refuses it.
func (s *Session) admit(run string) (first bool, err error) {
	if s.run.CompareAndSwap(nil, &run) {
		return true, nil
	}
	if s.RunID() != run {
		return false, ErrRunChanged
	}
	return false, nil
}
