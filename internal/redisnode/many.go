// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"
)

// Many is one MGET in steps: [Many.Send] does not wait for the reply, so that one goroutine can ask several nodes and then take their replies in turn. Without it each
// node would cost a batch a goroutine, which is woken up twice.
//
//	m := node.Many(len(names))
//	m.Add(name) // for each
//	m.Send(ctx, until)
//	if m.Here() { // else somebody else should go on with it: the reply may take as long as the timeout
//		err := m.Read(ctx)
//	}
//	m.Free()
//
// A Many is not safe for concurrent use, but may be handed on. Whoever has called Send must call Read, and after that Free.
type Many struct {
	node    *Node
	keys    int
	command []byte
	spans   []span
	values  [][]byte
	reply   []byte // what the values are cut out of

	// Of a command that its caller has sent himself:
	session  *Session
	wire     *wire // nil: it is over, or has been queued
	deadline time.Time
	until    time.Time

	// Of one that is queued; see manys:
	queued bool
	since  time.Time
	done   chan struct{} // closed: err and values are final. Made anew each time: one of a test's bubble must not get out of it

	err error
}

var unusedManys = sync.Pool{New: func() any { return new(Many) }}

// Many begins an MGET of so many keys, at least one.
func (n *Node) Many(keys int) *Many {
	m, _ := unusedManys.Get().(*Many) // it has no others
	m.node, m.keys = n, keys
	if cap(m.values) < keys {
		m.values, m.spans = make([][]byte, keys), make([]span, keys)
	}
	m.values, m.spans = m.values[:keys], m.spans[:keys]
	m.command = append(m.command[:0], '*')
	m.command = strconv.AppendInt(m.command, int64(keys)+1, 10)
	m.command = append(m.command, "\r\n$4\r\nMGET\r\n"...)
	return m
}

// Add adds the next key.
func (m *Many) Add(key string) {
	m.command = append(m.command, '$')
	m.command = strconv.AppendInt(m.command, int64(len(key)), 10)
	m.command = append(m.command, "\r\n"...)
	m.command = append(m.command, key...)
	m.command = append(m.command, "\r\n"...)
}

// Send sends the command, over a connection of its own where one is free, or leaves it to the node's worker (see manys). It does not wait, but for room in the socket's buffer: commands
// of more than some 16 KiB are not for it. The deadline is that of [Node.MGet]: the timeout, or that of ctx. until is how long Here waits.
func (m *Many) Send(ctx context.Context, until time.Time) {
	q := &m.node.manys
	if m.err = ctx.Err(); m.err != nil {
		return
	}
	if m.err = m.node.breaker.shut("MGET"); m.err != nil {
		return
	}
	if !q.enter(m) {
		return
	}
	if !m.sendNow(ctx, until) { // a worker waits for a connection, or for one that is alive
		q.hand(m)
		return
	}
	if m.wire == nil {
		q.leave()
	}
}

// sendNow sends the command over a connection that is free; false: there is none.
func (m *Many) sendNow(ctx context.Context, until time.Time) bool {
	s := m.node.Session()
	l, deadline, err := s.openNow(ctx, "MGET", s.node.cfg.Timeout, until)
	if l == nil {
		m.err = err
		return err != nil
	}
	if _, err = l.conn.Write(m.command); err != nil {
		err = s.done(ctx, l, "MGET", err)
		if readAgain(err, 1) {
			return false
		}
		m.err = err
		return true
	}
	m.session, m.wire, m.deadline, m.until = s, l, deadline, until
	return true
}

// openNow is open for those who do not wait: no wire and no error is that none is free. Its reads end at until already.
func (s *Session) openNow(ctx context.Context, op string, limit time.Duration, until time.Time) (*wire, time.Time, error) {
	var deadline time.Time
	if s.node.options.Limiter != nil { // the user's: nobody knows how long it takes
		return nil, deadline, nil
	}
	if err := s.begin(ctx, op); err != nil {
		if runChanged(err) { // the next one will do
			err = nil
		}
		return nil, deadline, err
	}
	select {
	case s.wires.turns <- struct{}{}:
	default:
		s.leave()
		return nil, deadline, nil
	}
	now := time.Now()
	deadline = now.Add(limit)
	if callers, ok := ctx.Deadline(); ok && callers.Before(deadline) {
		deadline = callers
	}
	l := s.wires.take(now)
	if l != nil {
		// Only who has a connection draws whether it may be used: the others will draw where they get theirs, and of two draws a share s leaves s*s.
		if err := s.node.breaker.admit(op); err != nil {
			s.wires.put(l, l.since)
			<-s.wires.turns
			s.leave()
			return nil, deadline, err
		}
		err := l.conn.SetWriteDeadline(deadline)
		if err == nil {
			err = l.conn.SetReadDeadline(earlier(until, deadline))
		}
		if err == nil {
			return l, deadline, nil
		}
		l.close() // it is closed
		s.wires.purge()
	}
	<-s.wires.turns
	s.leave()
	return nil, deadline, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Sent says that the command is on its way over a connection of its own, so that its reply must be read before the deadline.
func (m *Many) Sent() bool { return m.wire != nil }

// Here reads the reply to a command that was sent, if it comes as a whole before the time that was given to Send; then Read does not wait any more. False: it has not come, or only in part, or is too long for
// the connection's buffer.
func (m *Many) Here() bool {
	if m.wire == nil {
		return !m.queued
	}
	reply, err := m.wire.whole(m.spans)
	if err != nil {
		return false // also if the connection is dead: who reads will see
	}
	m.take(reply)
	m.end(m.session.done(context.Background(), m.wire, "MGET", nil))
	return true
}

// take keeps a reply.
func (m *Many) take(reply []byte) {
	m.reply = append(m.reply[:0], reply...)
	total, found := 0, 0
	for i, at := range m.spans {
		if at.from < 0 {
			m.values[i] = nil
			continue
		}
		m.values[i] = m.reply[at.from:at.to:at.to]
		total, found = total+at.to-at.from, found+1
	}
	m.node.reads.learnSize(total, found)
}

// receive reads the reply from a wire, however long it takes until the wire's deadline.
func (m *Many) receive(l *wire) error {
	reply, err := l.whole(m.spans)
	if err == nil {
		m.take(reply)
		return nil
	}
	if !errors.Is(err, errNotWhole) {
		return err
	}
	if err = l.values(m.values); err == nil {
		m.node.reads.learn(m.values)
	}
	return err
}

// end notes what became of the command that was sent over a connection of its own.
func (m *Many) end(err error) {
	m.err, m.session, m.wire = err, nil, nil
	m.node.manys.leave()
}

// Read waits for the reply. The values are those of [Node.MGet], but that they are only valid until Free: it is their caller who copies what is kept. So are the errors, and
// where a connection turned out to be dead it asks again, as MGet does.
func (m *Many) Read(ctx context.Context) ([][]byte, error) {
	switch {
	case m.queued:
		if err := m.wait(ctx); err != nil {
			return nil, err
		}
	case m.wire != nil:
		m.readOn(ctx)
	}
	if m.err != nil {
		return nil, m.err
	}
	return m.values, nil
}

// wait waits for the worker. A caller that leaves leaves the command to it, and to nobody else.
func (m *Many) wait(ctx context.Context) error {
	select {
	case <-m.done:
		m.queued = false
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readOn is Read for a reply that Here has not waited for.
func (m *Many) readOn(ctx context.Context) {
	l := m.wire
	err := l.conn.SetReadDeadline(m.deadline)
	if err == nil {
		err = m.receive(l)
	}
	err = m.session.done(ctx, l, "MGET", err)
	m.end(err)
	if readAgain(err, 1) {
		m.node.manys.exchange(ctx, []*Many{m}, 2)
	}
}

// Free gives back what m takes: its values are not valid any more, nor is m.
func (m *Many) Free() {
	if m.wire != nil { // nobody has read the reply: the next command would take it for its own
		m.wire.close()
		<-m.session.wires.turns
		m.session.leave()
		m.end(nil)
	}
	if m.queued { // the worker has it
		return
	}
	m.node, m.err, m.done = nil, nil, nil
	clear(m.values)
	if cap(m.reply) > bufferSize {
		m.reply = nil
	}
	if cap(m.command) > bufferSize {
		m.command = nil
	}
	unusedManys.Put(m)
}
