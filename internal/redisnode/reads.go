// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// readSlots is how many reads (or batches of them) a node has under way at once, each over a wire of its own. Up to that many callers
	// each have a command of their own, as with the bare driver.
	readSlots = 4
	// batchKeys and batchBytes bound one MGET: other commands of the node wait behind it.
	batchKeys  = 64
	batchBytes = 512 << 10
	// manyBytes is the bound of an MGET whose keys all belong to one caller, and unknownKeys its keys as long as nothing is known of
	// the size of values.
	manyBytes   = 4 << 20
	unknownKeys = 16
)

// reads lets concurrent reads of one node share commands. A caller that finds a slot free sends its own GET.
// The others queue, callers of one key as one entry, and a slot that comes free takes the queue with it in MGETs:
// the more callers, the larger the batches, so that ten thousand callers at once need some hundred commands and
// not ten thousand turns at a connection.
//
// A queued read has not been sent when somebody joins it, and it leaves the queue before it is sent. So every
// caller gets an answer to a command that was sent after it came: sharing makes no answer older.
type reads struct {
	node  *Node
	slots int // readSlots, or less

	mu      sync.Mutex
	busy    int // slots taken
	queue   []*read
	byKey   map[string]*read // what is in queue
	size    int64            // estimate of the bytes of a value: up at once, down slowly
	closed  bool
	workers sync.WaitGroup // each holds a slot
}

// read is one queued key. The fields below done are final when it is closed.
type read struct {
	key, beside string
	since       time.Time
	done        chan struct{}

	callers int // that wait for it; final once it has left the queue

	value, besideValue []byte // nil: missing
	err                error
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
	r := n.reads.enter(key, beside)
	if r == nil {
		defer n.reads.leave()
		return n.getNow(ctx, key, beside)
	}
	select {
	case <-r.done:
		return r.answer()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// answer is what one of its callers gets of a read that is done.
func (r *read) answer() (value, besideValue []byte, err error) {
	if r.callers > 1 { // each has bytes of its own: a codec may decode in place
		return bytes.Clone(r.value), r.besideValue, r.err
	}
	return r.value, r.besideValue, r.err
}

func (n *Node) getNow(ctx context.Context, key, beside string) (v, b []byte, err error) {
	sent := time.Now()
	defer func() { n.pace.ended(sent, err) }()
	v, b, err = n.Session().getBeside(ctx, key, beside)
	for tries := 1; readAgain(err, tries); tries++ {
		v, b, err = n.Session().getBeside(ctx, key, beside)
	}
	if len(v) >= batchBytes/batchKeys { // small ones never bound a batch
		n.reads.learn([][]byte{v})
	}
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
	var making *connectError
	if err == nil || errors.As(err, &making) {
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

// enter takes a slot (nil), or queues.
func (q *reads) enter(key, beside string) *read {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy < q.slots || q.closed {
		q.busy++
		return nil
	}
	return q.join(key, beside)
}

// join queues a read. The caller holds mu, and somebody holds a slot.
func (q *reads) join(key, beside string) *read {
	r := q.byKey[key]
	if r == nil || r.beside != beside { // callers of one key have the same second key, but for a caller of Get now and then
		r = &read{key: key, beside: beside, since: time.Now(), done: make(chan struct{})}
		q.byKey[key] = r
		q.queue = append(q.queue, r)
	}
	r.callers++
	return r
}

// leave gives the slot back, or hands it to a worker for the queue: the caller has its answer and does not wait for others'.
func (q *reads) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 || q.closed {
		q.busy--
		return
	}
	q.workers.Go(q.drain)
}

// drain works off the queue and gives its slot back when there is nothing left.
func (q *reads) drain() {
	for {
		batch := q.take()
		if len(batch) == 0 {
			return
		}
		keys := make([]string, len(batch), len(batch)+1)
		for i, r := range batch {
			keys[i] = r.key
		}
		keys, at := withBesides(keys, batch)
		sent := time.Now()
		get := (*Session).MGet
		if q.node.pace.patience() > 0 {
			get = (*Session).mgetSlow
		}
		values, err := q.node.mget(context.Background(), keys, get) // the timeout bounds it; callers leave by themselves
		q.node.pace.ended(sent, err)
		if len(batch) > 1 && IsTimeout(err) { // too much for one command, perhaps
			q.mu.Lock()
			q.size = max(q.size, batchBytes/int64(len(batch)/2))
			q.mu.Unlock()
		}
		for i, r := range batch {
			if r.err = err; err == nil {
				r.value = values[i]
				if r.beside != "" {
					r.besideValue = values[at[r.beside]]
				}
			}
		}
		q.confirm(batch)
		for _, r := range batch {
			close(r.done)
		}
	}
}

// confirm asks by GET for what a caller of Get would be told is missing: MGET says the same of a list, and the answer must not depend on whether others read at
// the same time. One more round trip, where somebody asked for a name that is not there.
func (q *reads) confirm(batch []*read) {
	var missing []*read
	var commands []Command
	for _, r := range batch {
		if r.beside == "" && r.value == nil && r.err == nil {
			missing, commands = append(missing, r), append(commands, Command{"GET", r.key})
		}
	}
	results := q.node.DoMany(context.Background(), commands) // the timeout bounds it
	for tries := 1; len(results) > 0 && readAgain(results[0].Err, tries); tries++ {
		results = q.node.DoMany(context.Background(), commands)
	}
	for i, result := range results {
		r := missing[i]
		if r.err = result.Err; r.err == nil && result.Reply != nil { // it has come meanwhile
			text, _ := result.Reply.(string)
			r.value = []byte(text)
		}
	}
}

// withBesides appends the second keys of a batch, each once, and says where they are.
func withBesides(keys []string, batch []*read) ([]string, map[string]int) {
	at := make(map[string]int, 1)
	for _, r := range batch {
		if _, ok := at[r.beside]; !ok && r.beside != "" {
			at[r.beside] = len(keys)
			keys = append(keys, r.beside)
		}
	}
	return keys, at
}

// take removes a batch from the queue; none gives the slot back. Reads that have waited for a whole timeout are answered here: the node is too slow
// for what is asked of it, and those behind them should not wait as well.
func (q *reads) take() []*read {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) > 0 && time.Since(q.queue[0].since) > q.node.cfg.Timeout {
		q.fail(&Error{Node: q.node.cfg.ID, Op: "GET", Err: redis.ErrPoolTimeout})
	}
	n := min(len(q.queue), q.batchLocked())
	batch := q.queue[:n:n]
	q.queue = q.queue[n:]
	for _, r := range batch {
		q.unlist(r)
	}
	if n == 0 {
		q.busy--
		q.queue = nil // let go of the array
	}
	return batch
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

// fail answers the first read of the queue with an error. The caller holds mu.
func (q *reads) fail(err error) {
	r := q.queue[0]
	q.queue = q.queue[1:]
	q.unlist(r)
	r.err = err
	close(r.done)
}

// refuse answers all that is queued with an error: the node is down.
func (q *reads) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) > 0 {
		q.fail(err)
	}
}

// unlist takes a read off the table that others join by; another one of the same key may have taken its place.
func (q *reads) unlist(r *read) {
	if q.byKey[r.key] == r {
		delete(q.byKey, r.key)
	}
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
	for len(q.queue) > 0 {
		q.fail(&Error{Node: q.node.cfg.ID, Op: "GET", Err: ErrClosed})
	}
	q.mu.Unlock()
	q.workers.Wait()
}
