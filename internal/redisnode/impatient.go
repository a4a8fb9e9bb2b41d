// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"os"
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
