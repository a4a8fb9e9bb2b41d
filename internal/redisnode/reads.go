// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// readSlots is how many reads (or batches of them) a node has under way at once, each over a wire of its own. Up to that many callers
	// each have a command of their own, as with the bare driver.
	readSlots = 4
	// fewSlots is how many there are where callers are more than that: fewer commands with more keys each cost both sides less. A read that has been queued
	// for as long as heldFor, and not for twice as long, has another one opened.
	fewSlots = 2
	heldFor  = time.Millisecond
	// batchKeys and batchBytes bound one MGET: other commands of the node wait behind it.
	batchKeys  = 64
	batchBytes = 512 << 10
	// manyBytes is the bound of an MGET whose keys all belong to one caller, and unknownKeys its keys as long as nothing is known of
	// the size of values.
	manyBytes   = 4 << 20
	unknownKeys = 16
)

// reads lets concurrent reads of one node share commands. A caller that finds a slot free sends its own GET.
// The others queue in batches, callers of one key in one place, and a slot that comes free takes a batch with it as one MGET:
// the more callers, the larger the batches, so that ten thousand callers at once need some hundred commands and
// not ten thousand turns at a connection.
//
// A queued read has not been sent when somebody joins it, and it leaves the queue before it is sent. So every
// caller gets an answer to a command that was sent after it came: sharing makes no answer older.
type reads struct {
	node   *Node
	slots  int       // readSlots, or less
	opened time.Time // the zero of since
	timers sync.Pool // that are stopped

	mu      sync.Mutex
	busy    int      // slots taken
	stuck   int      // of them, what is known to be slow: somebody has left it
	silent  bool     // nothing has been answered since the last one that was left
	flying  int      // reads that are under way
	crowd   int      // as many as are when a batch is taken: up at once, down slowly
	queue   []*batch // oldest first; all but the last are full, or what was split off of one
	first   uint32   // the number of the first batch in queue; it wraps around
	known   known    // what is in queue
	last    int      // asks in the batch that was taken last
	size    int64    // estimate of the bytes of a value: up at once, down slowly
	closed  bool
	relief  *time.Timer // calls relieve
	waking  bool        // it is set
	workers sync.WaitGroup
}

// Get reads one value, on the present session, and on the next one if the server's run changed. A missing key is nil and
// false; an empty value is not nil. One round trip; many concurrent calls share round trips. The bytes are the
// caller's. What is not a string is an error ([IsWrongType]). A call that had to queue for longer than the timeout fails with one ([IsPoolTimeout]).
func (n *Node) Get(ctx context.Context, key string) ([]byte, bool, error) {
	v, _, err := n.GetBeside(ctx, key, "")
	return v, v != nil, err
}

// GetBeside is Get that reads a second key in the same command, and so at the same moment; keys that many callers read
// beside theirs cost little. nil is a missing key or one that is not a string. Without a second key ("") it is Get.
func (n *Node) GetBeside(ctx context.Context, key, beside string) (value, besideValue []byte, err error) {
	if err := n.breaker.shut("GET"); err != nil {
		return nil, nil, err
	}
	if patience := n.pace.patience(); patience > 0 {
		return n.getImpatiently(ctx, key, beside, patience)
	}
	r, queued := n.reads.enter(key, beside)
	if !queued {
		v, b, sent, err := n.getAlone(ctx, key, beside)
		if sent {
			return v, b, err
		}
		if r, err = n.reads.queueAfter(key, beside); err != nil {
			return nil, nil, err
		}
	}
	if !r.wait(ctx) {
		return nil, nil, ctx.Err()
	}
	return r.answer()
}

// getAlone reads by a command of its own, and gives the slot back. Not sent: it is to be queued, in that slot; for a worker to connect.
func (n *Node) getAlone(ctx context.Context, key, beside string) (v, b []byte, sent bool, err error) {
	wait := n.pace.wait()
	if wait == n.cfg.Timeout {
		defer func() { n.reads.leave(err == nil) }()
		v, b, err = n.getNow(ctx, key, beside)
		return v, b, true, err
	}
	v, b, f, err := n.getEarly(ctx, key, beside, wait)
	if f == over {
		n.reads.leave(err == nil)
	}
	return v, b, f != unsent, err
}

func (n *Node) getNow(ctx context.Context, key, beside string) (v, b []byte, err error) {
	sent := time.Now()
	defer func() { n.pace.ended(sent, err) }()
	v, b, err = n.Session().getBeside(ctx, key, beside)
	for tries := 1; readAgain(err, tries); tries++ {
		v, b, err = n.Session().getBeside(ctx, key, beside)
	}
	n.reads.learnOne(v)
	return v, b, err
}

func (s *Session) getBeside(ctx context.Context, key, beside string) (v, b []byte, err error) {
	if beside == "" {
		v, _, err = s.Get(ctx, key)
		return v, nil, err
	}
	return s.getTwo(ctx, key, beside)
}

// readAgain says whether a read that failed is worth another try at once: when the server's run changed, on the next session; and when the
// connection turned out to be dead, which is the pool's trouble more than the node's: of the connections that a restart or a proxy has cut, the
// driver notices only some before it uses them. Both come back without a wait; a node that is gone refuses the next connection.
func readAgain(err error, tries int) bool {
	return runChanged(err) && tries == 1 || deadConnection(err) && tries <= 3
}

// deadConnection: an established connection was closed by the other side. What goes wrong while one is being made is something else.
func deadConnection(err error) bool {
	if err == nil {
		return false // before what follows takes memory
	}
	if making := (*connectError)(nil); errors.As(err, &making) {
		return false
	}
	for _, dead := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, dead) {
			return true
		}
	}
	return false
}

// BatchKeys is how many keys, at most most, the next MGet should ask for to be answered within the timeout, going by the size of the values
// that the node has sent before.
func (n *Node) BatchKeys(most int) int {
	n.reads.mu.Lock()
	defer n.reads.mu.Unlock()
	if n.reads.size == 0 {
		return min(most, unknownKeys)
	}
	return max(1, min(most, int(manyBytes/n.reads.size)))
}

// enter takes a slot, or queues.
func (q *reads) enter(key, beside string) (r read, queued bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.busy < q.slots && q.flying < q.slots && !q.crowded() && len(q.queue) == 0 {
		q.busy++
		q.flying++
		return read{}, false
	}
	r = q.join(key, beside)
	q.staff()
	return r, true
}

// queueAfter queues the read of a caller that has a slot, which is given to a worker.
func (q *reads) queueAfter(key, beside string) (read, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	q.flying--
	if q.closed {
		return read{}, q.closedError()
	}
	r := q.join(key, beside)
	q.staff()
	return r, nil
}

// leave gives the slot back, or hands it to a worker for the queue: the caller has its answer and does not wait for others'.
func (q *reads) leave(answered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if answered {
		q.silent = false
	}
	q.busy--
	q.flying--
	q.staff()
}

// staff sees that somebody works off the queue: at once, or before long. The caller holds mu.
func (q *reads) staff() {
	switch {
	case len(q.queue) == 0 || q.closed:
	case q.running() < q.enough() && !q.gathers() && q.hire():
	case q.running() >= q.slots || q.waking:
	case q.relief == nil:
		q.waking, q.relief = true, time.AfterFunc(heldFor, q.relieve)
	default:
		q.waking = true
		q.relief.Reset(heldFor)
	}
}

// hire takes a slot for a worker, unless each connection for reads has one already, but for the last: with the driver's one, for heartbeats and scripts, reads then have no more than the
// half of PoolSize. False: so it is.
func (q *reads) hire() bool {
	if q.busy >= max(q.slots, q.node.cfg.wires()-1) {
		return false
	}
	q.busy++
	q.workers.Go(q.drain)
	return true
}

// running is how many slots are taken by commands that are not known to be slow. The caller holds mu.
func (q *reads) running() int { return q.busy - q.stuck }

// enough is how many are, when a read waits for one of them. The caller holds mu.
func (q *reads) enough() int {
	if q.crowded() {
		return min(q.slots, fewSlots)
	}
	return q.slots
}

// crowded says that callers are more than can have a command each, or were a few commands ago: those that have just been answered have not come back yet,
// perhaps. The caller holds mu.
func (q *reads) crowded() bool { return max(q.flying, q.crowd) > q.slots }

// relieve opens another slot where reads have been queued for long.
func (q *reads) relieve() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waking = false
	q.expire()
	if q.late() && q.running() < q.slots && !q.closed {
		q.hire()
	}
	q.staff()
}

// gathers says that what is queued waits for more: where late replies have taken connections, one key a command would take the rest of them. Of a node that is late with one reply
// of ten by 50 ms, 1,300 commands a second take 6.5. The caller holds mu.
func (q *reads) gathers() bool { return q.stuck >= fewSlots && !q.late() }

// late says that the oldest read has been queued for long. The caller holds mu.
func (q *reads) late() bool {
	return len(q.queue) > 0 && time.Since(q.opened)-q.queue[0].asks[0].since >= heldFor
}

// learn takes the mean size of the values of a reply into the estimate.
func (q *reads) learn(values [][]byte) {
	total, found := 0, 0
	for _, v := range values {
		if v != nil {
			total, found = total+len(v), found+1
		}
	}
	q.learnSize(total, found)
}

// learnOne is learn for the one value of a command. Small ones never bound a batch.
func (q *reads) learnOne(v []byte) {
	if len(v) >= batchBytes/batchKeys {
		q.learnSize(len(v), 1)
	}
}

// learnSize takes in that so many values had so many bytes in all.
func (q *reads) learnSize(total, found int) {
	if found == 0 {
		return
	}
	size := int64(max(1, total/found))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.size = max(size, q.size-q.size/8)
}

// close fails what is queued and waits for the workers.
func (q *reads) close() {
	q.mu.Lock()
	q.closed = true
	q.endAll(q.closedError())
	if q.relief != nil {
		q.relief.Stop()
	}
	q.mu.Unlock()
	q.workers.Wait()
}

func (q *reads) closedError() error { return &Error{Node: q.node.cfg.ID, Op: "GET", Err: ErrClosed} }

// refuse answers all that is queued with an error: the node is down.
func (q *reads) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endAll(err)
}

// endAll is refuse for a caller that holds mu.
func (q *reads) endAll(err error) {
	for len(q.queue) > 0 {
		q.pop().end(err)
	}
}
