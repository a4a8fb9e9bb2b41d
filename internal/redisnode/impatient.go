// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"os"
	"sync/atomic"
	"time"
)

// slowTimes is how many timeouts a read that its callers have left may take. A connection whose reply does not come in time is closed, and to make another one
// takes three replies more of a node that is slow to reply.
const slowTimes = 2

// mgetSlow is MGet for a node of which some replies are slow: nobody waits for this one.
func (s *Session) mgetSlow(ctx context.Context, keys []string) ([][]byte, error) {
	return s.mget(ctx, slowTimes*s.node.cfg.Timeout, keys)
}

// getImpatiently is GetBeside of a node of which some replies are slow, see pace: it waits for patience, then asks anew, over another connection, and waits
// twice as long, and so on until the timeout is used up. What it has left goes on to its end, without it: the connection stays good.
func (n *Node) getImpatiently(ctx context.Context, key, beside string, patience time.Duration) (value, besideValue []byte, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for left := n.cfg.Timeout; ; {
		left -= patience
		r, err := n.reads.queueUp(key, beside)
		if err != nil {
			return nil, nil, err
		}
		select {
		case <-r.done:
			return r.answer()
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-timer.C:
		}
		if left <= 0 { // the command says for itself what became of it
			return nil, nil, &Error{Node: n.cfg.ID, Op: "GET", Err: os.ErrDeadlineExceeded}
		}
		patience = min(2*patience, left)
		timer.Reset(patience)
	}
}

// queueUp queues a read, and sees that somebody works off the queue.
func (q *reads) queueUp(key, beside string) (*read, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, &Error{Node: q.node.cfg.ID, Op: "GET", Err: ErrClosed}
	}
	r := q.join(key, beside)
	if q.busy < q.node.cfg.wires() { // as many as there are: a slow one keeps its slot
		q.busy++
		q.workers.Go(q.drain)
	}
	return r, nil
}

// EvalImpatiently is Eval that waits for patience only, where some of the node's replies are slow, see pace: all readers of a key wait for its lease and its fill.
// What it has left goes on to its end without it, for the timeout at most; then late is told of the outcome, once, from another goroutine, for which Close waits.
// The error is a timeout, which is not counted against the node: the outcome will be.
func (s *Session) EvalImpatiently(ctx context.Context, c Call, late func(reply any, err error)) (any, error) {
	patience := s.node.pace.patience()
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
		err = &Error{Node: s.node.cfg.ID, Op: c.op(), Err: os.ErrDeadlineExceeded}
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
