// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// copyRuns are the copies that this process is making, one run a key and node. A run may outlive its copy's making: it rests after an attempt, so that readers do not
// have one after the other. Who asks meanwhile is not forgotten where that would leave the copy missing:
//
//  1. a run takes the lease and reads the owner
//  2. the key is invalidated: the lease goes, and the run's fill will be refused
//  3. the key is loaded and filled at its owner, which asks for the copies again: the run is still under way
//
// So the run goes once more.
type copyRuns struct {
	mu    sync.Mutex
	under map[string]*copyRun
}

type copyRun struct {
	again bool          // it was asked for meanwhile
	made  bool          // it has made its copy, and rests
	asked chan struct{} // closed with again
}

// wish says what becomes of a request for a copy whose run is under way.
type wish int

const (
	ifNobody  wish = iota // nothing
	ifGone                // where the run has made its copy, and rests, that has gone since: the run goes once more
	inAnyCase             // the run goes once more: what it has read may be older than what the owner has now
)

// begin enters a run. nil: there is one, and the request is noted as wished.
func (rs *copyRuns) begin(name string, w wish) *copyRun {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.under[name]
	if r == nil {
		if rs.under == nil {
			rs.under = make(map[string]*copyRun)
		}
		r = &copyRun{asked: make(chan struct{})}
		rs.under[name] = r
		return r
	}
	if (w == inAnyCase || w == ifGone && r.made) && !r.again {
		r.again = true
		close(r.asked)
	}
	return nil
}

// more says whether a run is to go once more; else it has left the table, and the next request begins another.
func (rs *copyRuns) more(name string, r *copyRun) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.made = false; r.again {
		r.again, r.asked = false, make(chan struct{})
		return true
	}
	rs.drop(name, r)
	return false
}

// end takes a run off the table that was not asked whether it goes once more.
func (rs *copyRuns) end(name string, r *copyRun) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.drop(name, r)
}

func (rs *copyRuns) drop(name string, r *copyRun) {
	if rs.under[name] == r {
		delete(rs.under, name)
	}
}

// rest holds a run's place for a while, or until somebody asks in a way that it heeds, or the cache closes. made says that the copy was made.
func (rs *copyRuns) rest(ctx context.Context, r *copyRun, d time.Duration, made bool) {
	rs.mu.Lock()
	r.made = made
	asked := r.asked
	rs.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-asked:
	case <-ctx.Done():
	}
}

// copyName names the making of one copy.
func copyName(key string, index int) string { return strconv.Itoa(index) + ":" + key }

// copyBehind makes a copy behind its caller's back. again says that this is not the first time: what is there now is replaced, however new. false: it is under way already, or
// the cache is closed.
func (c *Cache[V]) copyBehind(ctx context.Context, name string, w wish, attempt func(ctx context.Context, r *copyRun, again bool)) bool {
	runs := &c.copies.runs
	r := runs.begin(name, w)
	if r == nil {
		return false
	}
	started := c.copies.flight.Start(ctx, c.ownKey(), func(ctx context.Context, _ *stampede.Run) (struct{}, error) {
		defer runs.end(name, r) // also when the user's code panics
		attempt(ctx, r, false)
		for runs.more(name, r) && ctx.Err() == nil {
			attempt(ctx, r, true)
		}
		return struct{}{}, nil
	})
	if !started {
		runs.end(name, r)
	}
	return started
}
