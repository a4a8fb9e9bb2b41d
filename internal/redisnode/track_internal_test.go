// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func bareTracking() *Tracking {
	return newTracking(&Node{cfg: Config{ID: "a"}, done: make(chan struct{})})
}

// Fresh: every connection has answered, the oldest answer counts, and the end is the end.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := bareTracking()
		start := tr.began
		fresh := func(after time.Duration, want bool) {
			t.Helper()
			if got := tr.Fresh(start.Add(after)); got != want {
				t.Errorf("fresh after %v: %t, want %t", after, got, want)
			}
		}
		fresh(0, false)
		tr.answered(0, 0)
		tr.answered(1, 100*time.Millisecond)
		fresh(100*time.Millisecond, false) // the third has not answered
		tr.answered(2, 200*time.Millisecond)
		fresh(freshFor-1, true)
		fresh(freshFor, false)
		tr.answered(0, 300*time.Millisecond)
		fresh(freshFor+100*time.Millisecond-1, true) // as the connection at 100 ms allows
		fresh(freshFor+100*time.Millisecond, false)
		tr.answered(1, 50*time.Millisecond) // an old answer takes nothing back
		fresh(freshFor+100*time.Millisecond-1, true)

		time.Sleep(100*time.Millisecond + giveUpAfter)
		if tr.silent() {
			t.Error("silent too early")
		}
		time.Sleep(time.Nanosecond)
		if !tr.silent() {
			t.Error("not silent")
		}
		tr.end(fillLost, net.ErrClosed)
		tr.end(flushed, errFlushed)
		for conn := range tr.heard {
			tr.answered(conn, tr.since())
		}
		if fresh(0, false); !tr.Over() {
			t.Error("not over")
		}
		if why, err := tr.cause(); why != fillLost || !errors.Is(err, net.ErrClosed) {
			t.Errorf("cause %v, %v", why, err)
		}
	})
}

// The end of a connection is noticed while nobody reads it, and a connection that comes after the end is closed.
func TestLineNoticesItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := bareTracking()
		near, far := net.Pipe()
		l := tr.watch(1, near)
		synctest.Wait()
		if tr.Over() {
			t.Fatal("over")
		}
		_ = far.Close()
		synctest.Wait()
		if why, _ := tr.cause(); !tr.Over() || why != fillLost {
			t.Errorf("over %t, cause %v", tr.Over(), why)
		}
		if _, err := l.Read(make([]byte, 1)); err == nil {
			t.Error("it can be read")
		}
		tr.workers.Wait()

		near, far = net.Pipe()
		late := tr.watch(2, near)
		if _, err := far.Read(make([]byte, 1)); err == nil {
			t.Error("the late connection is open")
		}
		if _, err := late.Write([]byte("x")); !errors.Is(err, ErrTrackingOver) {
			t.Errorf("the late connection: %v", err)
		}
	})
}

// The driver closes a connection whose handshake was refused. The reason is known to the command that needed it, and must
// not come too late. Later the driver has no business to close one.
func TestLineThatTheDriverCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := bareTracking()
		for _, ready := range []bool{false, true} {
			near, far := net.Pipe()
			l := tr.watch(listener, near)
			_ = l.Close()
			synctest.Wait()
			if tr.Over() != ready {
				t.Errorf("ready %t: over %t", ready, tr.Over())
			}
			_ = far.Close()
			for conn := range tr.heard {
				tr.answered(conn, 0)
			}
		}
		tr.workers.Wait()
	})
}

// The driver would put another connection in the place of one it has lost. It gets none, and the Tracking is over.
func TestDialerConnectsOnce(t *testing.T) {
	tr := bareTracking()
	dials := 0
	tr.node.options.Dialer = func(context.Context, string, string) (net.Conn, error) {
		dials++
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		return near, nil
	}
	dial := tr.dialer(2)
	for range 2 {
		if _, err := dial(t.Context(), "tcp", "a"); err != nil {
			t.Fatal(err)
		}
	}
	if why, _ := tr.cause(); dials != 1 || why != fillLost {
		t.Fatalf("%d dials, cause %v", dials, why)
	}
	tr.workers.Wait()
}

// A read may be joined as long as it has not been sent, and is not sent if nobody waits for it.
func TestTrackedReadsQueue(t *testing.T) {
	var q trackedReads
	q.init()
	get := func(key string) *trackedRead { return q.join(readPair{key, "b"}, []string{key, "b"}) }
	one, two := get("one"), get("two")
	if get("one") != one || one.waiting != 2 {
		t.Error("not joined while queued")
	}
	if q.join(readPair{"one", "other"}, []string{"one", "other"}) == one {
		t.Error("joined another read")
	}
	if m, other := q.join(readPair{}, []string{"m"}), q.join(readPair{}, []string{"m"}); m == other {
		t.Error("joined an MGet")
	}
	q.leave(two)
	batch := q.take(4) // the names of "one" and of "one" with "other"
	if len(batch) != 2 || batch[0] != one || len(q.wake) == 0 {
		t.Errorf("took %d reads, %d tokens", len(batch), len(q.wake))
	}
	if get("one") == one {
		t.Error("joined after it was taken")
	}
	if big := q.join(readPair{}, make([]string, 10)); len(q.take(1)) != 1 || len(q.take(3)) != 2 || q.take(4)[0] != big {
		t.Error("a read of too many names is not taken, or not alone")
	}
	if q.take(4) != nil || len(q.byKey) != 0 {
		t.Error("the queue is not empty")
	}
}
