// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
)

// quick is how long callers wait here, of a timeout of a second.
const quick = 20 * time.Millisecond

// wantLeft checks the error of a read that was not answered in time.
func wantLeft(t *testing.T, err error) {
	t.Helper()
	if e := (*Error)(nil); !errors.As(err, &e) || e.Node != "far" || !IsTimeout(err) || IsPoolTimeout(err) || !errors.Is(err, errLeft) {
		t.Errorf("got %v, want that the reply of far is late", err)
	}
}

// wantIdle checks that nothing is under way any more.
func (n *far) wantIdle(t *testing.T) {
	t.Helper()
	q := &n.Node.reads
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy != 0 || q.stuck != 0 || q.flying != 0 || len(q.queue) > 0 {
		t.Errorf("%d slots are taken, %d of them stuck, %d reads under way, %d batches queued: afterwards", q.busy, q.stuck, q.flying, len(q.queue))
	}
}

// silent sets whether the node is taken for one that answers nothing, and says whether it was.
func (n *far) silent(now bool) (was bool) {
	q := &n.Node.reads
	q.mu.Lock()
	defer q.mu.Unlock()
	was, q.silent = q.silent, now
	return was
}

// TestLateReplyOfOneReader: a reader who is alone waits as long as replies usually take at most. Its connection is used again.
func TestLateReplyOfOneReader(t *testing.T) {
	awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
		n.read(t, 1, 1)
		n.pace.tail.Store(int64(quick))
		conns := len(n.Session().conns)
		for _, beside := range []string{"", "7"} {
			n.hangs.Store(1)
			began := time.Now()
			_, _, err := n.GetBeside(context.Background(), "1", beside)
			if took := time.Since(began); took != quick+lastLook {
				t.Errorf("it took %v", took)
			}
			wantLeft(t, err)
			before := n.silent(true)
			time.Sleep(hangFor)
			n.wantIdle(t)
			if after := n.silent(true); !before || after {
				t.Errorf("silent while the reply is late: %v; when it has come: %v", before, after)
			}
			if n.read(t, 2, 1); n.silent(false) {
				t.Error("it is taken for silent, and has answered in time")
			}
		}
		if got := len(n.Session().conns); got != conns {
			t.Errorf("%d connections, want the %d of before", got, conns)
		}
		if n.breaker.watching.Load() {
			t.Error("it counts against the node")
		}
		if len(n.breaker.kick) == 0 {
			t.Error("no heartbeat is asked for")
		}
		if total := n.pace.counts[bucketOf(hangFor)].Load(); total != 2 {
			t.Errorf("%d of 2 replies counted as late as they came", total)
		}
	})
}

// TestEarlyReadTakesNoMore: a read that is waited for less than the timeout takes no more memory than another.
func TestEarlyReadTakesNoMore(t *testing.T) {
	n, err := New(Config{ID: "a", Addr: redistest.Start(t, redistest.Config{}).Addr(), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	if err := n.Client().Set(t.Context(), "k", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	read := func() float64 {
		return testing.AllocsPerRun(500, func() {
			if _, _, err := n.GetBeside(t.Context(), "k", "b"); err != nil {
				t.Error(err)
			}
		})
	}
	others := read()
	n.pace.tail.Store(int64(n.cfg.Timeout / 2))
	if got := read(); got > others {
		t.Errorf("%v allocations, others take %v", got, others)
	}
}

// TestLateRepliesLeaveRoom: what four readers have left, each with a command of his own, holds nobody up.
func TestLateRepliesLeaveRoom(t *testing.T) {
	awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
		n.crowd(t, 4, 1)
		n.pace.tail.Store(int64(quick))
		n.hangs.Store(4)
		for i := range 4 {
			go func() { _, _, _ = n.GetBeside(context.Background(), strconv.Itoa(i), "7") }()
		}
		time.Sleep(quick + 2*lastLook)
		if n.hangs.Load() != 0 {
			t.Fatalf("%d of the four were not sent", n.hangs.Load())
		}
		if took := n.read(t, 5, 1); took > 5*time.Millisecond {
			t.Errorf("a read took %v", took)
		}
		time.Sleep(hangFor)
		n.wantIdle(t)
	})
}

// TestLateReplyOfMany: and so do those who share a command, and those who are queued behind it, whom other connections serve.
func TestLateReplyOfMany(t *testing.T) {
	awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
		n.crowd(t, 40, 5)
		n.pace.tail.Store(int64(quick))
		n.hangs.Store(2) // what all share
		var wg sync.WaitGroup
		var mu sync.Mutex
		late := 0
		for i := range 40 {
			wg.Go(func() {
				began := time.Now()
				_, _, err := n.GetBeside(context.Background(), strconv.Itoa(i), "7")
				if took := time.Since(began); took > quick+lastLook {
					t.Errorf("it took %v", took)
				}
				if err != nil {
					wantLeft(t, err)
					mu.Lock()
					late++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if late == 0 {
			t.Error("nobody was late")
		}
		n.hangs.Store(0) // all may have been in one command
		if took := n.crowd(t, 40, 5); took > quick {
			t.Errorf("others took %v", took)
		}
		time.Sleep(hangFor)
		n.wantIdle(t)
	})
}

// TestNodeThatStops: of a node that answers nothing any more nobody waits for long, however many ask, and wherever they wait: in the queue, for a command, or for a connection. The
// commands fail after the timeout, and count.
func TestNodeThatStops(t *testing.T) {
	awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
		defer n.breaker.run()()
		n.crowd(t, 40, 5)
		n.pace.tail.Store(int64(quick))
		n.delay.Store(int64(time.Hour))
		n.deaf.Store(true)
		var wg sync.WaitGroup
		for i := range 3000 { // for three timeouts
			time.Sleep(time.Millisecond)
			wg.Go(func() {
				began := time.Now()
				_, _, err := n.GetBeside(context.Background(), strconv.Itoa(i%1000), "7")
				most := 2*quick + 2*lastLook // a turn, and the command
				if i > 100 {                 // it is known by now that nothing is answered
					most = quick*5/4 + 3*lastLook
				}
				if took := time.Since(began); took > most {
					t.Errorf("%v after it has stopped it took %v: %v", i, took, err)
				}
				if err == nil {
					t.Error("an answer")
				}
			})
		}
		wg.Wait()
		if n.breaker.misses == 0 && n.State() == Up {
			t.Error("nothing counts against the node")
		}
		n.delay.Store(0)
		n.deaf.Store(false)
		time.Sleep(2 * time.Second)
		n.breaker.reset(time.Now()) // no heartbeat does it
		n.silent(true)
		n.crowd(t, 40, 1)
		n.wantIdle(t)
		if n.silent(false) {
			t.Error("it is taken for silent, and has answered a crowd")
		}
	})
}

// TestNodeThatStopsWhereCallersAskAnew: to ask anew takes no longer in all. A node that stops looks at first like one of which some replies are slow.
func TestNodeThatStopsWhereCallersAskAnew(t *testing.T) {
	for _, patience := range []time.Duration{3 * time.Millisecond, 2 * quick} {
		awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
			n.crowd(t, 40, 5)
			n.pace.tail.Store(int64(quick))
			n.pace.most.Store(int64(patience))
			n.delay.Store(int64(time.Hour))
			for i := range 9 { // the last ones find all connections stuck
				began := time.Now()
				if _, _, err := n.GetBeside(context.Background(), strconv.Itoa(i), "7"); !IsTimeout(err) || IsPoolTimeout(err) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took != quick {
					t.Errorf("it took %v, want %v", took, quick)
				}
			}
			n.delay.Store(0)
			time.Sleep(time.Minute)
			n.wantIdle(t)
		})
	}
}

// TestSlowNodeWhereCallersAskAnew: where all replies take as long the first one is the answer, however often it has been asked anew meanwhile.
func TestSlowNodeWhereCallersAskAnew(t *testing.T) {
	awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
		n.crowd(t, 40, 5)
		n.pace.tail.Store(int64(quick))
		n.pace.most.Store(int64(time.Millisecond))
		const slow = quick * 3 / 4
		n.delay.Store(int64(slow))
		for i := range 20 {
			if took := n.read(t, i, 1); took > slow+time.Millisecond {
				t.Errorf("it took %v, want %v", took, slow)
			}
			time.Sleep(2 * quick)
		}
		n.wantIdle(t)
	})
}

// TestLateReplyAndTheCallersDeadline: a caller with less time than others gets the end of its context, and the connection stays.
func TestLateReplyAndTheCallersDeadline(t *testing.T) {
	awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
		n.read(t, 1, 1)
		n.pace.tail.Store(int64(quick))
		conns := len(n.Session().conns)
		n.hangs.Store(1)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, _, err := n.GetBeside(ctx, "1", "7"); !errors.Is(err, context.DeadlineExceeded) || IsTimeout(err) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 5*time.Millisecond+lastLook {
			t.Errorf("it took %v", took)
		}
		if _, _, err := n.GetBeside(ctx, "1", "7"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end: %v", err)
		}
		time.Sleep(hangFor)
		n.read(t, 2, 1)
		n.wantIdle(t)
		if got := len(n.Session().conns); got != conns {
			t.Errorf("%d connections, want %d", got, conns)
		}
	})
}

// TestEachReadDrawsOnce: where only a share of the reads is sent a read draws for its place once, whether a connection is free for it or must be made: of several draws much less than the share is left.
func TestEachReadDrawsOnce(t *testing.T) {
	awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
		draws := 0
		n.breaker.draw = func() float64 { draws++; return 0 }
		n.breaker.gate.Store(n.breaker.newGate(time.Now(), 0.5))
		for _, wait := range []time.Duration{quick, n.cfg.Timeout} {
			n.pace.tail.Store(int64(wait))
			for i, what := range []string{"a connection is made", "one is free"} {
				n.Session().wires.mu.Lock()
				if i == 0 {
					n.Session().wires.closeIdle()
				}
				n.Session().wires.mu.Unlock()
				draws = 0
				if n.read(t, 1, 1); draws != 1 {
					t.Errorf("%s, and %v to wait: %d draws", what, wait, draws)
				}
			}
		}
		n.breaker.draw = func() float64 { return 1 }
		n.pace.tail.Store(int64(quick))
		if _, _, err := n.GetBeside(context.Background(), "1", "7"); !IsDown(err) {
			t.Errorf("got %v where none is sent", err)
		}
		n.breaker.gate.Store(nil)
		n.read(t, 1, 1)
		n.wantIdle(t)
		if turns := len(n.Session().wires.turns); turns != 0 {
			t.Errorf("%d turns are taken", turns)
		}
	})
}

// TestQueuedWhenCallersBeginToAskAnew: who was queued before callers asked anew waits no longer than they do, though the command may take twice as long as else.
func TestQueuedWhenCallersBeginToAskAnew(t *testing.T) {
	awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
		n.crowd(t, 40, 5)
		n.pace.tail.Store(int64(quick))
		q := &n.Node.reads
		q.mu.Lock()
		q.busy += q.slots // as if all were taken
		q.mu.Unlock()
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				began := time.Now()
				_, _, err := n.GetBeside(context.Background(), strconv.Itoa(i), "7")
				if took := time.Since(began); took > quick+2*lastLook+time.Millisecond {
					t.Errorf("it took %v", took)
				}
				wantLeft(t, err)
			})
		}
		time.Sleep(time.Millisecond)
		n.delay.Store(int64(time.Hour))
		n.pace.most.Store(int64(3 * time.Millisecond))
		q.workers.Go(q.drain)
		wg.Wait()
		n.delay.Store(0)
		time.Sleep(time.Minute)
		q.mu.Lock()
		q.busy -= q.slots - 1 // the drain has given back one
		q.mu.Unlock()
		n.wantIdle(t)
	})
}

// TestReplyThatHasBegun: what has begun in time may take the rest of the timeout.
func TestReplyThatHasBegun(t *testing.T) {
	for _, readers := range []int{1, 40} {
		awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
			n.crowd(t, 40, 5)
			long := strings.Repeat("v", 100<<10)
			_ = n.server.Set("1", long)
			n.pace.tail.Store(int64(quick))
			n.pause.Store(int64(100 * time.Millisecond)) // in the middle of it
			var wg sync.WaitGroup
			for range readers {
				wg.Go(func() {
					if v, _, err := n.GetBeside(context.Background(), "1", "7"); string(v) != long || err != nil {
						t.Errorf("%d bytes, %v", len(v), err)
					}
				})
			}
			wg.Wait()
			n.pause.Store(0)
			if n.read(t, 2, 50); n.Node.reads.crowd > n.Node.reads.slots { // the next one has a command of its own
				t.Errorf("a crowd of %d", n.Node.reads.crowd)
			}
			n.pause.Store(int64(100 * time.Millisecond))
			ctx, cancel := context.WithTimeout(context.Background(), quick*3/2)
			defer cancel()
			began := time.Now()
			if _, _, err := n.GetBeside(ctx, "1", "7"); !errors.Is(err, context.DeadlineExceeded) || IsTimeout(err) || time.Since(began) != quick*3/2 {
				t.Errorf("a caller with less time got %v after %v", err, time.Since(began))
			}
			n.pause.Store(0)
			time.Sleep(time.Second)
			n.wantIdle(t)
		})
	}
}

// TestLateReplyOfAWatchedRead: a read through a Tracking ends as the others do, and the Tracking goes on.
func TestLateReplyOfAWatchedRead(t *testing.T) {
	n, err := New(Config{ID: "far", Addr: "127.0.0.1:1", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	n.pace.tail.Store(int64(quick))
	tr := newTracking(n)
	defer tr.end(trackingStopped, nil)
	began := time.Now()
	_, _, err = tr.Get(t.Context(), "k", "b") // nobody sends it
	if took := time.Since(began); took < quick || took > n.cfg.Timeout {
		t.Errorf("it took %v", took)
	}
	wantLeft(t, err)
}

// TestReadsGather: where late replies hold connections, what comes within a millisecond goes in one command, and nobody waits for longer than that for more to come.
func TestReadsGather(t *testing.T) {
	awayBy(t, time.Millisecond, func(t *testing.T, n *far) {
		n.crowd(t, 4, 2)
		n.pace.most.Store(int64(100 * time.Millisecond)) // readers queue
		q := &n.Node.reads
		hold := func(by int) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.busy, q.stuck = q.busy+by, q.stuck+by
		}
		hold(fewSlots)
		n.Node.reads.mu.Lock()
		n.Node.reads.crowd = 0
		n.Node.reads.mu.Unlock()
		n.reads.Store(0)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * heldFor / 8)
				if took := n.read(t, i, 1); took > heldFor+time.Millisecond {
					t.Errorf("a read took %v", took)
				}
			})
		}
		wg.Wait()
		if got := n.reads.Load(); got != 1 {
			t.Errorf("%d commands, want that they share one", got)
		}
		hold(-fewSlots)
		if took := n.read(t, 5, 1); took != time.Millisecond {
			t.Errorf("with no late reply a read took %v", took)
		}
		n.wantIdle(t)
	})
}

// TestLateWatchedReads: where some replies are slow a read that is watched is left when it is late, and not begun while each connection for such reads waits for a late reply already.
func TestLateWatchedReads(t *testing.T) {
	n, err := New(Config{ID: "far", Addr: "127.0.0.1:1", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	const patience = 10 * time.Millisecond
	n.pace.most.Store(int64(patience))
	tr := newTracking(n)
	defer tr.end(trackingStopped, nil)
	read := map[string]func() error{
		"Get":      func() error { _, _, err := tr.Get(t.Context(), "k", "b"); return err },
		"MGetSoon": func() error { _, err := tr.MGetSoon(t.Context(), []string{"k", "b", "c"}); return err },
	}
	for name, f := range read {
		began := time.Now()
		if err := f(); !errors.Is(err, ErrTrackingLate) || time.Since(began) < patience {
			t.Errorf("%s: %v after %v", name, err, time.Since(began))
		}
	}
	tr.began = tr.began.Add(-time.Hour)
	tr.busy[0].Store(int64(time.Minute))
	if tr.late(patience) {
		t.Error("one connection is free, and reads are late")
	}
	tr.busy[1].Store(int64(time.Hour + time.Minute)) // just now
	if tr.late(patience) {
		t.Error("one connection has just sent a command, and reads are late")
	}
	tr.busy[1].Store(int64(time.Minute))
	queued := len(tr.reads.queue)
	if _, _, err := tr.Get(t.Context(), "other", "b"); !errors.Is(err, ErrTrackingLate) || len(tr.reads.queue) != queued {
		t.Errorf("both wait for late replies: %v, and %d more are queued", err, len(tr.reads.queue)-queued)
	}
}

// TestSilentFillConnectionCounts: a command of a Tracking that is not answered in the timeout counts against the node, though its callers have left long before, once.
func TestSilentFillConnectionCounts(t *testing.T) {
	n, err := New(Config{ID: "far", Addr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	defer n.breaker.run()()
	n.pace.tail.Store(int64(quick))
	tr := newTracking(n)
	ours, silent := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, silent) }() // ends with the pipe
	client := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return ours, nil }, ReadTimeout: -1, MaxRetries: -1, DisableIdentity: true,
	})
	sent := make(chan struct{})
	tr.reads.join(readPair{"k", "b"}, []string{"k", "b"})
	go func() {
		defer close(sent)
		tr.send(1, client)
	}()
	misses := func() int {
		n.breaker.mu.Lock()
		defer n.breaker.mu.Unlock()
		return n.breaker.misses
	}
	for end := time.Now().Add(10 * time.Second); misses() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if got := misses(); got != 1 {
		t.Errorf("%d failures counted", got)
	}
	tr.end(trackingStopped, nil)
	_ = silent.Close()
	<-sent
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
