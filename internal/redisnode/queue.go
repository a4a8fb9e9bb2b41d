// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// join queues a read. The caller holds mu, and sees that somebody holds a slot.
func (q *reads) join(key, beside string) read {
	row := q.known.row(key)
	var free *knownPlace
	for i := range row {
		b := q.queued(row[i])
		if b == nil {
			free = &row[i]
			continue
		}
		if a := &b.asks[row[i].at]; a.key == key && a.beside == beside { // callers of one key have the same second key, but for a caller of Get now and then
			a.callers++
			return read{b, int(row[i].at)}
		}
	}
	b := q.open()
	b.asks = append(b.asks, ask{key: key, beside: beside, since: time.Since(q.opened), callers: 1})
	r := read{b, len(b.asks) - 1}
	if free != nil {
		*free = knownPlace{q.first + uint32(len(q.queue)-1), uint32(r.at)}
	}
	return r
}

// queued is the batch of a place, if that is in the queue.
func (q *reads) queued(p knownPlace) *batch {
	if i := p.batch - q.first; i < uint32(len(q.queue)) && p.at < uint32(len(q.queue[i].asks)) {
		return q.queue[i]
	}
	return nil
}

// open is the batch that has room for another ask.
func (q *reads) open() *batch {
	if n := len(q.queue); n > 0 && len(q.queue[n-1].asks) < q.batchLocked() {
		return q.queue[n-1]
	}
	b := &batch{asks: make([]ask, 0, max(4, q.last)), done: make(chan struct{})}
	q.queue = append(q.queue, b)
	return b
}

// pop takes the oldest batch off the queue.
func (q *reads) pop() *batch {
	b := q.queue[0]
	q.queue = slices.Delete(q.queue, 0, 1)
	q.first++
	return b
}

// drain works off the queue and gives its slot back when there is nothing left. In a crowd it lets those go first who have just been answered, or come at the
// same time: what they read is in the next batch, which is the larger for it.
func (q *reads) drain() {
	var w work
	q.mu.Lock()
	crowded := q.crowded()
	q.mu.Unlock()
	if crowded {
		runtime.Gosched()
	}
	for b := q.take(nil); b != nil; b = q.take(b) {
		if w.carry(q.node, b); !b.left {
			close(b.done)
		}
		if len(b.asks) > 1 {
			runtime.Gosched()
		}
	}
}

// take removes a batch from the queue, after the one before has been done; nil: the slot has been given back. Reads that have waited for a whole timeout are answered
// here: the node is too slow for what is asked of it, and those behind them should not wait as well.
func (q *reads) take(before *batch) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if before != nil {
		before.over = true
		q.flying -= len(before.asks)
		if before.slow {
			q.stuck--
		}
		if before.answered {
			q.silent = false
		}
	}
	q.expire()
	if len(q.queue) == 0 || q.closed || q.gathers() || q.running() > q.enough() && !q.late() {
		q.busy--
		q.staff()
		return nil
	}
	b := q.queue[0]
	if most := q.batchLocked(); len(b.asks) > most { // more is known of the size of values than when they were queued
		q.queue[0] = b.split(most)
	} else {
		q.pop()
	}
	b.sent = true
	q.last = len(b.asks)
	q.flying += len(b.asks)
	q.crowd = max(q.flying, q.crowd-q.crowd/8-1)
	return b
}

// leaves says that a caller does not wait for r any longer, of which it thinks that it is slow. If it is under way its slot does not count: others
// that are queued would wait for it too.
func (q *reads) leaves(r read) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for r.follow() {
	}
	if b := r.in; b.sent && !b.over {
		q.slow(b)
	}
}

// slow notes that the command of a batch is slow. The caller holds mu.
func (q *reads) slow(b *batch) {
	if !b.slow {
		b.slow = true
		q.stuck++
		q.staff()
	}
}

// expire answers the reads that have been queued for as long as the timeout; or as callers wait, where no command is answered: the next one would not be either. The caller holds mu.
func (q *reads) expire() {
	most, silent := q.node.cfg.Timeout, q.silent || q.running() == 0
	if silent {
		most = q.node.pace.wait()
	}
	var late error
	for before := time.Since(q.opened) - most; len(q.queue) > 0; {
		b := q.queue[0]
		n := 0
		for n < len(b.asks) && b.asks[n].since < before {
			n++
		}
		if n == 0 {
			return
		}
		if late == nil {
			late = &Error{Node: q.node.cfg.ID, Op: "GET", Err: redis.ErrPoolTimeout}
		}
		if silent {
			late = q.node.left("GET")
		}
		if n < len(b.asks) {
			q.queue[0] = b.split(n)
		} else {
			q.pop()
		}
		b.end(late)
	}
}

// work is what a worker needs for its commands, again and again.
type work struct {
	names  []string
	values [][]byte
}

// carry reads the asks of a batch.
func (w *work) carry(n *Node, b *batch) {
	w.names = b.names(w.names[:0])
	w.values = slices.Grow(w.values[:0], len(w.names))[:len(w.names)]
	sent, limit := time.Now(), n.cfg.Timeout // which bounds it
	if n.pace.patience() > 0 {               // callers leave by themselves, but for those who came before that began
		limit *= slowTimes
	}
	err := n.mgetEarly(limit, sent.Add(n.reads.waitFor(b)), func() { n.reads.giveUp(b) }, w.names, w.values)
	n.pace.ended(sent, err)
	b.answered = err == nil
	if len(b.asks) > 1 && IsTimeout(err) { // too much for one command, perhaps
		n.reads.shrink(len(b.asks))
	}
	switch {
	case b.left:
	case err != nil:
		for i := range b.asks {
			b.asks[i].err = err
		}
	default:
		b.fill(w.names, w.values)
		b.confirm(n)
	}
	clear(w.names)
	clear(w.values)
}

// waitFor is how long the callers of a batch wait for its command: what they have waited in the queue is a part of the timeout, but for as long as they wait at least. While nothing is answered
// it is a part of their whole wait, but for a quarter of that.
func (q *reads) waitFor(b *batch) time.Duration {
	q.mu.Lock()
	silent := q.silent
	q.mu.Unlock()
	queued, wait := time.Since(q.opened)-b.asks[0].since, q.node.pace.wait()
	if silent {
		return min(wait, max(wait-queued, wait/4))
	}
	return min(wait, max(q.node.cfg.Timeout-queued, q.node.pace.least()))
}

// confirm asks by GET for what a caller of Get would be told is missing: MGET says the same of a list, and the answer must not depend on whether others read at
// the same time. One more round trip, where somebody asked for a name that is not there.
func (b *batch) confirm(n *Node) {
	var missing []*ask
	var commands []Command
	for i := range b.asks {
		if a := &b.asks[i]; a.beside == "" && a.value == nil {
			missing, commands = append(missing, a), append(commands, Command{"GET", a.key})
		}
	}
	results := n.DoMany(context.Background(), commands) // the timeout bounds it
	for tries := 1; len(results) > 0 && readAgain(results[0].Err, tries); tries++ {
		results = n.DoMany(context.Background(), commands)
	}
	for i, result := range results {
		a := missing[i]
		if a.err = result.Err; a.err == nil && result.Reply != nil { // it has come meanwhile
			text, _ := result.Reply.(string)
			a.value = []byte(text)
		}
	}
}

// batch is how many keys one MGET for several callers should have.
func (q *reads) batch() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.batchLocked()
}

func (q *reads) batchLocked() int {
	if q.size == 0 {
		return batchKeys
	}
	return min(batchKeys, int(max(1, batchBytes/q.size)))
}

// shrink takes in that an MGET of so many keys was too much.
func (q *reads) shrink(keys int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.size = max(q.size, batchBytes/int64(keys/2))
}
