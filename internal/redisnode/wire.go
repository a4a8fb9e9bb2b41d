// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire is a connection over which this package speaks the protocol itself: for the operations of a cache. The driver makes it, with all that
// belongs to that (TLS, HELLO, AUTH, the session's handshake), and never uses it again. An operation by the driver costs ten allocations and more, a context with a
// deadline of its own, and a copy of each value; one over a wire costs the reply.
//
// One command, or one pipeline, is under way on a wire at a time. What has gone wrong half-way leaves it in an unknown state: then it is closed.
type wire struct {
	driver *redis.Client // which made the connection, and has no other
	held   *redis.Conn   // it, as taken out of the driver's pool
	conn   net.Conn
	pulse  pulse
	r      *bufio.Reader
	w      []byte    // the command
	long   []long    // what of it is not in w
	wrong  error     // why it cannot be sent
	later  time.Time // until when a reply may take that has begun; zero: as the connection's deadline says
	made   time.Time
	since  time.Time // when it was last put back
}

// wires are those of a session: a bounded number, of which each operation takes one and gives it back. Reads and the rest have turns of their own, so that neither waits for a
// crowd of the others; the wires are the same, so that a process that does one thing at a time has one connection.
type wires struct {
	turns  chan struct{} // a token each read that has a wire, or is making one
	others chan struct{} // the same, each other operation; where there are too few connections it is turns
	rest   time.Duration // for how long one may be idle; 0: for ever
	life   time.Duration // how old one may get; 0: as old as it will

	mu    sync.Mutex
	idle  []*wire // the one that was used last at the end
	ended bool    // the session is over: what comes back is closed
}

// take gives a wire that was made before; nil: there is none.
func (ls *wires) take(now time.Time) *wire {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for len(ls.idle) > 0 {
		l := ls.idle[len(ls.idle)-1]
		if ls.rest > 0 && now.Sub(l.since) > ls.rest {
			ls.closeIdle() // the others have been there for longer
			return nil
		}
		ls.idle[len(ls.idle)-1] = nil
		ls.idle = ls.idle[:len(ls.idle)-1]
		if ls.life <= 0 || now.Sub(l.made) <= ls.life {
			return l
		}
		l.close()
	}
	return nil
}

// put gives a wire back.
func (ls *wires) put(l *wire, now time.Time) {
	l.since, l.later, l.w = now, time.Time{}, l.w[:0]
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.ended {
		l.close()
		return
	}
	ls.idle = append(ls.idle, l)
}

// purge closes what is not in use: one has turned out to be dead, and what cut it has cut the others too, probably. Each would be found out by a read.
func (ls *wires) purge() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closeIdle()
}

// end is purge, for good.
func (ls *wires) end() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.ended = true
	ls.closeIdle()
}

func (ls *wires) closeIdle() {
	for _, l := range ls.idle {
		l.close()
	}
	ls.idle = nil
}

func (l *wire) close() {
	_ = l.held.Close() // they have nothing to say but that the connection is closed already
	_ = l.driver.Close()
}

// newWire connects.
func (s *Session) newWire(ctx context.Context) (*wire, error) {
	l := &wire{w: make([]byte, 0, 256), made: time.Now()}
	o := s.options()
	o.PoolSize, o.Limiter = 1, nil
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := s.dialFor(ctx, network, addr, true)
		l.conn = conn
		return conn, err
	}
	greet, met := o.OnConnect, false
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		err := greet(ctx, cn)
		met = err == nil
		return err
	}
	l.driver = redis.NewClient(&o)
	// Held until the end: an idle connection of a pool may be closed, or given a new password, at a moment of the driver's choice.
	l.held = l.driver.Conn()
	// The driver connects for a command only. This user may not be permitted to ping: the refusal says as well that the connection stands.
	var reply redis.Error
	if err := l.held.Ping(ctx).Err(); err != nil && !(errors.As(err, &reply) && met) {
		l.close()
		return nil, err
	}
	l.r = bufio.NewReaderSize(l, bufferSize)
	l.pulse.of(l.conn)
	return l, nil
}

// open begins a read: it takes a wire, or makes one, and gives it its deadline, limit from now or the caller's. What it begins ends with done, if there is no error.
func (s *Session) open(ctx context.Context, op string, limit time.Duration) (*wire, error) {
	begin := s.beginRead
	if s.node.bodies { // the small part of the entry has been admitted, or will be; and that a body is not put may be the caller's error
		begin = s.begin
	}
	if err := begin(ctx, op); err != nil {
		return nil, err
	}
	l, err := s.prepare(ctx, limit, s.wires.turns)
	if err != nil {
		defer s.leave()
		return nil, s.failure(ctx, op, err)
	}
	return l, nil
}

// prepare takes a wire under one of turns, or makes one, and gives it its deadline. It ends with settle, if there is no error.
func (s *Session) prepare(ctx context.Context, limit time.Duration, turns chan struct{}) (*wire, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if gate := s.node.options.Limiter; gate != nil {
		if err := gate.Allow(); err != nil {
			return nil, err
		}
	}
	l, err := s.connected(ctx, limit, turns)
	if err != nil {
		s.report(err)
	}
	return l, err
}

// connected gives a wire with its deadline, and the turn that goes with it. A read that finds its wire dead is sent again; what may write is not, so the wire is looked at before.
func (s *Session) connected(ctx context.Context, limit time.Duration, turns chan struct{}) (*wire, error) {
	if err := s.turn(ctx, turns); err != nil {
		return nil, err
	}
	now := time.Now()
	l := s.wires.take(now)
	if l != nil && turns == s.wires.others && l.pulse.stopped() {
		l.close()
		s.wires.purge()
		l = nil
	}
	if l == nil {
		var err error
		if l, err = s.connect(ctx, turns); err != nil {
			return nil, err
		}
		now = time.Now()
	}
	if err := l.conn.SetDeadline(deadline(ctx, now, limit)); err != nil { // it is closed
		l.close()
		s.wires.purge()
		<-turns
		return nil, err
	}
	return l, nil
}

// deadline is limit from now, or the caller's.
func deadline(ctx context.Context, now time.Time, limit time.Duration) time.Time {
	at := now.Add(limit)
	if callers, ok := ctx.Deadline(); ok && callers.Before(at) {
		return callers
	}
	return at
}

// connect makes a wire under its caller's turn, which is given back where there is none. It goes on when the caller leaves; the wire is then for whoever comes next, and
// the turn is taken for as long as it is being made. Else
//
//  1. to connect takes 20 ms, and callers have 10
//  2. each begins anew, and none ever reads; what it has begun goes on behind its back, and nothing bounds how many do
func (s *Session) connect(ctx context.Context, turns chan struct{}) (*wire, error) {
	type outcome struct {
		l   *wire
		err error
	}
	made := make(chan outcome)
	s.users.Add(1) // its caller is one: the session has not come to its end
	go func() {
		defer s.leave()
		l, err := s.tryWire(context.WithoutCancel(ctx))
		select {
		case made <- outcome{l, err}:
			return
		case <-ctx.Done():
		}
		if err == nil {
			s.wires.put(l, time.Now())
		}
		<-turns
	}()
	select {
	case o := <-made:
		if o.err != nil {
			<-turns
		}
		return o.l, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tryWire is newWire. What the user has configured may panic (OnConnect, a provider of passwords): in a goroutine of ours that would be the end of the process.
func (s *Session) tryWire(ctx context.Context) (l *wire, err error) {
	defer func() {
		if p := recover(); p != nil {
			l, err = nil, &connectError{"connecting", fmt.Errorf("a panic: %v", p)}
		}
	}()
	return s.newWire(ctx)
}

// turn waits until a wire is free, for as long as for a connection of the driver's pool.
func (s *Session) turn(ctx context.Context, turns chan struct{}) error {
	select {
	case turns <- struct{}{}:
		return nil
	default:
	}
	timer := s.node.reads.timer(s.node.cfg.Timeout)
	defer s.node.reads.putTimer(timer)
	select {
	case turns <- struct{}{}:
		return nil
	case <-timer.C:
		return redis.ErrPoolTimeout
	case <-s.ended.Done():
		return s.gone()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// report tells the user's own limiter how an operation has ended.
func (s *Session) report(err error) {
	if gate := s.node.options.Limiter; gate != nil {
		gate.ReportResult(err)
	}
}

// done ends a read with its outcome, and returns what the caller gets.
func (s *Session) done(ctx context.Context, l *wire, op string, err error) error {
	defer s.leave()
	s.settle(l, s.wires.turns, err)
	if err == nil {
		s.answered()
		return nil
	}
	return s.failure(ctx, op, err)
}

// settle gives back a wire, and the turn, after what has come of it. An error reply of the server is an answer: the wire is as good as before.
func (s *Session) settle(l *wire, turns chan struct{}, err error) {
	defer func() { <-turns }()
	s.report(err)
	switch {
	case err == nil, replied(err):
		s.keepWire(l)
	default:
		l.close()
		if deadConnection(err) {
			s.wires.purge()
		}
	}
}

// keepWire puts a wire back after a reply. One on which more has come than was asked for is of no use: the next read would take the rest for its answer.
func (s *Session) keepWire(l *wire) {
	if l.answeredTwice() {
		l.close()
		return
	}
	s.wires.put(l, time.Now())
}
