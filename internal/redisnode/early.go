// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Where replies of a node take a millisecond, who has waited for twenty need not wait for the rest of the timeout: the node hangs, probably, and the source answers sooner. So
// a read that has not begun to be answered when pace.wait is over ends for its callers. The command goes on to the timeout, without them: its
// outcome is what the breaker and the next estimate go by, and the connection stays good.

// errLeft is the error of a command that its callers have left.
var errLeft = fmt.Errorf("later than the replies of the node usually are: %w", os.ErrDeadlineExceeded)

// left is what callers get who leave a command. It does not count against the node, but for this: a heartbeat soon tells more.
func (n *Node) left(op string) error {
	n.breaker.hurry()
	return &Error{Node: n.cfg.ID, Op: op, Err: errLeft}
}

// lastLook is how long a reply is looked for once the wait for it is over. A deadline passes also while this process has no processor to spare, and then the reply is there.
const lastLook = time.Millisecond

// inTime waits until a reply begins, or the read deadline that is set has passed; false: it has not begun. From then on reads have until deadline.
func (l *wire) inTime(deadline time.Time) (bool, error) {
	_, err := l.r.Peek(1)
	if err == nil { // before what follows takes memory, and a look at the clock
		l.later = deadline
		return true, nil
	}
	for _, until := range []time.Time{time.Now().Add(lastLook), deadline} {
		if !timedOut(err) || !time.Now().Before(deadline) {
			l.later = deadline
			return true, err
		}
		if err = l.conn.SetReadDeadline(earlier(until, deadline)); err == nil && until != deadline {
			_, err = l.r.Peek(1)
		}
	}
	return false, err
}

// Read reads from the connection, for the buffer. A reply that has begun in time may take the rest of the timeout.
func (l *wire) Read(p []byte) (int, error) {
	n, err := l.conn.Read(p)
	if err == nil || l.later.IsZero() || !timedOut(err) {
		return n, err
	}
	err = l.conn.SetReadDeadline(l.later)
	if l.later = (time.Time{}); err != nil {
		return n, err
	}
	return l.conn.Read(p)
}

// fate is what became of a command.
type fate int

const (
	over    fate = iota
	unsent       // no connection is free, or that one was dead
	goingOn      // in its slot, without its caller
)

// getEarly is getNow for a caller who waits for wait, or as long as ctx does.
func (n *Node) getEarly(ctx context.Context, key, beside string, wait time.Duration) (v, b []byte, f fate, err error) {
	if err = ctx.Err(); err != nil {
		return nil, nil, over, err
	}
	began := time.Now()
	until := began.Add(wait)
	callers, bound := ctx.Deadline()
	if bound {
		until = earlier(until, callers)
	}
	g := earlyGet{node: n, session: n.Session(), began: began, keys: [2]string{key, beside}, op: "GET"}
	if beside != "" {
		g.op = "MGET"
	}
	var deadline time.Time
	if g.wire, deadline, err = g.session.openNow(context.Background(), g.op, n.cfg.Timeout, until); g.wire == nil { //nolint:contextcheck // the command may outlive its caller
		if err == nil {
			f = unsent
		}
		return nil, nil, f, err
	}
	timely := true
	if err = g.send(); err == nil {
		timely, err = g.wire.inTime(deadline)
	}
	if !timely && err == nil {
		// A copy of its own, so that the one above stays on the stack.
		rest := g
		if n.reads.handOn(func() bool { _, _, err := rest.read(context.Background(), nil); return err == nil }) { //nolint:contextcheck // the command may outlive its caller
			if err = callerEnded(ctx, os.ErrDeadlineExceeded); err == nil {
				err = n.left(g.op)
			}
			return nil, nil, goingOn, err
		}
	}
	if bound { // a reply that has begun is waited for by its caller
		g.wire.later = earlier(deadline, callers)
	}
	if v, b, err = g.read(ctx, err); readAgain(err, 1) {
		f = unsent
	}
	return v, b, f, err
}

// earlyGet is a GET, or MGET of two keys, that is under way.
type earlyGet struct {
	node    *Node
	session *Session
	wire    *wire
	began   time.Time
	op      string
	keys    [2]string
}

func (g *earlyGet) send() error {
	if g.keys[1] == "" {
		return g.wire.send(g.op, g.keys[0])
	}
	return g.wire.send(g.op, g.keys[0], g.keys[1])
}

// read reads the reply, unless there is an error already, and ends the command.
func (g *earlyGet) read(ctx context.Context, err error) (v, b []byte, _ error) {
	var both [2][]byte
	switch {
	case err != nil:
	case g.keys[1] == "":
		both[0], err = g.wire.value(largest)
	default:
		err = g.wire.values(both[:])
	}
	err = g.session.done(ctx, g.wire, g.op, err)
	g.node.pace.ended(g.began, err)
	if err != nil {
		return nil, nil, err
	}
	g.node.reads.learnOne(both[0])
	return both[0], both[1], nil
}

// mgetEarly is mgetInto for callers who wait until a time: when it has come late is called, once, and nobody asks again. It is not called any more when mgetEarly has returned.
func (n *Node) mgetEarly(limit time.Duration, until time.Time, late func(), keys []string, values [][]byte) error {
	gone := false
	leave := func() {
		if !gone {
			gone = true
			late()
		}
	}
	err := n.Session().mgetEarly(limit, until, leave, keys, values)
	for tries := 1; !gone && readAgain(err, tries); tries++ {
		err = n.Session().mgetEarly(limit, until, leave, keys, values)
	}
	if err == nil {
		n.reads.learn(values)
	}
	return err
}

func (s *Session) mgetEarly(limit time.Duration, until time.Time, late func(), keys []string, values [][]byte) error {
	ctx := context.Background() // the limit bounds it
	l, deadline, err := s.openNow(ctx, "MGET", limit, until)
	if l == nil && err == nil {
		l, deadline, err = s.openLate(ctx, "MGET", limit, until, late)
	}
	if err != nil {
		return err
	}
	if err = l.sendTo("MGET", keys); err == nil {
		var timely bool
		if timely, err = l.inTime(deadline); !timely {
			late()
		}
	}
	if err == nil {
		err = l.values(values)
	}
	return s.done(ctx, l, "MGET", err)
}

// openLate is open where no connection is free: to make one may take longer than callers wait.
func (s *Session) openLate(ctx context.Context, op string, limit time.Duration, until time.Time, late func()) (*wire, time.Time, error) {
	stop := callAt(until, late)
	l, err := s.open(ctx, op, limit)
	stop()
	deadline := time.Now().Add(limit)
	if err == nil {
		if err = l.conn.SetReadDeadline(earlier(until, deadline)); err != nil {
			err = s.done(ctx, l, op, err)
		}
	}
	return l, deadline, err
}

// callAt calls f at a time, unless it is stopped before. When stop has returned f has too, or is not called.
func callAt(t time.Time, f func()) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(time.Until(t), func() {
		defer close(done)
		f()
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// handOn leaves the rest of a command to a worker, in the slot of its caller, which is known to be slow from then on; false: it is closed. rest says whether there was an answer.
func (q *reads) handOn(rest func() (answered bool)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.stuck++
	q.silent = true
	q.workers.Go(func() {
		answered := rest()
		q.mu.Lock()
		q.stuck--
		q.mu.Unlock()
		q.leave(answered)
	})
	q.staff()
	return true
}

// giveUp ends the wait of a batch's callers; its command goes on.
func (q *reads) giveUp(b *batch) {
	q.mu.Lock()
	b.left, q.silent = true, true
	q.slow(b)
	q.mu.Unlock()
	b.end(q.node.left("GET"))
}
