// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const stressKeys = 16

// stress is a source with versions that only grow, and a cache in front of it.
type stress struct {
	cache  *Cache[uint64]
	source [stressKeys]atomic.Uint64 // the newest version
	floor  [stressKeys]atomic.Uint64 // the newest version whose invalidation has returned
	names  [stressKeys]string
	done   atomic.Bool
}

// enough says that what the test looks for has been run often enough.
func (s *stress) enough() bool {
	st := s.cache.Stats()
	return st.Hits > 20_000 && st.RefusedVoid > 1000 && st.Evicted > 1000 && st.Expired > 100
}

// write changes the keys that leave rest modulo 2: each key has one writer, so its versions only grow.
func (s *stress) write(rest int) {
	rng := rand.New(rand.NewPCG(uint64(rest), 9))
	for !s.done.Load() {
		k := rng.IntN(stressKeys/2)*2 + rest
		v := s.source[k].Add(1)
		runtime.Gosched()
		s.cache.Invalidate(s.names[k])
		s.floor[k].Store(v)
		for range rng.IntN(20) { // let readers have some hits
			runtime.Gosched()
		}
	}
}

// read reads one key, and fills it on a miss. It reports a value that an invalidation should have ended.
func (s *stress) read(rng *rand.Rand) error {
	k := rng.IntN(stressKeys)
	key, low, now := s.names[k], s.floor[k].Load(), time.Now()
	if v, ok := s.cache.Get(key, now); ok {
		if v < low {
			return fmt.Errorf("%s: version %d is visible after the invalidation of %d had returned", key, v, low)
		}
		return nil
	}
	t := s.cache.Begin(key)
	v := s.source[k].Load()
	runtime.Gosched() // the reply is on its way
	switch rng.IntN(16) {
	case 0:
		s.cache.Cancel(t)
	case 1: // lost
	case 2:
		s.cache.Commit(t, v, 1, now.Add(1), now)
	default:
		s.cache.Commit(t, v, int64(rng.IntN(64)), now.Add(time.Hour), now)
		s.cache.Cancel(t)
	}
	return nil
}

// Readers fill, writers change the source and invalidate, now and then everything is dropped: once Invalidate has
// returned for version n, no Get that starts later may see a version below n. Small bounds and some short lives keep
// eviction and expiry in the game.
func TestStress(t *testing.T) {
	c, err := New[uint64](Config{Shards: 2, MaxEntries: 12, MaxBytes: 12 * (EntryOverhead + 48)})
	if err != nil {
		t.Fatal(err)
	}
	s := &stress{cache: c}
	for k := range s.names {
		s.names[k] = fmt.Sprint("k", k)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.done.Store(true) // whatever check says
	for rest := range 2 {
		wg.Go(func() { s.write(rest) })
	}
	for n := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for !s.done.Load() {
				if err := s.read(rng); err != nil {
					t.Error(err)
					s.done.Store(true)
				}
			}
		})
	}
	deadline := time.Now().Add(30 * time.Second)
	for i := 0; !s.done.Load() && !s.enough() && time.Now().Before(deadline); i++ {
		if check(t, c); i%50 == 49 {
			c.Clear()
		}
		runtime.Gosched()
	}
	s.done.Store(true)
	wg.Wait()
	check(t, c)
	if !t.Failed() && !s.enough() {
		t.Errorf("the stress did not reach what it is for: %+v", c.Stats())
	}
}

// An invalidation races fills that began before it, started together, many times over: none is visible afterwards.
func TestInvalidateAgainstCommit(t *testing.T) {
	c, err := New[int](Config{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	const racers = 3
	for i := range 2000 {
		now := time.Now()
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range racers {
			tk := c.Begin("k")
			wg.Go(func() {
				<-start
				c.Commit(tk, i, 1, now.Add(time.Hour), now)
			})
		}
		wg.Go(func() {
			<-start
			c.Invalidate("k")
			if v, ok := c.Get("k", now); ok {
				t.Errorf("run %d: %d is visible after Invalidate", i, v)
			}
		})
		close(start)
		wg.Wait()
		if v, ok := c.Get("k", now); ok {
			t.Fatalf("run %d: %d appeared after Invalidate", i, v)
		}
	}
	check(t, c)
}
