// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// LargeConns is how many connections a node has for bodies, besides those of its pool; they are made when they are first needed.
	LargeConns = 3
	// largeRate is the slowest link, in bytes a second, on which bodies still pass: what a transfer may take is the node's timeout and the
	// body's length at this rate.
	largeRate = 20 << 20
	// largest is the longest value that a server takes, by default.
	largest = 512 << 20
	// bodyIDBytes is the length of the id that every body begins with.
	bodyIDBytes = 16
)

// Body is what [Node.GetBody] brings.
type Body struct {
	Bytes  []byte // without the id; nil: the body is not there
	Shared bool   // other callers have the same bytes: they must not be changed
}

// large moves bodies: values so long that a small one would wait behind them. They have connections of their own, a few, and queue for those
// among themselves. So however many bodies are asked for, each connection of the pool is still free for small reads, and the server has at
// most LargeConns bodies in its output buffers.
//
// A body is immutable: it begins with an id that was drawn for it alone. So callers may join a transfer that is already under way, and it does
// not matter which run of the server it comes from: with the right id it is the right body, without it it is none.
type large struct {
	node  *Node         // the same server, over own connections
	turns chan struct{} // one for each of them

	mu        sync.Mutex
	transfers map[transferKey]*transfer
	closed    bool
	workers   sync.WaitGroup // one goroutine a transfer
}

type transferKey struct {
	key string
	id  [bodyIDBytes]byte
}

// transfer is one body on its way. What is below done is final when that is closed.
type transfer struct {
	callers int // that wait for it
	stop    context.CancelFunc

	done   chan struct{}
	body   []byte
	shared bool
	err    error
}

// newLarge makes the own path of n. It does not connect.
func newLarge(n *Node) *large {
	cfg := n.cfg
	cfg.PoolSize, cfg.Scripts, cfg.OnRun, cfg.OnReplication, cfg.OnState, cfg.Options = 2*LargeConns, nil, nil, nil, nil, nil
	cfg.Push = nil
	o := n.options
	own := newNode(cfg, o)
	own.failures, own.breaker, own.bodies = n.failures, n.breaker, true
	return &large{node: own, turns: make(chan struct{}, LargeConns), transfers: make(map[transferKey]*transfer)}
}

// allowance is what the transfer of size bytes may take.
func (n *Node) allowance(size int) time.Duration {
	return n.cfg.Timeout + time.Duration(float64(size)/largeRate*float64(time.Second))
}

// GetBody reads the body of size bytes with this id under a key. A body that is not there, has another id or another length is no error: its Bytes
// are nil. One round trip over the node's own connections for bodies, one transfer for all who ask at the same time. It waits for its turn no longer
// than for its transfer: each at most Timeout plus size at 20 MiB/s. A caller that leaves disturbs nobody else.
func (n *Node) GetBody(ctx context.Context, key string, id [16]byte, size int) (Body, error) {
	l := n.large
	if err := n.breaker.shut("GETRANGE"); err != nil {
		return Body{}, err
	}
	k := transferKey{key, id}
	t, err := l.join(k, size) //nolint:contextcheck // the transfer is everybody's: it ends when nobody waits for it any more
	if err != nil {
		return Body{}, err
	}
	select {
	case <-t.done:
		return Body{t.body, t.shared}, t.err
	case <-ctx.Done():
		l.leave(k, t)
		return Body{}, ctx.Err()
	}
}

// join joins the transfer of a body, or starts it.
func (l *large) join(k transferKey, size int) (*transfer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, l.failed("GETRANGE", ErrClosed)
	}
	if t := l.transfers[k]; t != nil {
		t.callers++
		t.shared = true
		return t, nil
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &transfer{callers: 1, stop: stop, done: make(chan struct{})}
	l.transfers[k] = t
	l.workers.Go(func() {
		defer stop()
		body, err := l.get(ctx, k, size)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.forget(k, t)              // before it is done: who comes from now on starts another
		if err != nil && l.closed { // not a cancellation: that would look like the caller's own
			err = l.failed("GETRANGE", ErrClosed)
		}
		t.body, t.err = body, err
		close(t.done)
	})
	return t, nil
}

// leave takes one caller off a transfer; that of nobody ends before it has its turn.
func (l *large) leave(k transferKey, t *transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.callers--; t.callers == 0 {
		l.forget(k, t)
		t.stop()
	}
}

// forget makes a transfer one that nobody joins. The caller holds mu.
func (l *large) forget(k transferKey, t *transfer) {
	if l.transfers[k] == t {
		delete(l.transfers, k)
	}
}

func (l *large) get(ctx context.Context, k transferKey, size int) ([]byte, error) {
	limit := l.node.allowance(size)
	if err := l.turn(ctx, limit, "GETRANGE"); err != nil {
		return nil, err
	}
	defer func() { <-l.turns }()
	v, err := l.node.Session().getRange(ctx, limit, k.key, bodyIDBytes+size)
	for tries := 1; readAgain(err, tries); tries++ {
		v, err = l.node.Session().getRange(ctx, limit, k.key, bodyIDBytes+size)
	}
	if IsWrongType(err) {
		return nil, nil
	}
	if err != nil || len(v) != bodyIDBytes+size || !bytes.Equal(v[:bodyIDBytes], k.id[:]) {
		return nil, err
	}
	return v[bodyIDBytes:], nil
}

// turn waits until one of the connections is free.
func (l *large) turn(ctx context.Context, limit time.Duration, op string) error {
	select {
	case l.turns <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case l.turns <- struct{}{}:
		return nil
	case <-timer.C:
		return l.failed(op, redis.ErrPoolTimeout)
	case <-l.node.done:
		return l.failed(op, ErrClosed)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *large) failed(op string, err error) error {
	return &Error{Node: l.node.cfg.ID, Op: op, Err: err}
}

// PutBody stores a body, which begins with its id, for ttl (at least 1 ms) under a key that is used for nothing else, before or after: so it
// does no harm that a request which timed out may still be carried out. It is bounded as GetBody is.
func (n *Node) PutBody(ctx context.Context, key string, body []byte, ttl time.Duration) error {
	l := n.large
	if err := n.breaker.shut("SET"); err != nil {
		return err
	}
	limit := l.node.allowance(len(body))
	if err := l.turn(ctx, limit, "SET"); err != nil {
		return err
	}
	defer func() { <-l.turns }()
	err := l.node.Session().set(ctx, limit, key, body, ttl)
	if readAgain(err, 1) {
		err = l.node.Session().set(ctx, limit, key, body, ttl)
	}
	return err
}

// close fails what is under way and waits for it.
func (l *large) close() {
	l.mu.Lock()
	l.closed = true
	for _, t := range l.transfers {
		t.stop()
	}
	l.mu.Unlock()
	_ = l.node.Close() // always nil
	l.workers.Wait()
}

// getRange reads the first n bytes under a key: never more, whatever lies there. A missing key is empty.
func (s *Session) getRange(ctx context.Context, limit time.Duration, key string, n int) ([]byte, error) {
	l, err := s.open(ctx, "GETRANGE", limit)
	if err != nil {
		return nil, err
	}
	var v []byte
	if err = l.send("GETRANGE", key, "0", strconv.Itoa(n-1)); err == nil {
		v, err = l.value(n)
	}
	return v, s.done(ctx, l, "GETRANGE", err)
}

func (s *Session) set(ctx context.Context, limit time.Duration, key string, value []byte, ttl time.Duration) error {
	l, err := s.open(ctx, "SET", limit)
	if err != nil {
		return err
	}
	if err = l.sendSet(key, value, max(ttl, time.Millisecond)); err == nil {
		err = l.ok()
	}
	return s.done(ctx, l, "SET", err)
}

// sendSet sends a SET whose value is too long to be copied.
func (l *wire) sendSet(key string, value []byte, ttl time.Duration) error {
	ms := strconv.FormatInt(ttl.Milliseconds(), 10)
	l.w = fmt.Appendf(l.w[:0], "*5\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n", len(key), key, len(value))
	for _, part := range [][]byte{l.w, value, fmt.Appendf(nil, "\r\n$2\r\nPX\r\n$%d\r\n%s\r\n", len(ms), ms)} {
		if _, err := l.conn.Write(part); err != nil {
			return err
		}
	}
	return nil
}
