// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// TestFetch_Storm lets three processes and two writers loose on one shelf whose
// node loses requests, loses replies, and acts late, with loads that fail, hang,
// panic and exit. The shelf itself reports a token that is sent twice, a second
// fill under a token, and a fill without a granted lease. In the end, when all that
// was late has arrived and all leases have run out, the shelf holds the present row
// or nothing, and nobody holds a place.
func TestFetch_Storm(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 40
	}
	var stored, refused, waited, failed int
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := newStorm(t, seed)
			s.rage(t)
			if entry := s.shelf.stored(); entry != 0 && entry != int(s.db.Load()) {
				t.Errorf("seed %d: the shelf holds row version %d, the database %d", seed, entry, s.db.Load())
			}
			if lease := s.shelf.held(); lease != "" {
				t.Errorf("seed %d: lease %s is left", seed, lease)
			}
			stored, refused, waited, failed = stored+s.stored, refused+s.refused, waited+s.waited, failed+s.failed
		})
		if t.Failed() {
			t.Fatalf("stopped at seed %d", seed)
		}
	}
	if stored == 0 || refused == 0 || waited == 0 || failed == 0 {
		t.Errorf("the storm was too mild: %d stored, %d refused, %d waited, %d failed", stored, refused, waited, failed)
	}
	t.Logf("%d seeds: %d stored, %d refused, %d waited, %d failed", seeds, stored, refused, waited, failed)
}

type storm struct {
	*world
	peers []*world
	mu    sync.Mutex
	rnd   *rand.Rand

	stored, refused, waited, failed int
}

func newStorm(t testing.TB, seed int) *storm {
	s := &storm{world: newWorld(t), rnd: rand.New(rand.NewPCG(uint64(seed), 1))}
	s.peers = []*world{s.world, s.world.peer(t), s.world.peer(t)}
	s.shelf.hook = s.weather
	return s
}

func (s *storm) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func (s *storm) ms(n int) time.Duration { return time.Duration(s.n(n)) * time.Millisecond }

// weather is what happens to a request.
func (s *storm) weather(op string) fault {
	f := fault{latency: time.Duration(s.n(2000)) * time.Microsecond}
	switch s.n(8) {
	case 0:
		f.err, f.lost = true, true
	case 1:
		f.err = true
	case 2:
		f.err, f.late = true, 1+s.ms(80)
	}
	return f
}

// row is a load in bad weather.
func (s *storm) row(ctx context.Context) (loaded, error) {
	v := int(s.db.Load())
	time.Sleep(s.ms(60)) // the answer is on its way; rows change meanwhile
	switch s.n(16) {
	case 0:
		return loaded{}, errBoom
	case 1:
		panic(errBoom)
	case 2:
		runtime.Goexit()
	case 3:
		<-ctx.Done()
		return loaded{}, ctx.Err()
	case 4:
		time.Sleep(3 * time.Second) // heeds nothing
	}
	return loaded{Entry: v, Version: uint64(v), Unstorable: s.n(20) == 0}, nil
}

func (s *storm) rage(t *testing.T) {
	var wg sync.WaitGroup
	for _, p := range s.peers {
		for range 3 {
			wg.Go(func() {
				for range 4 {
					time.Sleep(s.ms(100))
					s.reader(t, p)
				}
			})
		}
	}
	for range 2 {
		wg.Go(func() {
			for range 4 {
				time.Sleep(s.ms(150))
				s.db.Add(1)
				for s.shelf.invalidate() != nil { // as the outbox would
					time.Sleep(s.ms(20))
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Minute) // in the bubble: all that is late arrives, all leases run out
	for _, p := range s.peers {
		mustClose(t, p.guard)
		p.idle(t)
	}
}

func (s *storm) reader(t testing.TB, p *world) {
	mode := stampede.Miss
	if s.n(4) == 0 {
		mode = stampede.Refresh
	}
	out, err := stampede.Fetch(t.Context(), p.loop, s.shelf, mode, nil, s.row)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, expected := range []error{errBoom, stampede.ErrGoexit, stampede.ErrLoadTimeout, stampede.ErrOverloaded} {
		if errors.Is(err, expected) {
			s.failed++
			return
		}
	}
	if err != nil || mode == stampede.Miss && out.Entry == 0 {
		t.Error(fmt.Errorf("unexpected: %+v, %w", out, err))
	}
	count := func(b bool, n *int) {
		if b {
			*n++
		}
	}
	count(out.Filled, &s.stored)
	count(out.Refused, &s.refused)
	count(out.Waited, &s.waited)
}
