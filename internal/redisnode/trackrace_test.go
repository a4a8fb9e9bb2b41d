// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/localcache"
)

// copies is what a client builds on a Tracking: a local cache that Push empties.
type copies struct {
	node  *redisnode.Node
	cache *localcache.Cache[uint64]
	fence atomic.Pointer[string] // the last fence that was pushed
	nils  atomic.Int64
	news  chan struct{} // either has changed
	stats struct{ hits, reads, refused atomic.Int64 }
}

func (c *copies) push(names []string) {
	if names == nil {
		c.cache.Clear()
		c.nils.Add(1)
	}
	for _, name := range names {
		c.cache.Invalidate(name)
		if len(name) > 6 && name[:6] == "fence:" {
			c.fence.Store(&name)
		}
	}
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// get reads the counter k, here or there; false if there is no answer.
func (c *copies) get(ctx context.Context) (uint64, bool) {
	tr, now := c.node.Tracking(), time.Now()
	if tr == nil {
		return 0, false
	}
	if tr.Fresh(now) {
		if v, ok := c.cache.Get("k", now); ok {
			c.stats.hits.Add(1)
			return v, true
		}
	}
	ticket := c.cache.Begin("k")
	defer c.cache.Cancel(ticket)
	data, _, err := tr.Get(ctx, "k", "lease of k")
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseUint(string(data), 10, 64)
	if err != nil {
		return 0, false
	}
	c.stats.reads.Add(1)
	if !c.cache.Commit(ticket, v, 8, now.Add(time.Minute), time.Now()) {
		c.stats.refused.Add(1)
	}
	return v, true
}

// passFence waits until all that was written before has been pushed: pushes come in order. False if that cannot be known.
func (c *copies) passFence(ctx context.Context, s *redistest.Server, i int) bool {
	fence, nils := fmt.Sprint("fence:", i), c.nils.Load()
	tr := c.node.Tracking()
	if tr == nil {
		return false
	}
	if _, _, err := tr.Get(ctx, fence, ""); err != nil {
		return false
	}
	if _, err := s.Do(ctx, "SET", fence, i); err != nil {
		return false
	}
	for p := c.fence.Load(); p == nil || *p != fence; p = c.fence.Load() {
		if c.nils.Load() != nils || ctx.Err() != nil {
			return false
		}
		select {
		case <-c.news:
		case <-ctx.Done():
		}
	}
	return true
}

// Readers keep copies of a counter while a writer counts up and connections are killed. Once a write has returned and the
// pushes up to it have been handled, no reader gets an older value, from a copy or from the node.
func TestNoCopyIsOlderThanThePushes(t *testing.T) {
	const writes = 2000
	cache, err := localcache.New[uint64](localcache.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := &copies{cache: cache, news: make(chan struct{}, 1)}
	s, n := startNode(t, func(cfg *redisnode.Config) { cfg.Push = c.push; cfg.Timeout = 5 * time.Second })
	c.node = n
	do(t, s, "SET", "k", 0)
	run(t, n)
	tracked(t, n)
	var floor atomic.Uint64 // written, and the pushes up to it handled
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				least := floor.Load()
				if v, ok := c.get(ctx); ok && v < least {
					t.Errorf("got %d after the pushes up to %d were handled", v, least)
				}
				time.Sleep(20 * time.Microsecond) // the writer and the server need the processors as well
			}
		})
	}
	fenced := 0
	for i := 1; i <= writes && !t.Failed(); i++ {
		do(t, s, "SET", "k", i)
		if c.passFence(t.Context(), s, i) {
			floor.Store(uint64(i)) //nolint:gosec // positive
			fenced++
		}
		if i%250 == 0 {
			nils := c.nils.Load()
			victims := clients(t, s, []string{"shelf-listener", "shelf-fill"}[i/250%2])
			do(t, s, "CLIENT", "KILL", "ID", victims[i/500%len(victims)]["id"])
			eventually(t, "Push(nil)", func() bool { return c.nils.Load() > nils })
			tracked(t, n)
		}
	}
	cancel()
	readers.Wait()
	st := &c.stats
	t.Logf("%d of %d writes fenced; %d hits, %d reads, %d copies refused", fenced, writes, st.hits.Load(), st.reads.Load(), st.refused.Load())
	if fenced < writes/2 || st.hits.Load() == 0 || st.refused.Load() == 0 {
		t.Error("this test tested nothing")
	}
}

// How long a change by another connection takes to be handled, from before it is sent.
func BenchmarkPush(b *testing.B) {
	pushed := make(chan time.Time, 16)
	s, n := startNode(b, func(c *redisnode.Config) {
		c.Push = func(names []string) {
			if names != nil {
				pushed <- time.Now()
			}
		}
	})
	run(b, n)
	tr := tracked(b, n)
	var took []time.Duration
	for b.Loop() {
		mustGet(b, tr, "k", "")
		sent := time.Now()
		do(b, s, "SET", "k", "v")
		took = append(took, (<-pushed).Sub(sent))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

func BenchmarkFresh(b *testing.B) {
	_, n, _ := startTracked(b, nil)
	tr, now := n.Tracking(), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if !tr.Fresh(now) {
			b.Fatal("not fresh")
		}
	}
}

func BenchmarkTrackedGet(b *testing.B) {
	s, n, _ := startTracked(b, nil)
	do(b, s, "SET", "k", "v")
	tr := tracked(b, n)
	b.ReportAllocs()
	for b.Loop() {
		mustGet(b, tr, "k", "lease")
	}
}

func BenchmarkTrackedGetParallel(b *testing.B) {
	s, n, _ := startTracked(b, func(c *redisnode.Config) { c.Timeout = 5 * time.Second })
	do(b, s, "SET", "k", "v")
	tr := tracked(b, n)
	b.SetParallelism(32)
	b.ReportAllocs()
	var i atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		key := fmt.Sprint("k", i.Add(1))
		for pb.Next() {
			if _, _, err := tr.Get(b.Context(), key, "lease"); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// TestTrackingOfARunThatIsNotKnown: no Tracking is read through before OnRun has returned: who judges what it brings would do so by what was known of the old run.
func TestTrackingOfARunThatIsNotKnown(t *testing.T) {
	free, told := make(chan struct{}), make(chan struct{})
	runs := 0 // OnRun is not called twice at once
	server, node := startNode(t, func(c *redisnode.Config) {
		c.Push = func([]string) {}
		c.OnRun = func(redisnode.Info, redisnode.Info) {
			if runs++; runs == 2 {
				close(told)
				<-free
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { _ = node.Run(ctx) })
	defer loop.Wait()
	defer cancel()
	eventually(t, "tracking", func() bool { return node.Tracking() != nil })
	first := node.Tracking()
	server.Restart()
	for known := false; !known; time.Sleep(time.Millisecond) { // in front of the tracker's own attempt, which waits for 100 ms
		go func() { _, _ = node.Probe(ctx) }()
		select {
		case <-told:
			known = true
		default:
		}
	}
	for start := time.Now(); time.Since(start) < time.Second; time.Sleep(time.Millisecond) {
		if tr := node.Tracking(); tr != nil && tr != first {
			t.Error("there is a Tracking of a run that nobody has been told of")
			break
		}
	}
	close(free)
	eventually(t, "tracking again", func() bool { tr := node.Tracking(); return tr != nil && tr != first })
}
