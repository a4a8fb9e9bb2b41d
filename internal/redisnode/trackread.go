// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// trackedReads is the queue before the fill connections, each of which carries one command at a time. Concurrent reads
// share commands, with the argument of reads: a queued read has not been sent when somebody joins it.
type trackedReads struct {
	wake chan struct{} // has room for one token a fill connection; a token means: look at the queue

	mu    sync.Mutex
	queue []*trackedRead
	byKey map[readPair]*trackedRead // the Gets in queue
}

// readPair is what a Get asks for.
type readPair struct{ key, beside string }

// trackedRead is names that must be read by one command. The fields below done are final when it is closed.
type trackedRead struct {
	names   []string
	pair    readPair // zero: an MGet, which nobody joins
	waiting int      // callers that have not left; guarded by the queue's mu
	done    chan struct{}

	values []any // a string, or nil, for each of names
	err    error
}

// Get reads a key, and beside it a second name ("" for none), by one command: both values were there at the same
// moment. A missing key, and one that is not a string, is nil; an empty value is not nil. The bytes are the caller's.
// From when the command was sent, t watches both names. One round trip; concurrent calls share commands, in which a name
// stands once.
//
// Where some of the node's replies are slow, see pace, a read that is later than most ends with [ErrTrackingLate]: each such reply holds up one of the few
// connections here, while the node has more for the reads that are not watched. It ends after the node's timeout at the latest, or as Node.Get does. A reply that comes later is thrown away; the connection stays good.
// The errors are those of [Node.MGet], and [ErrTrackingOver] (or [ErrClosed]) if t ended before the value was returned.
func (t *Tracking) Get(ctx context.Context, key, beside string) (value, besideValue []byte, err error) {
	names := []string{key, beside}
	if beside == "" {
		names = names[:1]
	}
	if err := t.refused(); err != nil {
		return nil, nil, err
	}
	patience := t.node.pace.patience()
	if patience > 0 && t.late(patience) {
		return nil, nil, ErrTrackingLate
	}
	values, err := t.read(ctx, t.reads.join(readPair{key, beside}, names), patience, t.node.pace.wait())
	if err != nil {
		return nil, nil, err
	}
	if beside != "" {
		besideValue = values[1]
	}
	return values[0], besideValue, nil
}

// MGetSoon is MGet for a few keys, which waits no longer than Get, and may end with [ErrTrackingLate] like that.
func (t *Tracking) MGetSoon(ctx context.Context, keys []string) ([][]byte, error) {
	if err := t.refused(); err != nil {
		return nil, err
	}
	return t.read(ctx, t.reads.join(readPair{}, keys), t.node.pace.patience(), t.node.pace.wait())
}

// MGet reads keys by one command, in their order, and watches them, for the whole timeout. Apart from that it is like Get. No keys, no command.
func (t *Tracking) MGet(ctx context.Context, keys []string) ([][]byte, error) {
	if len(keys) == 0 {
		return [][]byte{}, nil
	}
	if err := t.refused(); err != nil {
		return nil, err
	}
	return t.read(ctx, t.reads.join(readPair{}, keys), 0, t.node.cfg.Timeout)
}

// refused is why a read is not even queued: t is over, or the node down.
func (t *Tracking) refused() error {
	if t.Over() {
		return t.gone()
	}
	return t.node.breaker.shut("MGET")
}

// read waits for r: for patience, if that is not 0, and else for wait.
func (t *Tracking) read(ctx context.Context, r *trackedRead, patience, wait time.Duration) ([][]byte, error) {
	timer := time.NewTimer(cmp.Or(patience, wait))
	defer timer.Stop()
	select {
	case <-r.done:
	case <-ctx.Done():
		t.reads.leave(r)
		return nil, ctx.Err()
	case <-timer.C:
		t.reads.leave(r)
		if patience > 0 {
			return nil, ErrTrackingLate
		}
		return nil, t.node.left("MGET") // what becomes of the command counts: see send
	case <-t.ctx.Done():
	}
	if t.Over() { // also if there is a reply: its keys are not watched any more
		return nil, t.gone()
	}
	if r.err != nil {
		return nil, t.failure(ctx, r.err)
	}
	values := make([][]byte, len(r.values))
	for i, v := range r.values {
		if s, ok := v.(string); ok {
			values[i] = []byte(s) // each caller has bytes of its own: a codec may decode in place
		}
	}
	return values, nil
}

// late says that each fill connection waits for a reply for longer than that already: who comes now would wait as long in vain.
func (t *Tracking) late(patience time.Duration) bool {
	before := int64(t.since() - patience)
	for i := range t.busy {
		if since := t.busy[i].Load(); since == 0 || since > before {
			return false
		}
	}
	return true
}

func (t *Tracking) failure(ctx context.Context, err error) error {
	return t.node.Session().failure(ctx, "MGET", err)
}

// fill owns a fill connection: it sends reads, and pings when it has sent none for a while.
func (t *Tracking) fill(conn int, client *redis.Client) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	if err := t.ask(conn, func() error { return client.Ping(t.ctx).Err() }); err != nil {
		t.lost(conn, err) // also if it is a reply: it may be one to the handshake
		return
	}
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
			_ = t.ask(conn, func() error { return client.Ping(t.ctx).Err() }) // no answer is no proof; the rest is done there
		case <-t.reads.wake:
			t.send(conn, client)
		}
	}
}

// send takes reads from the queue and sends them as one command.
func (t *Tracking) send(conn int, client *redis.Client) {
	batch := t.reads.take(t.node.reads.batch())
	if len(batch) == 0 {
		return
	}
	var names []string
	at := make(map[string]int) // a name's place in the command
	for _, r := range batch {
		for _, name := range r.names {
			if _, there := at[name]; !there {
				at[name] = len(names)
				names = append(names, name)
			}
		}
	}
	t.busy[conn-1].Store(int64(max(1, t.since())))
	defer t.busy[conn-1].Store(0)
	// A command that is not answered in the timeout counts against the node, once. It has no timeout of its own: the connection may yet be good.
	stop := callAt(time.Now().Add(t.node.cfg.Timeout), func() {
		_ = t.failure(t.ctx, os.ErrDeadlineExceeded) // nobody waits for it; and if t is over it says nothing
	})
	defer stop()
	var values []any
	err := t.ask(conn, func() (err error) {
		values, err = client.MGet(t.ctx, names...).Result()
		return err
	})
	if err == nil && len(values) != len(names) {
		err = errors.New("MGET: not as many values as keys")
	}
	if err == nil {
		t.node.answered()
		t.learn(values)
	}
	for _, r := range batch {
		if r.err = err; err == nil {
			r.values = make([]any, len(r.names))
			for i, name := range r.names {
				r.values[i] = values[at[name]]
			}
		}
		close(r.done)
	}
}

// ask sends a command over a fill connection. Anything but an answer of the server is the end of the connection, and of t.
func (t *Tracking) ask(conn int, command func() error) error {
	sent := t.since()
	err := command()
	if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
		t.lost(conn, err)
	}
	if err == nil {
		t.answered(conn, sent)
	}
	return err
}

// learn takes the mean size of the values into the node's estimate.
func (t *Tracking) learn(values []any) {
	total, found := 0, 0
	for _, v := range values {
		if s, ok := v.(string); ok {
			total, found = total+len(s), found+1
		}
	}
	t.node.reads.learnSize(total, found)
}

func (q *trackedReads) init() {
	q.wake, q.byKey = make(chan struct{}, fills), make(map[readPair]*trackedRead)
}

// join queues a read, or joins the one of the same pair that is queued. The zero pair joins none.
func (q *trackedReads) join(pair readPair, names []string) *trackedRead {
	q.mu.Lock()
	defer q.mu.Unlock()
	shared := pair != readPair{}
	r := q.byKey[pair]
	if r == nil {
		r = &trackedRead{names: names, pair: pair, done: make(chan struct{})}
		q.queue = append(q.queue, r)
		if shared {
			q.byKey[pair] = r
		}
		q.signal()
	}
	r.waiting++
	return r
}

// leave says that a caller does not wait any more. A read that nobody waits for is not sent.
func (q *trackedReads) leave(r *trackedRead) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.waiting--
}

// signal lets a fill connection look at the queue. No room: as many as there are will look anyhow.
func (q *trackedReads) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take removes reads of at most that many names from the queue, at least one read if somebody waits. If some are left,
// the other connection may go on with them.
func (q *trackedReads) take(most int) []*trackedRead {
	q.mu.Lock()
	defer q.mu.Unlock()
	var batch []*trackedRead
	names := 0
	for len(q.queue) > 0 {
		r := q.queue[0]
		if len(batch) > 0 && names+len(r.names) > most {
			q.signal()
			return batch
		}
		q.queue = q.queue[1:]
		if q.byKey[r.pair] == r {
			delete(q.byKey, r.pair)
		}
		if r.waiting > 0 {
			batch, names = append(batch, r), names+len(r.names)
		}
	}
	q.queue = nil // let go of the array
	return batch
}
