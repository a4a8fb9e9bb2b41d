// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

var errDatabase = errors.New("database: connection refused")

// bubble runs a test on the clock of a synctest bubble, with n embedded nodes.
func bubble(t *testing.T, n int, test func(t *testing.T, nodes *clienttest.Nodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, clienttest.Start(t, n)) })
}

// flaky is a source that can be made to fail, to hang, and to fail under more than so many queries a second.
type flaky struct {
	mu      sync.Mutex
	row     string
	err     error
	hang    bool
	most    int // queries a second; 0: no limit
	second  time.Time
	queries int // in that second
	calls   map[string]int
	running int
	highest int
}

func (f *flaky) set(row string, err error, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.row, f.err, f.most = row, err, most
}

// taken returns how many calls there were since it was called last, in all.
func (f *flaky) taken() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.calls {
		n += k
	}
	f.calls = nil
	return n
}

func (f *flaky) begin(keys ...string) (row string, hang bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = make(map[string]int)
	}
	for _, k := range keys {
		f.calls[k]++
	}
	f.running++
	f.highest = max(f.highest, f.running)
	if now := time.Now(); now.Sub(f.second) >= time.Second {
		f.second, f.queries = now, 0
	}
	if f.queries++; f.most > 0 && f.queries > f.most {
		return "", f.hang, errors.New("database: too many queries")
	}
	return f.row, f.hang, f.err
}

func (f *flaky) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
}

func (f *flaky) load(ctx context.Context, key string) (string, error) {
	row, hang, err := f.begin(key)
	defer f.end()
	if hang {
		<-ctx.Done()
		return "", ctx.Err()
	}
	time.Sleep(5 * time.Millisecond)
	return row, err
}

func (f *flaky) loadMany(ctx context.Context, keys []string) (map[string]string, error) {
	row, hang, err := f.begin(keys...)
	defer f.end()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(5 * time.Millisecond)
	rows := make(map[string]string)
	for _, k := range keys {
		rows[k] = row
	}
	return rows, err
}

// TestRB36_SourceErrorsDoNotFeedThemselves: ten processes read a key all the time. For 30 s its loads fail, then the database is well again but takes no more than 50
// queries a second. What is stored stays, byte for byte; readers have it until its TTL (and with StaleIfError all the time); the database is asked
// once a back-off step and process at most; and when it is well the key is fresh within one step, without anybody's help.
func TestRB36_SourceErrorsDoNotFeedThemselves(t *testing.T) {
	for name, stale := range map[string]time.Duration{"until the TTL": 0, "with StaleIfError": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
				const processes, readers, outage, ttl = 10, 2, 30 * time.Second, 10 * time.Second
				src := &flaky{row: "v1"}
				var recovered, fresh atomic.Int64 // when
				var errs atomic.Int64
				began := time.Now()
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				var where string
				for range processes {
					c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: ttl, SoftTTL: 2 * time.Second, NoJitter: true, NoEarlyRefresh: true,
						L1: client.L1Off, StaleIfError: stale, Load: src.load})
					_, where = c.Where("k")
					for i := range readers {
						wg.Go(func() {
							time.Sleep(time.Duration(i) * 77 * time.Millisecond)
							for ctx.Err() == nil {
								r, err := c.Lookup(t.Context(), "k")
								age := time.Since(began)
								switch {
								case err != nil && (stale > 0 || age < ttl || !errors.Is(err, errDatabase) && !strings.Contains(err.Error(), "database:")):
									t.Errorf("at %v: %v", age, err)
								case err != nil:
									errs.Add(1)
								case r.Value == "v2":
									fresh.CompareAndSwap(0, int64(age))
								case r.Value != "v1" || r.Age > ttl && (!r.Stale || r.LoadErr == nil || stale == 0):
									t.Errorf("at %v: %+v", age, r)
								}
								time.Sleep(150 * time.Millisecond)
							}
						})
					}
				}
				time.Sleep(time.Second)
				if n := src.taken(); n != 1 {
					t.Errorf("%d queries before the outage, want 1", n)
				}
				entry, _ := nodes.Node(0).Get(where)
				src.set("v1", errDatabase, 0)
				time.Sleep(ttl - 1100*time.Millisecond)
				if now, _ := nodes.Node(0).Get(where); !bytes.Equal(now, entry) || len(entry) == 0 {
					t.Error("the entry is not what it was")
				}
				time.Sleep(outage - ttl + 1100*time.Millisecond)
				if n := src.taken(); n < processes || n > 8*processes { // 0.5+1+2+4+8+15 s are the shortest steps
					t.Errorf("%d queries in the outage of %v from %d processes", n, outage, processes)
				}
				recovered.Store(int64(time.Since(began)))
				src.set("v2", nil, 50)
				time.Sleep(30 * time.Second)
				if took := time.Duration(fresh.Load() - recovered.Load()); fresh.Load() == 0 || took > 16*time.Second {
					t.Errorf("fresh %v after the database was well", took)
				}
				time.Sleep(time.Second)
				for range processes { // refreshed every 2 s, by one of them
					src.taken()
				}
				time.Sleep(20 * time.Second)
				if n := src.taken(); n > 12 {
					t.Errorf("%d queries in 20 s with a well database", n)
				}
				stop()
				wg.Wait()
				if (stale == 0) != (errs.Load() > 0) {
					t.Errorf("%d reads failed", errs.Load())
				}
			})
		})
	}
}

// TestErrorBackoff: the error of the load itself is its callers' as it is; then the key is left alone, the longer the more often it has failed, and its readers are
// told what it failed with. Others are not concerned.
func TestErrorBackoff(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{err: errDatabase}
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: src.load})
		var tries []time.Time // their ends
		for range 8000 {
			_, err := c.Get(t.Context(), "k")
			if err == errDatabase { //nolint:errorlint // this very one: the load was this caller's
				tries = append(tries, time.Now())
			} else if !errors.Is(err, errDatabase) {
				t.Fatal(err)
			}
			time.Sleep(15 * time.Millisecond)
		}
		if n := src.taken(); n != len(tries) || n < 8 || n > 13 {
			t.Errorf("%d loads, %d of which were a caller's, in two minutes", n, len(tries))
		}
		for i, try := range tries[1:] {
			most := min(time.Second<<i, 30*time.Second)
			if step := try.Sub(tries[i]); step < most/2 || step > most+40*time.Millisecond {
				t.Errorf("step %d is %v, want %v to %v", i, step, most/2, most)
			}
		}
		_, err := c.Get(t.Context(), "k")
		mentions(t, err, []string{"cache x", `key "k"`, "not tried again within", "in a row", errDatabase.Error()})
		if s := c.Stats(); s.HeldBack == 0 || s.LoadErrors != s.Loads || s.SourceRefused != 0 || s.SourceState != "closed" {
			t.Errorf("%+v", s)
		}
		src.set("v", nil, 0)
		want(t, c, "other", "v", client.LayerSource)
	})
}

// TestErrorBackoffEnds: a success ends it, and the next failure is a first one; an invalidation by this process ends it, also one that comes while the load
// is failing; a forced load is not held back, and its success ends it; without it every read tries.
func TestErrorBackoffEnds(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{}
		cl := open(t, nodes.Config())
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: src.load})
		fails := func(err error) {
			t.Helper()
			src.set("", err, 0)
			src.taken()
			if _, err := c.GetWith(t.Context(), "k", nil, client.GetOptions{Refresh: true}); !errors.Is(err, errDatabase) || src.taken() != 1 {
				t.Errorf("the forced load: %v", err)
			}
			if _, err := c.Get(t.Context(), "k"); !errors.Is(err, errDatabase) || src.taken() != 0 {
				t.Errorf("not held back: %v", err)
			}
			src.set("v", nil, 0)
		}
		tried := func(what string, layer client.Layer) {
			t.Helper()
			want(t, c, "k", "v", layer)
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Error(what, err)
			}
		}
		fails(errDatabase)
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		tried("after an invalidation", client.LayerSource)
		fails(errDatabase)
		if err := c.Clear(t.Context()); err != nil {
			t.Error(err)
		}
		tried("after a Clear", client.LayerSource)
		fails(errDatabase)
		time.Sleep(time.Second)
		tried("after the pause", client.LayerSource)
		fails(errDatabase)
		if _, err := c.GetWith(t.Context(), "k", nil, client.GetOptions{Refresh: true, NoFill: true}); err != nil {
			t.Error(err)
		}
		tried("after a forced load", client.LayerSource)
		fails(errDatabase)
		time.Sleep(time.Second + time.Millisecond)
		tried("again", client.LayerSource)

		src.set("", errDatabase, 0)
		var wg sync.WaitGroup
		wg.Go(func() { c.Get(t.Context(), "k") })
		time.Sleep(time.Millisecond) // it is loading
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		wg.Wait()
		src.set("v", nil, 0)
		tried("after an invalidation during the load", client.LayerSource)

		always := newCache(t, cl, client.CacheConfig[string]{Name: "always", TTL: time.Minute, L1: client.L1Off, Load: src.load, NoErrorBackoff: true, NoSourceBreaker: true})
		src.set("", errDatabase, 0)
		src.taken()
		for range 50 {
			if _, err := always.Get(t.Context(), "k"); err != errDatabase { //nolint:errorlint // this very one
				t.Error(err)
			}
		}
		if n := src.taken(); n != 50 {
			t.Errorf("%d loads of 50 without back-off and breaker", n)
		}
	})
}

// TestErrorBackoffOfABatch: GetMany leaves alone the keys that have failed and loads the others; a call that fails counts for each of its keys.
func TestErrorBackoffOfABatch(t *testing.T) {
	bubble(t, 2, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{row: "v", err: errDatabase}
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, LoadMany: src.loadMany})
		if _, err := c.GetMany(t.Context(), []string{"a", "b"}); !errors.Is(err, errDatabase) {
			t.Error(err)
		}
		src.set("v", nil, 0)
		src.taken()
		m, err := c.GetMany(t.Context(), []string{"a", "b", "c", "d"})
		var key *client.KeyError
		if len(m) != 2 || m["c"] != "v" || m["d"] != "v" || !errors.Is(err, errDatabase) || !errors.As(err, &key) {
			t.Errorf("%v, %v", m, err)
		}
		if src.calls["a"]+src.calls["b"] != 0 || src.taken() != 2 {
			t.Error("keys were tried that are to be left alone")
		}
		if _, err := c.Get(t.Context(), "a"); !errors.Is(err, errDatabase) {
			t.Errorf("Get: %v", err)
		}
		time.Sleep(time.Second + time.Millisecond)
		if m, err := c.GetMany(t.Context(), []string{"a", "b"}); err != nil || len(m) != 2 {
			t.Errorf("a second later: %v, %v", m, err)
		}
	})
}

// TestErrorBackoffIsBounded: however many keys fail, some four thousand are remembered.
func TestErrorBackoffIsBounded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, nodes *clienttest.Nodes) {
		src := &flaky{err: errDatabase}
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, LoadMany: src.loadMany, NoSourceBreaker: true})
		nodes.Node(0).Down() // it has no part in this
		keys := make([]string, 10_000)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		if _, err := c.GetMany(t.Context(), keys); !errors.Is(err, errDatabase) {
			t.Error(err)
		}
		src.taken()
		src.set("v", nil, 0)
		if _, err := c.GetMany(t.Context(), keys); !errors.Is(err, errDatabase) {
			t.Error(err)
		}
		if n := len(keys) - src.taken(); n < 2048 || n > 4096 {
			t.Errorf("%d keys are left alone, want some 4,096", n)
		}
	})
}
