// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// manySlots is how many MGETs, or batches of them, a node has under way at once. Where more are asked for, those that wait go out together: the fewer there may be,
	// the larger the batches, and the fewer system calls both sides make for each.
	manySlots = 2
	// manyKeys bounds the keys of such a batch.
	manyKeys = 512
)

// manys lets the MGETs of concurrent batches (see Many) share round trips, as reads does for single keys: who finds a slot free sends his own command, the others queue, and a
// worker takes what is queued in one write. A command leaves the queue before it is sent, and nothing is shared but the round trip: each has a reply of its own.
type manys struct {
	node  *Node
	slots int

	mu      sync.Mutex
	busy    int // slots taken
	queue   []*Many
	closed  bool
	workers sync.WaitGroup // each holds a slot
}

// enter takes a slot (true), or queues. A node that is closed does neither, and says so by m's error.
func (q *manys) enter(m *Many) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		m.err = q.closedError()
		return false
	case q.busy < q.slots:
		q.busy++
		return true
	}
	q.join(m)
	return false
}

func (q *manys) closedError() error { return &Error{Node: q.node.cfg.ID, Op: "MGET", Err: ErrClosed} }

func (q *manys) join(m *Many) {
	m.queued, m.since, m.done = true, time.Now(), make(chan struct{})
	q.queue = append(q.queue, m)
}

// hand queues m, and gives its slot to a worker. A node that was closed meanwhile has none, for which nobody would wait.
func (q *manys) hand(m *Many) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.busy--
		m.err = q.closedError()
		return
	}
	q.join(m)
	q.workers.Go(q.drain)
}

// leave gives the slot back, or hands it to a worker for the queue.
func (q *manys) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 || q.closed {
		q.busy--
		return
	}
	q.workers.Go(q.drain)
}

// drain works off the queue and gives its slot back when there is nothing left.
func (q *manys) drain() {
	for {
		batch := q.take()
		if len(batch) == 0 {
			return
		}
		q.exchange(context.Background(), batch, 1) // the timeout bounds it; callers leave by themselves
	}
}

// take removes a batch from the queue; none gives the slot back. What has waited for a whole timeout is answered here, as in reads.
func (q *manys) take() []*Many {
	most := q.node.BatchKeys(manyKeys)
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for len(q.queue) > 0 && now.Sub(q.queue[0].since) > q.node.cfg.Timeout {
		q.fail(&Error{Node: q.node.cfg.ID, Op: "MGET", Err: redis.ErrPoolTimeout})
	}
	n, keys := 0, 0
	for _, m := range q.queue {
		if keys += m.keys; n > 0 && keys > most {
			break
		}
		n++
	}
	batch := q.queue[:n:n]
	q.queue = q.queue[n:]
	if n == 0 {
		q.busy--
		q.queue = nil // let go of the array
	}
	return batch
}

// fail answers the first command of the queue with an error. The caller holds mu.
func (q *manys) fail(err error) {
	m := q.queue[0]
	q.queue = q.queue[1:]
	m.err = err
	m.deliver()
}

// refuse answers all that is queued with an error: the node is down.
func (q *manys) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) > 0 {
		q.fail(err)
	}
}

// close fails what is queued and waits for the workers.
func (q *manys) close() {
	q.mu.Lock()
	q.closed = true
	for len(q.queue) > 0 {
		q.fail(q.closedError())
	}
	q.mu.Unlock()
	q.workers.Wait()
}

// deliver says that m's outcome is final. It is its caller's from then on.
func (m *Many) deliver() {
	if m.queued {
		close(m.done)
	}
}

// exchange sends a batch and delivers the outcomes, on the present session; what had no reply goes out again as readAgain says. tries counts this one.
func (q *manys) exchange(ctx context.Context, batch []*Many, tries int) {
	for ; ; tries++ {
		rest, err := q.node.Session().mgetMany(ctx, batch)
		if err == nil {
			return
		}
		if batch = rest; !readAgain(err, tries) {
			for _, m := range batch {
				m.err = err
				m.deliver()
			}
			return
		}
	}
}

// mgetMany sends the commands of a batch in one write, reads the replies in turn, and delivers each. The error is why there is none for the rest. The deadline is that of one command.
func (s *Session) mgetMany(ctx context.Context, batch []*Many) (rest []*Many, err error) {
	l, err := s.open(ctx, "MGET", s.node.cfg.Timeout)
	if err != nil {
		return batch, err
	}
	err = l.sendMany(batch)
	var refused []*Many // by the server: the connection goes on
	var reason error
	for err == nil && len(batch) > 0 {
		m := batch[0]
		if err = m.receive(l); replied(err) {
			refused, reason, err = append(refused, m), err, nil
		} else if err == nil {
			m.err = nil
			m.deliver()
		}
		if err == nil {
			batch = batch[1:]
		}
	}
	if err == nil {
		reason = s.done(ctx, l, "MGET", reason)
	} else if err = s.done(ctx, l, "MGET", err); reason != nil {
		reason = s.failure(ctx, "MGET", reason)
	}
	for _, m := range refused {
		m.err = reason
		m.deliver()
	}
	return batch, err
}

func (l *wire) sendMany(batch []*Many) error {
	l.w = l.w[:0]
	for _, m := range batch {
		l.w = append(l.w, m.command...)
	}
	_, err := l.conn.Write(l.w)
	if cap(l.w) > bufferSize {
		l.w = nil
	}
	return err
}
