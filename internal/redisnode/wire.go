// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire is a connection over which this package speaks the protocol itself: for reads, which are most of what a cache does. The driver makes it, with all that
// belongs to that (TLS, HELLO, AUTH, the session's handshake), and never uses it again. A read by the driver costs some twenty allocations, a context with a
// deadline of its own, and a copy of each value; one over a wire costs the value.
//
// One command is under way on a wire at a time. What has gone wrong half-way leaves it in an unknown state: then it is closed.
type wire struct {
	driver *redis.Client // which made the connection, and has no other
	held   *redis.Conn   // it, as taken out of the driver's pool
	conn   net.Conn
	r      *bufio.Reader
	w      []byte    // the command
	later  time.Time // until when a reply may take that has begun; zero: as the connection's deadline says
	made   time.Time
	since  time.Time // when it was last put back
}

// wires are those of a session: a bounded number, of which each read takes one and gives it back.
type wires struct {
	turns chan struct{} // a token each read that has a wire, or is making one
	rest  time.Duration // for how long one may be idle; 0: for ever
	life  time.Duration // how old one may get; 0: as old as it will

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
	l.since, l.later = now, time.Time{}
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
	l, err := s.prepare(ctx, limit)
	if err != nil {
		defer s.leave()
		return nil, s.failure(ctx, op, err)
	}
	return l, nil
}

func (s *Session) prepare(ctx context.Context, limit time.Duration) (*wire, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if gate := s.node.options.Limiter; gate != nil {
		if err := gate.Allow(); err != nil {
			return nil, err
		}
	}
	l, err := s.connected(ctx, limit)
	if err != nil {
		s.report(err)
	}
	return l, err
}

// connected gives a wire with its deadline, and the turn that goes with it.
func (s *Session) connected(ctx context.Context, limit time.Duration) (*wire, error) {
	if err := s.turn(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	l := s.wires.take(now)
	if l == nil {
		var err error
		if l, err = s.connect(ctx); err != nil {
			return nil, err
		}
		now = time.Now()
	}
	deadline := now.Add(limit)
	if callers, ok := ctx.Deadline(); ok && callers.Before(deadline) {
		deadline = callers
	}
	if err := l.conn.SetDeadline(deadline); err != nil { // it is closed
		l.close()
		s.wires.purge()
		<-s.wires.turns
		return nil, err
	}
	return l, nil
}

// connect makes a wire under its caller's turn, which is given back where there is none. It goes on when the caller leaves; the wire is then for whoever comes next, and
// the turn is taken for as long as it is being made. Else
//
//  1. to connect takes 20 ms, and callers have 10
//  2. each begins anew, and none ever reads; what it has begun goes on behind its back, and nothing bounds how many do
func (s *Session) connect(ctx context.Context) (*wire, error) {
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
		<-s.wires.turns
	}()
	select {
	case o := <-made:
		if o.err != nil {
			<-s.wires.turns
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
func (s *Session) turn(ctx context.Context) error {
	select {
	case s.wires.turns <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(s.node.cfg.Timeout)
	defer timer.Stop()
	select {
	case s.wires.turns <- struct{}{}:
		return nil
	case <-timer.C:
		return redis.ErrPoolTimeout
	case <-s.ended.Done():
		return s.gone()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// report tells the user's own limiter how a read has ended.
func (s *Session) report(err error) {
	if gate := s.node.options.Limiter; gate != nil {
		gate.ReportResult(err)
	}
}

// done ends a read with its outcome, and returns what the caller gets. An error reply of the server is an answer: the wire is as good as before.
func (s *Session) done(ctx context.Context, l *wire, op string, err error) error {
	defer s.leave()
	defer func() { <-s.wires.turns }()
	s.report(err)
	switch {
	case err == nil:
		s.keepWire(l)
		s.answered()
		return nil
	case replied(err):
		s.keepWire(l)
	default:
		l.close()
		if deadConnection(err) {
			s.wires.purge()
		}
	}
	return s.failure(ctx, op, err)
}

// keepWire puts a wire back after a reply. One on which more has come than was asked for is of no use: the next read would take the rest for its answer.
func (s *Session) keepWire(l *wire) {
	if l.answeredTwice() {
		l.close()
		return
	}
	s.wires.put(l, time.Now())
}

// send sends a command of these arguments.
func (l *wire) send(args ...string) error {
	return l.sendTo(args[0], args[1:])
}

// sendTo sends a command with its names.
func (l *wire) sendTo(command string, names []string) error {
	l.w = appendCommand(l.w[:0], command, names)
	_, err := l.conn.Write(l.w)
	if cap(l.w) > bufferSize { // the names of a large batch, once
		l.w = nil
	}
	return err
}

// appendCommand appends a command in the protocol's form: an array of bulk strings.
func appendCommand(w []byte, command string, args []string) []byte {
	w = append(w, '*')
	w = strconv.AppendInt(w, int64(1+len(args)), 10)
	w = append(w, "\r\n"...)
	w = appendBulk(w, command)
	for _, arg := range args {
		w = appendBulk(w, arg)
	}
	return w
}

func appendBulk(w []byte, s string) []byte {
	w = append(w, '$')
	w = strconv.AppendInt(w, int64(len(s)), 10)
	w = append(w, "\r\n"...)
	w = append(w, s...)
	return append(w, "\r\n"...)
}
