// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// reader reads at a fixed rate from some goroutines and collects how long it took, and what failed.
type reader struct {
	mu     sync.Mutex
	took   []time.Duration
	failed int
	why    error // the latest
}

func (r *reader) run(n *redisnode.Node, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			tick := time.NewTicker(4 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				wg.Go(func() {
					began := time.Now()
					v, _, err := n.Get(context.Background(), "k")
					took := time.Since(began)
					r.mu.Lock()
					defer r.mu.Unlock()
					r.took = append(r.took, took)
					if err != nil || string(v) != "v" {
						r.failed++
						r.why = err
					}
				})
			}
		})
	}
	wg.Wait()
	slices.Sort(r.took)
}

func (r *reader) at(quantile float64) time.Duration {
	return r.took[int(quantile*float64(len(r.took)-1))]
}

// TestTenthOfRepliesSlow: the node delays each tenth reply by as much as the timeout. Nobody waits for those, nothing fails, the node is not down, and it does not
// get worse by connections that are closed and made again. A busy machine may spoil a try.
func TestTenthOfRepliesSlow(t *testing.T) {
	var wrong []string
	for range 4 {
		if wrong = tenthSlow(t); len(wrong) == 0 {
			return
		}
		t.Log(wrong)
	}
	t.Errorf("in four tries, the last: %q", wrong)
}

// tenthSlow is one try. It returns what was wrong.
func tenthSlow(t *testing.T) (wrong []string) {
	t.Helper()
	s := redistest.Start(t, redistest.Config{})
	link := startSlowLink(t, s.Addr())
	n, h := runNode(t, link.addr, nil)
	defer func() { _ = n.Close() }()
	mustSet(t, n, "k", "v")
	var healthy, first, later reader
	healthy.run(n, time.Second)
	conns := link.conns.Load()
	link.slow(100, 50*time.Millisecond)
	first.run(n, time.Second)
	later.run(n, 2*time.Second)
	for _, w := range []struct {
		name string
		*reader
	}{{"healthy", &healthy}, {"the first second", &first}, {"later", &later}} {
		t.Logf("%s: p50 %v, p95 %v, p99 %v, p99.9 %v, %d of %d failed", w.name, w.at(0.5), w.at(0.95), w.at(0.99), w.at(0.999), w.failed, len(w.took))
	}
	conns = link.conns.Load() - conns
	t.Logf("%d connections for %d reads", conns, len(first.took)+len(later.took))
	if at, _ := h.last(redisnode.Down); !at.IsZero() {
		wrong = append(wrong, h.String())
	}
	if got := later.at(0.95); got > healthy.at(0.95)+25*time.Millisecond { // of ten percent that would take 50 ms more
		wrong = append(wrong, fmt.Sprintf("p95 is %v", got))
	}
	if later.failed > len(later.took)/100 {
		wrong = append(wrong, fmt.Sprintf("%d of %d reads failed, the latest by %v", later.failed, len(later.took), later.why))
	}
	if conns > 50 { // one for each slow reply would be 300
		wrong = append(wrong, fmt.Sprintf("%d connections", conns))
	}
	return wrong
}

// TestAllRepliesSlower: a node that has become slow as a whole answers everybody, if it does so within the shortest wait that there is.
func TestAllRepliesSlower(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	p := redistest.StartProxy(t, s.Addr())
	n, h := runNode(t, p.Addr(), func(c *redisnode.Config) { c.Timeout = time.Second })
	mustSet(t, n, "k", "v")
	var before, after reader
	before.run(n, time.Second)
	p.ToClient().Delay(40*time.Millisecond, 0)
	after.run(n, 2*time.Second)
	t.Logf("p50 %v, p99 %v, %d of %d failed", after.at(0.5), after.at(0.99), after.failed, len(after.took))
	if after.failed > 0 || n.State() != redisnode.Up {
		t.Errorf("%d of %d reads failed, the latest by %v; %v", after.failed, len(after.took), after.why, h)
	}
}
