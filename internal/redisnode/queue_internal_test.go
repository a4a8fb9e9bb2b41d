// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// far is a node each of whose replies takes a while, of which the tests here have the clock.
type far struct {
	*Node
	server *miniredis.Miniredis
	delay  atomic.Int64 // of a reply
	pause  atomic.Int64 // in the middle of one
	deaf   atomic.Bool  // what is not a read is not answered
	hangs  atomic.Int32 // so many replies take hangFor instead

	reads  atomic.Int32 // that were sent
	flying atomic.Int32
	most   atomic.Int32 // of them at once
}

const hangFor = 400 * time.Millisecond

// farConn is a connection to a far node.
type farConn struct {
	net.Conn
	far    *far
	asking bool      // a read is under way
	reply  []byte    // that is on its way
	comes  time.Time // when it is here
	until  time.Time // the read deadline
}

func (c *farConn) SetDeadline(t time.Time) error {
	c.until = t
	return c.Conn.SetWriteDeadline(t)
}

func (c *farConn) SetReadDeadline(t time.Time) error {
	c.until = t
	return nil
}

func (c *farConn) Write(b []byte) (int, error) {
	if c.asking = bytes.Contains(b[:min(len(b), 20)], []byte("GET\r\n")); c.asking { // GET or MGET
		c.far.reads.Add(1)
		c.far.most.Store(max(c.far.most.Load(), c.far.flying.Add(1)))
	}
	return c.Conn.Write(b)
}

func (c *farConn) Read(b []byte) (int, error) {
	if len(c.reply) == 0 {
		if err := c.receive(); err != nil {
			return 0, err
		}
	}
	if !c.until.IsZero() && c.until.Before(c.comes) {
		time.Sleep(time.Until(c.until))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(time.Until(c.comes))
	n := copy(b, c.reply)
	switch c.reply = c.reply[n:]; {
	case !c.asking:
	case len(c.reply) == 0:
		c.asking = false
		c.far.flying.Add(-1)
	default:
		c.comes = c.comes.Add(time.Duration(c.far.pause.Load()))
	}
	return n, nil
}

// receive takes all that the server has sent, which must not wait for its reader: it serves others too. No time passes, or next to none.
func (c *farConn) receive() error {
	buf := make([]byte, 64<<10)
	n, err := c.Conn.Read(buf)
	if err != nil {
		return err
	}
	c.comes = time.Now()
	for err == nil {
		c.reply = append(c.reply, buf[:n]...)
		_ = c.Conn.SetReadDeadline(time.Now().Add(1))
		n, err = c.Conn.Read(buf)
	}
	_ = c.Conn.SetReadDeadline(time.Time{})
	switch {
	case c.asking && c.far.hangs.Add(-1) >= 0:
		c.comes = c.comes.Add(hangFor)
	case c.asking:
		c.comes = c.comes.Add(time.Duration(c.far.delay.Load()))
	case c.far.deaf.Load():
		c.comes = c.comes.Add(time.Hour)
	}
	return nil
}

// awayBy runs f with a node whose replies take delay. The keys from 0 to 999 have themselves as values.
func awayBy(t *testing.T, delay time.Duration, f func(t *testing.T, n *far)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		for i := range 1000 {
			_ = m.Set(strconv.Itoa(i), strconv.Itoa(i))
		}
		n := &far{server: m}
		n.delay.Store(int64(delay))
		var err error
		n.Node, err = New(Config{ID: "far", Addr: "pipe:1", Timeout: time.Second, Options: func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				conn, err := m.Dial()
				return &farConn{Conn: conn, far: n}, err
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		f(t, n)
		_ = n.Close()
		m.Close()
	})
}

// read reads key as often as times says, and returns how long that took.
func (n *far) read(t *testing.T, key, times int) time.Duration {
	began := time.Now()
	for range times {
		if v, _, err := n.GetBeside(context.Background(), strconv.Itoa(key), "7"); err != nil || string(v) != strconv.Itoa(key) {
			t.Errorf("%d is %q, %v", key, v, err)
		}
	}
	return time.Since(began)
}

// crowd has so many readers read, each a key of its own, and returns how long the slowest took.
func (n *far) crowd(t *testing.T, readers, times int) (longest time.Duration) {
	var wg sync.WaitGroup
	took := make([]time.Duration, readers)
	for i := range readers {
		wg.Go(func() { took[i] = n.read(t, i, times) })
	}
	wg.Wait()
	for _, d := range took {
		longest = max(longest, d)
	}
	return longest
}

// TestAFewReadersHaveACommandEach: up to four nobody waits for another.
func TestAFewReadersHaveACommandEach(t *testing.T) {
	awayBy(t, 200*time.Microsecond, func(t *testing.T, n *far) {
		n.crowd(t, 4, 1) // connects
		n.reads.Store(0)
		if took := n.crowd(t, 4, 50); took != 50*200*time.Microsecond || n.reads.Load() != 4*50 {
			t.Errorf("%d commands in %v for 50 reads each", n.reads.Load(), took)
		}
	})
}

// TestManyReadersShareTwoConnections: what a crowd reads is carried by two commands at a time, each as large as can be.
func TestManyReadersShareTwoConnections(t *testing.T) {
	awayBy(t, 200*time.Microsecond, func(t *testing.T, n *far) {
		n.crowd(t, 40, 5)
		n.most.Store(0)
		n.reads.Store(0)
		go n.crowd(t, 40, 100)
		time.Sleep(2 * time.Millisecond)
		n.most.Store(0)
		time.Sleep(5 * time.Millisecond)
		if n.most.Load() > fewSlots {
			t.Errorf("%d commands at once, want %d", n.most.Load(), fewSlots)
		}
		time.Sleep(time.Second)
		if got := n.reads.Load(); got > 40*100/10 {
			t.Errorf("%d commands for %d reads", got, 40*100)
		}
	})
}

// TestHeldReadsGetAnotherConnection: where the commands under way take long, reads are not queued for long: a third and a fourth connection carry them.
func TestHeldReadsGetAnotherConnection(t *testing.T) {
	awayBy(t, 200*time.Microsecond, func(t *testing.T, n *far) {
		n.crowd(t, 40, 5)
		go n.crowd(t, 40, 50)
		time.Sleep(2 * time.Millisecond)
		n.hangs.Store(2) // the two that all share
		for n.hangs.Load() > 0 {
			go n.read(t, 500, 1)
			time.Sleep(100 * time.Microsecond)
		}
		if took := n.read(t, 501, 1); took > 3*heldFor {
			t.Errorf("a read took %v while two commands hang", took)
		}
		time.Sleep(time.Second)
	})
}

// TestSlowCommandsDoNotCount: callers who have left slow commands behind get others, for as long as there are connections.
func TestSlowCommandsDoNotCount(t *testing.T) {
	awayBy(t, 200*time.Microsecond, func(t *testing.T, n *far) {
		n.crowd(t, 40, 5)
		const patience = 3 * time.Millisecond
		n.pace.most.Store(int64(patience))
		n.hangs.Store(6)                                   // of the 8 connections there are
		if took := n.crowd(t, 40, 1); took > 64*patience { // it doubles each time, and each of the six may meet the same caller
			t.Errorf("somebody waited %v for six connections that hang, of eight", took)
		}
		time.Sleep(time.Second)
		q := &n.Node.reads
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.busy != 0 || q.stuck != 0 || q.flying != 0 {
			t.Errorf("%d slots are taken, %d of them stuck, %d reads under way: afterwards", q.busy, q.stuck, q.flying)
		}
	})
}

// TestReadsExpireByThemselves: of what is queued together each read has its own time.
func TestReadsExpireByThemselves(t *testing.T) {
	awayBy(t, 0, func(t *testing.T, n *far) {
		q := &n.Node.reads
		q.mu.Lock()
		q.busy = q.slots // as if all were taken
		early := q.join("1", "7")
		time.Sleep(time.Second)
		late, other := q.join("2", "7"), q.join("3", "7")
		time.Sleep(time.Millisecond)
		q.expire()
		q.mu.Unlock()
		if early.wait(t.Context()); !IsPoolTimeout(early.in.asks[early.at].err) {
			t.Errorf("got %v for a read that was queued for longer than the timeout", early.in.asks[early.at].err)
		}
		q.workers.Go(q.drain)
		for key, r := range map[string]read{"2": late, "3": other} {
			r.wait(t.Context())
			if v, _, err := r.answer(); string(v) != key || err != nil {
				t.Errorf("%s is %q, %v", key, v, err)
			}
		}
		q.mu.Lock()
		q.busy = 0
		q.mu.Unlock()
	})
}

// TestSplitBatches: what was queued before it was known how large values are goes in as many commands as they need. Each caller finds its answer.
func TestSplitBatches(t *testing.T) {
	awayBy(t, 0, func(t *testing.T, n *far) {
		q := &n.Node.reads
		q.mu.Lock()
		q.busy = 1
		reads := make(map[string]read)
		for i := range 50 {
			reads[strconv.Itoa(i)] = q.join(strconv.Itoa(i), "7")
		}
		q.size = batchBytes / 4
		q.workers.Go(q.drain)
		q.mu.Unlock()
		for key, r := range reads {
			r.wait(t.Context())
			if v, b, err := r.answer(); string(v) != key || string(b) != "7" || err != nil {
				t.Errorf("%s is %q beside %q, %v", key, v, b, err)
			}
		}
		if got := n.reads.Load(); got < 5 {
			t.Errorf("%d commands for 50 values, of which the first was to carry four", got)
		}
	})
}

// TestCallersOfOneKeyShareAPlace: while it is queued, with the same second key. What has left the queue is joined by nobody.
func TestCallersOfOneKeyShareAPlace(t *testing.T) {
	n, err := New(Config{ID: "a", Addr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	q := &n.reads
	first := q.join("k", "b")
	if second := q.join("k", "b"); second != first {
		t.Error("the second caller has a place of its own")
	}
	if third := q.join("k", ""); third == first {
		t.Error("a caller who wants something else shares the place")
	}
	sent := q.pop()
	if later := q.join("k", "b"); later.in == sent {
		t.Error("a caller has joined what has been sent")
	}
	for i := range 5000 { // more than are known
		key := fmt.Sprint("key", i)
		for range 2 {
			if r := q.join(key, "b"); r.in.asks[r.at].key != key {
				t.Fatalf("a caller of %s got the place of %s", key, r.in.asks[r.at].key)
			}
		}
	}
	places := 0
	for _, b := range q.queue {
		if places += len(b.asks); len(b.asks) > batchKeys {
			t.Errorf("a batch of %d keys", len(b.asks))
		}
	}
	if places > 1+2*5000-800 {
		t.Errorf("%d places for 5001 keys", places)
	}
	q.queue = nil
	_ = n.Close()
}
