// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package twin_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/twin"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/localcache"
)

const steps = 3000

// at is a moment on the clocks of these tests; it is never the zero time.
func at(tick int) time.Time { return time.Unix(1000+int64(tick), 0) }

// seen counts what a test has come across, so that it cannot pass by meeting nothing.
type seen map[string]int

func (s seen) all(t *testing.T, what ...string) {
	t.Helper()
	for _, w := range what {
		if s[w] == 0 {
			t.Errorf("never came across: %s", w)
		}
	}
}

// The slot is a localcache.Cache of one key, up to what a Cancel after the ticket's end may do there.
func TestSlot(t *testing.T) {
	for seed := range uint64(20) {
		rng, s, met := rand.New(rand.NewPCG(seed, 1)), twin.Slot{}, seen{}
		real, err := localcache.New[uint8](localcache.Config{Shards: 1})
		if err != nil {
			t.Fatal(err)
		}
		var out [3]*localcache.Ticket
		for n := range steps {
			i, now := rng.IntN(len(out)), at(n)
			switch op := rng.IntN(10); {
			case op < 4 && out[i] == nil:
				tk := real.Begin("k")
				out[i] = &tk
				s.Begin(i)
			case op < 7 && out[i] != nil:
				v := uint8(1 + rng.IntN(200))
				got, want := real.Commit(*out[i], v, 1, now.Add(time.Hour), now), s.Commit(i, v)
				if got != want {
					t.Fatalf("step %d: Commit %t, the twin says %t", n, got, want)
				}
				met[map[bool]string{true: "stored", false: "void"}[got]]++
				out[i] = nil
			case op < 8 && out[i] != nil:
				real.Cancel(*out[i])
				s.Cancel(i)
				out[i] = nil
				met["cancelled"]++
			case op == 9:
				real.Invalidate("k")
				s.Invalidate()
			}
			if v, _ := real.Get("k", now); v != s.Value {
				t.Fatalf("step %d: the cache has %d, the twin %d", n, v, s.Value)
			}
		}
		met.all(t, "stored", "void", "cancelled")
	}
}

func TestOutbox(t *testing.T) {
	for seed := range uint64(20) {
		rng, o, met := rand.New(rand.NewPCG(seed, 2)), twin.Outbox{}, seen{}
		real, err := invalidation.NewOutbox(invalidation.OutboxConfig{MinBackoff: 1, MaxBackoff: 1})
		if err != nil {
			t.Fatal(err)
		}
		var attempt []invalidation.Pending
		for n := range steps {
			switch rng.IntN(4) {
			case 0:
				v := uint8(rng.IntN(9))
				if err := real.Put("k", rng.IntN(3), uint64(v), at(n)); err != nil {
					t.Fatal(err)
				}
				if o.Flying {
					met["put while flying"]++
				}
				o.Put(v)
			case 1:
				got, want := real.Due(at(n+10), 9), o.Due()
				if (got != nil) != want || want && got[0].Version != uint64(o.Version) {
					t.Fatalf("step %d: Due %+v, the twin %t %+v", n, got, want, o)
				}
				attempt = append(attempt, got...)
			default:
				if len(attempt) == 0 {
					continue
				}
				if rng.IntN(2) == 0 {
					real.Done(attempt[0])
					o.Done()
					met["done"]++
				} else {
					real.Failed(attempt[0], at(n), 0)
					o.Failed()
					met["failed"]++
				}
				attempt = nil
			}
			if real.Has("k") != o.In {
				t.Fatalf("step %d: Has %t, the twin says %t", n, !o.In, o.In)
			}
		}
		met.all(t, "put while flying", "done", "failed")
	}
}

func TestLater(t *testing.T) {
	for seed := range uint64(20) {
		rng, met := rand.New(rand.NewPCG(seed, 3)), seen{}
		for range 200 { // the twin's times are small
			l := twin.Later{}
			real, err := invalidation.NewLater(invalidation.LaterConfig{})
			if err != nil {
				t.Fatal(err)
			}
			for now := uint8(1); now < 100; now += uint8(rng.IntN(4)) {
				if rng.IntN(3) == 0 {
					v, due := uint8(rng.IntN(9)), now+uint8(rng.IntN(20))
					if real.Add("k", uint64(v), at(int(due))) != nil {
						t.Fatal("full")
					}
					l.Add(v, due)
					continue
				}
				got := real.Due(at(int(now)), 1)
				v, due := l.Due(now)
				if (got != nil) != due || due && got[0].Version != uint64(v) {
					t.Fatalf("at %d: Due %+v, the twin %d %t", now, got, v, due)
				}
				if due && l.Next > 0 {
					met["one of two"]++
				}
				if real.Len() > 0 != (l.Next > 0) {
					t.Fatalf("at %d: %d are waiting, the twin has %+v", now, real.Len(), l)
				}
			}
		}
		met.all(t, "one of two")
	}
}
