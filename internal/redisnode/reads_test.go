// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// TestReadsShareCommands: a crowd of readers gets right answers through far fewer commands than there are readers, within one default timeout's reach.
func TestReadsShareCommands(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	const keys, readers = 500, 5000
	for i := range keys {
		if i%5 != 0 { // each fifth is missing
			if err := s.Client().Set(t.Context(), strconv.Itoa(i), "v"+strconv.Itoa(i), 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := commands(t, s)
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			k := i % keys
			v, found, err := n.Get(t.Context(), strconv.Itoa(k))
			if err != nil || found != (k%5 != 0) || (found && string(v) != "v"+strconv.Itoa(k)) {
				t.Errorf("key %d: %q, %v, %v", k, v, found, err)
			}
		})
	}
	wg.Wait()
	if used := commands(t, s) - before; used > readers/2 {
		t.Errorf("%d commands for %d reads", used, readers)
	} else {
		t.Logf("%d commands for %d reads", used, readers)
	}
}

func commands(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Info(t.Context(), "stats")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(info["total_commands_processed"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSharedReadsAreNotOlder: whoever reads after a write has returned sees that write, however many share the command.
func TestSharedReadsAreNotOlder(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	client := s.Client()
	var written atomic.Int64
	if err := client.Set(t.Context(), "k", "0", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 40 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				least := written.Load()
				v, _, err := n.Get(context.Background(), "k")
				got, _ := strconv.ParseInt(string(v), 10, 64)
				if err != nil || got < least {
					t.Errorf("read %q (%v) after %d had been written", v, err, least)
					return
				}
			}
		})
	}
	for i := range int64(3000) {
		if err := client.Set(t.Context(), "k", i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		written.Store(i)
	}
	close(stop)
	wg.Wait()
}

// TestCrowdAtAStoppedNode: nobody waits longer than a turn in the queue and a command, and everybody is told that it was a timeout.
func TestCrowdAtAStoppedNode(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	const timeout = 100 * time.Millisecond
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Timeout = timeout })
	mustProbe(t, n)
	s.Stop()
	var wg sync.WaitGroup
	var longest atomic.Int64
	for i := range 2000 {
		wg.Go(func() {
			start := time.Now()
			_, _, err := n.Get(t.Context(), strconv.Itoa(i))
			if !redisnode.IsTimeout(err) || !redisnode.IsTrouble(err) {
				t.Errorf("got %v, want a timeout", err)
			}
			for d := int64(time.Since(start)); ; {
				if old := longest.Load(); d <= old || longest.CompareAndSwap(old, d) {
					return
				}
			}
		})
	}
	wg.Wait()
	if d := time.Duration(longest.Load()); d > 5*timeout+time.Second { // a queue's turn, a connection's, the handshake's steps; and a busy machine
		t.Errorf("somebody waited %v with a timeout of %v", d, timeout)
	}
	s.Cont()
	eventually(t, "an answer after SIGCONT", func() bool { _, _, err := n.Get(t.Context(), "k"); return err == nil })
}

// TestQueuedReadersLeave: a queued reader's context ends its wait at once. Only the four that have a slot wait for the answer.
func TestQueuedReadersLeave(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Timeout = time.Minute })
	mustProbe(t, n)
	s.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	const readers, slots = 50, 4
	left := make(chan error, readers)
	for i := range readers {
		go func() {
			_, _, err := n.Get(ctx, strconv.Itoa(i))
			left <- err
		}()
	}
	cancel()
	for range readers - slots {
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the caller's own end", err)
		}
	}
	s.Cont()
	for range slots {
		<-left
	}
}

// TestLargeValuesMakeSmallBatches: batches shrink with the size of what they carry.
func TestLargeValuesMakeSmallBatches(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Timeout = 10 * time.Second })
	large := strings.Repeat("x", 256<<10)
	for i := range 20 {
		if err := s.Client().Set(t.Context(), strconv.Itoa(i), large, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		before := commands(t, s)
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				if v, found, err := n.Get(t.Context(), strconv.Itoa(i%20)); err != nil || !found || len(v) != len(large) {
					t.Errorf("%d bytes, %v, %v", len(v), found, err)
				}
			})
		}
		wg.Wait()
		// 16 of the 20 keys go in batches of two at most, once the size is known.
		if used := commands(t, s) - before; round > 0 && used < 10 {
			t.Errorf("round %d: %d commands for 20 large values: the batches are too large", round, used)
		}
	}
}

// TestCloseEndsQueuedReads: none hangs, whatever stage it is in.
func TestCloseEndsQueuedReads(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Timeout = 10 * time.Second })
	mustProbe(t, n)
	s.Stop()
	defer s.Cont()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if _, _, err := n.Get(context.Background(), strconv.Itoa(i)); !errors.Is(err, redisnode.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		})
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = n.Close() })
	wg.Wait()
	if _, _, err := n.Get(context.Background(), "k"); !errors.Is(err, redisnode.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestAilingAfterASuccessfulGet(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Timeout = 200 * time.Millisecond })
	mustProbe(t, n)
	s.Stop()
	_, _, err := n.Get(t.Context(), "k")
	s.Cont()
	eventually(t, "an answer", func() bool { _, _, err := n.Get(t.Context(), "k"); return err == nil })
	if n.Ailing() {
		t.Errorf("Ailing after %v and then a Get that succeeded", err)
	}
}

// TestBatchesKnowTheSizeOfValues: from single reads, too.
func TestBatchesKnowTheSizeOfValues(t *testing.T) {
	s, n := startNode(t, nil)
	if got := n.BatchKeys(512); got != 16 {
		t.Errorf("BatchKeys is %d before anything was read, want 16", got)
	}
	for _, tc := range []struct{ size, least, most int }{{100, 512, 512}, {256 << 10, 16, 16}, {8 << 20, 1, 1}} {
		if err := s.Client().Set(t.Context(), "k", strings.Repeat("x", tc.size), 0).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := n.MGet(t.Context(), []string{"k", "none"}); err != nil && tc.size <= 100 {
			t.Fatal(err)
		}
		if _, _, err := n.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if got := n.BatchKeys(512); got < tc.least || got > tc.most {
			t.Errorf("BatchKeys is %d after a value of %d bytes, want %d to %d", got, tc.size, tc.least, tc.most)
		}
	}
}

// TestDeadConnectionsAreNoTrouble: the pool holds connections that were cut while they were idle; a read does not fail for them.
func TestDeadConnectionsAreNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		var mu sync.Mutex
		var open []net.Conn
		n := newNode(t, "pipe:1", func(c *redisnode.Config) {
			c.Options = func(o *redis.Options) {
				o.Dialer = func(context.Context, string, string) (net.Conn, error) {
					conn, err := m.Dial()
					mu.Lock()
					defer mu.Unlock()
					open = append(open, conn)
					return conn, err
				}
			}
		})
		var wg sync.WaitGroup
		for range 3 { // three connections
			wg.Go(func() {
				if _, err := n.MGet(t.Context(), []string{"k"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, conn := range open {
			_ = conn.Close()
		}
		if _, _, err := n.Get(t.Context(), "k"); err != nil {
			t.Errorf("with %d dead connections in the pool: %v", len(open), err)
		}
		_ = n.Close()
		m.Close()
	})
}

// TestSharedReadsOfAList: what is not a string is refused, however many read at the same time, and a missing name beside it is missing.
func TestSharedReadsOfAList(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	if err := s.Client().RPush(t.Context(), "list", "x").Err(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 20 {
				if i%2 == 0 {
					if v, found, err := n.Get(t.Context(), "list"); !redisnode.IsWrongType(err) {
						t.Errorf("a list: %q, %t, %v", v, found, err)
					}
				} else if v, found, err := n.Get(t.Context(), "missing"+strconv.Itoa(i)); v != nil || found || err != nil {
					t.Errorf("a missing name: %q, %t, %v", v, found, err)
				}
			}
		})
	}
	wg.Wait()
}
