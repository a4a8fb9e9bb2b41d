// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// slowTimes is how many timeouts a read that its callers have left may take. A connection whose reply does not come in time is closed, and to make another one
// takes three replies more of a node that is slow to reply.
const slowTimes = 2

// getImpatiently is GetBeside of a node of which some replies are slow, see pace: it waits for patience, then asks anew, over another connection, and waits
// as long again, then twice as long, and so on, but in all as long as anybody waits for this node. What it has left goes on to its end, mostly without it: the connection stays good.
func (n *Node) getImpatiently(ctx context.Context, key, beside string, patience time.Duration) (value, besideValue []byte, err error) {
	left := n.pace.wait() // of a node that hangs no try is answered: it looks like this one until it is down
	patience = min(patience, left)
	timer := n.reads.timer(patience)
	defer n.reads.putTimer(timer)
	var first *read
	for try := 0; ; try++ {
		left -= patience
		r, err := n.reads.queueUp(key, beside)
		if err != nil {
			return nil, nil, err
		}
		done, err := r.waitBeside(ctx, timer.C, first)
		if err != nil {
			return nil, nil, err
		}
		if done != nil {
			return done.answer()
		}
		n.reads.leaves(r)
		if left <= 0 { // the command says for itself what became of it
			return nil, nil, n.left("GET")
		}
		if first == nil {
			first = &r
		}
		if patience = min(patience, left); try > 0 {
			patience = min(2*patience, left)
		}
		timer.Reset(patience)
	}
}

// waitBeside is wait for a caller who has left an earlier read, first: it is as good an answer, if it comes. Of a node that has become slow as a whole it is the first one that does. nil: late has come.
func (r *read) waitBeside(ctx context.Context, late <-chan time.Time, first *read) (*read, error) {
	for {
		var before chan struct{}
		if first != nil {
			before = first.in.done
		}
		select {
		case <-r.in.done:
			if !r.follow() {
				return r, nil
			}
		case <-before:
			if first.follow() {
				continue
			}
			if first.in.asks[first.at].err == nil {
				return first, nil
			}
			first = nil
		case <-late:
			return nil, nil //nolint:nilnil // as said above
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// timer is a timer for a reader: on such a node each read needs one.
func (q *reads) timer(d time.Duration) *time.Timer {
	if timer, ok := q.timers.Get().(*time.Timer); ok {
		timer.Reset(d)
		return timer
	}
	return time.NewTimer(d)
}

// putTimer gives it back.
func (q *reads) putTimer(timer *time.Timer) {
	timer.Stop() // what it had to say is gone with that
	q.timers.Put(timer)
}

// queueUp queues a read, and sees that somebody works off the queue.
func (q *reads) queueUp(key, beside string) (read, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return read{}, q.closedError()
	}
	r := q.join(key, beside)
	q.staff()
	return r, nil
}

// EvalAgain is Eval where some of the node's replies are slow, see pace: it waits for patience, then makes another call, and waits twice as long, and so on until the timeout
// is used up, as reads do (getImpatiently). call gives the call of a try, from 0, and must allow for the earlier ones, which may be carried out
// before it, after it, or never. It returns the try that was answered, or the last. What becomes of the others is told to late.
func (s *Session) EvalAgain(ctx context.Context, call func(try int) Call, late func(try int, reply any, err error)) (try int, reply any, err error) {
	patience := s.node.pace.patience()
	for left := s.node.cfg.Timeout; ; try++ {
		left -= patience
		this := try
		reply, err = s.evalFor(ctx, call(try), patience, func(reply any, err error) { late(this, reply, err) })
		if left <= 0 || !errors.Is(err, errLeft) {
			return try, reply, err
		}
		patience = min(2*patience, left)
	}
}

// EvalImpatiently is Eval that waits for patience only, where some of the node's replies are slow, see pace. Its error is a timeout then, which is not counted against the node: the outcome
// will be, of which nobody is told.
func (s *Session) EvalImpatiently(ctx context.Context, c Call) (any, error) {
	return s.evalFor(ctx, c, s.node.pace.patience(), func(any, error) {})
}

// evalFor is Eval that is waited for no longer than patience; 0: to its end. What its caller has left goes on without it, for the timeout at most; then late is told of the
// outcome, once, from another goroutine, for which Close waits.
func (s *Session) evalFor(ctx context.Context, c Call, patience time.Duration, late func(reply any, err error)) (any, error) {
	if patience == 0 {
		return s.Eval(ctx, c)
	}
	type outcome struct {
		reply any
		err   error
	}
	done := make(chan outcome, 1)
	var settled atomic.Bool // by whoever is first: the outcome, or the caller who leaves
	if !s.node.reads.work(func() {
		reply, err := s.Eval(context.WithoutCancel(ctx), c)
		if done <- (outcome{reply, err}); !settled.CompareAndSwap(false, true) {
			late(reply, err)
		}
	}) {
		return nil, &Error{Node: s.node.cfg.ID, Op: c.op(), Err: ErrClosed}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case o := <-done:
		return o.reply, o.err
	case <-timer.C:
		err = &Error{Node: s.node.cfg.ID, Op: c.op(), Err: errLeft}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if settled.CompareAndSwap(false, true) {
		return nil, err
	}
	o := <-done // just now
	return o.reply, o.err
}

// work runs f in a goroutine for which Close waits; false: it is closed.
func (q *reads) work(f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.workers.Go(f)
	return true
}
