// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import "time"

// outboxNode is what the outbox knows of a node while it holds keys for it. A node without keys is
// forgotten.
type outboxNode struct {
	queue fifo[*undone] // no attempt under way
	next  time.Time     // no batch before this
	turn  uint64        // the number of its last batch; who waits longest is served first
	batch outboxBatch

	// failures are the failed batches since the last that was good. The failed Put that brought
	// the node here is the first.
	failures int
}

// outboxBatch is a node's batch that is out, or the last one, and what has become of it so far.
type outboxBatch struct {
	out      int // attempts under way
	done     bool
	failed   bool
	failedAt time.Time // the latest failure
	draw     float64   // and its draw
	woken    bool      // Wake came since the batch began
}

// enqueue puts an entry at the end of its node's queue.
func (o *Outbox) enqueue(e *undone) {
	n := o.nodes[e.Node]
	if n == nil {
		// No jitter here: that many processes notice a dead node at their own moments is jitter
		// enough.
		n = &outboxNode{failures: 1, next: e.put.Add(o.config.MinBackoff)}
		o.nodes[e.Node] = n
	}
	n.queue.push(&e.inNode)
}

// forget drops a node that has nothing left to do.
func (o *Outbox) forget(id int) {
	if n := o.nodes[id]; n != nil && n.queue.len == 0 && n.batch.out == 0 {
		delete(o.nodes, id)
	}
}

// Due returns the next batch that is due at now, at most most keys of one node, and notes that
// their attempts have begun; nil when nothing is due or most is not positive. Nodes that are due
// take turns. Every key that was given out must come back through Done or Failed: until then its
// node gets no other batch.
func (o *Outbox) Due(now time.Time, most int) []Pending {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.dueNode(now)
	if n == nil || most <= 0 {
		return nil
	}
	if n.failures > 0 {
		most = min(most, probeSize)
	}
	o.turns++
	batch := make([]Pending, min(most, n.queue.len))
	n.turn, n.batch = o.turns, outboxBatch{out: len(batch)}
	o.inFlight += len(batch)
	for i := range batch {
		e := n.queue.first.of
		e.inNode.leave()
		o.stats.Attempts++
		e.attempt = o.stats.Attempts
		batch[i] = e.Pending
	}
	return batch
}

// dueNode is the node that may get a batch at now and has waited longest for one; by number where
// none has had one yet.
func (o *Outbox) dueNode(now time.Time) *outboxNode {
	var first *outboxNode
	firstID := 0
	for id, n := range o.nodes {
		if n.batch.out > 0 || n.queue.len == 0 || n.next.After(now) {
			continue
		}
		if first == nil || n.turn < first.turn || (n.turn == first.turn && id < firstID) {
			first, firstID = n, id
		}
	}
	return first
}

// Next returns when the next batch is due, a time in the past if one is due now; false when there
// is none to wait for, since nothing is pending or all that is pending waits for outcomes. Put,
// Done, Failed and Wake may bring it forward.
func (o *Outbox) Next() (at time.Time, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.nodes {
		if n.batch.out == 0 && n.queue.len > 0 && (!ok || n.next.Before(at)) {
			at, ok = n.next, true
		}
	}
	return at, ok
}

// Done reports that the attempt at p has confirmed every shelf. The key leaves the outbox, unless
// it was put again since the attempt began. A report about an attempt that is not under way (any
// more) does nothing.
func (o *Outbox) Done(p Pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.ended(p)
	if e == nil {
		return
	}
	o.nodes[p.Node].batch.done = true
	if e.again {
		e.again = false
		o.enqueue(e)
	} else {
		o.stats.Done++
		o.remove(e)
	}
	o.settle(p.Node)
}

// Failed reports at now that the attempt at p has failed at p's node. draw is a random number in
// [0, 1), the jitter of the node's next pause. A report about an attempt that is not under way (any
// more) does nothing.
func (o *Outbox) Failed(p Pending, now time.Time, draw float64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.ended(p)
	if e == nil {
		return
	}
	b := &o.nodes[p.Node].batch
	b.failed, b.draw = true, draw
	if b.failedAt.Before(now) {
		b.failedAt = now
	}
	e.again = false
	o.enqueue(e)
	o.settle(p.Node)
}

// ended finds the entry of an attempt that is under way and ends the attempt; nil if there is none.
func (o *Outbox) ended(p Pending) *undone {
	e := o.find(p.Name)
	if e == nil || p.attempt == 0 || e.attempt != p.attempt {
		return nil
	}
	e.attempt = 0
	o.inFlight--
	return e
}

// settle counts one outcome of a node's batch. The last one decides about the node.
func (o *Outbox) settle(id int) {
	n := o.nodes[id]
	b := &n.batch
	b.out--
	if b.out > 0 {
		return
	}
	if b.done {
		n.failures = 0
	}
	if b.failed {
		n.failures++
		n.next = b.failedAt
		if !b.woken {
			n.next = n.next.Add(pause(o.config, n.failures, b.draw))
		}
	}
	o.forget(id)
}

// Wake says at now that a node is back: its next batch is due at once, or as soon as the batch that
// is out has come back, whatever becomes of that one: it may have been sent before the node was
// back. The batch is still a probe and the back-off goes on where it was if it fails, since a node
// that answers may yet refuse writes. A node without pending keys is ignored.
func (o *Outbox) Wake(node int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.nodes[node]
	if n == nil {
		return
	}
	n.batch.woken = true
	if n.next.After(now) {
		n.next = now
	}
}

// pause is the back-off after so many failures in a row: MinBackoff doubled with each after the
// first, at most MaxBackoff, and of that a random share from one half to the whole, so that
// processes which saw a node fail together do not return together.
func pause(c OutboxConfig, failures int, draw float64) time.Duration {
	d := c.MinBackoff
	for i := 1; i < failures && d < c.MaxBackoff; i++ {
		if d > c.MaxBackoff/2 {
			d = c.MaxBackoff
			break
		}
		d *= 2
	}
	return d/2 + time.Duration(draw*float64(d-d/2))
}
