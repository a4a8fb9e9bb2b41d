// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// only returns a hook that gives fault f to requests of kind op.
func only(op string, f fault) func(string) fault {
	return func(got string) fault {
		if got == "before "+op {
			return f
		}
		return fault{}
	}
}

// TestFetch walks each way through the loop once: what is there before, how
// the node and the source behave, and what must come of it.
func TestFetch(t *testing.T) {
	gone := fault{err: true, lost: true}
	for _, c := range []struct {
		name  string
		mode  stampede.Mode
		setup func(w *world)
		load  func(w *world) func(context.Context) (loaded, error) // nil: the row
		want  outcome                                              // ShelfErr is compared by errors.Is
		err   error
		loads int
		entry int    // on the shelf at the end
		lease string // on the shelf at the end
		took  time.Duration
	}{
		{name: "hit after all", setup: func(w *world) { w.shelf.entry = 7 },
			want: outcome{Entry: 7, Source: stampede.FromShelf}, entry: 7},
		{name: "miss", want: outcome{Entry: 1, Source: stampede.FromLoad, Filled: true}, loads: 1, entry: 1, took: 100},
		{name: "expired, miss", mode: stampede.Expired, want: outcome{Entry: 1, Source: stampede.FromLoad, Filled: true}, loads: 1, entry: 1, took: 100},
		{name: "expired, somebody has loaded it", mode: stampede.Expired, setup: func(w *world) { w.shelf.entry = 7 },
			want: outcome{Entry: 7, Source: stampede.FromShelf}, entry: 7},
		{name: "expired, node gone", mode: stampede.Expired, setup: func(w *world) { w.shelf.hook = only("take", gone) },
			want: outcome{Entry: 1, Source: stampede.FromLoad, ShelfErr: errNode}, loads: 1, took: 100},
		{name: "refresh", mode: stampede.Refresh, setup: func(w *world) { w.shelf.entry = 7; w.db.Store(8) },
			want: outcome{Entry: 8, Source: stampede.FromLoad, Filled: true}, loads: 1, entry: 8, took: 100},
		{name: "refresh, held", mode: stampede.Refresh, setup: func(w *world) { w.shelf.entry = 7; hold(w, time.Second) },
			want: outcome{}, entry: 7, lease: "x"},
		{name: "refresh, node gone", mode: stampede.Refresh, setup: func(w *world) { w.shelf.hook = only("take", gone) },
			want: outcome{ShelfErr: errNode}},
		{name: "force, held", mode: stampede.Force, setup: func(w *world) { w.shelf.entry = 7; w.db.Store(8); hold(w, time.Second) },
			want: outcome{Entry: 8, Source: stampede.FromLoad, Filled: true}, loads: 1, entry: 8, took: 100},
		{name: "force is not repeated below the floor", mode: stampede.Force, setup: func(w *world) { w.shelf.floor, w.shelf.hasFloor = 5, true },
			want: outcome{Entry: 1, Source: stampede.FromLoad, Stale: true}, loads: 1, took: 100},
		{name: "take fails", setup: func(w *world) { w.shelf.hook = only("take", gone) },
			want: outcome{Entry: 1, Source: stampede.FromLoad, ShelfErr: errNode}, loads: 1, took: 100},
		{name: "take's reply is lost", setup: func(w *world) { w.shelf.hook = only("take", fault{err: true}) },
			want: outcome{Entry: 1, Source: stampede.FromLoad, ShelfErr: errNode}, loads: 1, took: 100},
		{name: "fill fails", setup: func(w *world) { w.shelf.hook = only("fill", gone) },
			want: outcome{Entry: 1, Source: stampede.FromLoad, ShelfErr: errNode}, loads: 1, took: 100},
		{name: "fill's reply is lost", setup: func(w *world) { w.shelf.hook = only("fill", fault{err: true}) },
			want: outcome{Entry: 1, Source: stampede.FromLoad, ShelfErr: errNode}, loads: 1, entry: 1, took: 100},
		{name: "release fails", setup: func(w *world) { w.shelf.hook = only("release", gone) },
			load: func(*world) func(context.Context) (loaded, error) {
				return func(context.Context) (loaded, error) { return loaded{}, errBoom }
			},
			want: outcome{ShelfErr: errNode}, err: errBoom, lease: "t"},
		{name: "no-store marker", setup: func(w *world) { w.shelf.lease, w.shelf.leaseEnd = "-", time.Now().Add(time.Second) },
			want: outcome{Entry: 1, Source: stampede.FromLoad}, loads: 1, lease: "-", took: 100},
		{name: "load fails", load: func(*world) func(context.Context) (loaded, error) {
			return func(context.Context) (loaded, error) { return loaded{}, errBoom }
		}, err: errBoom},
		{name: "load takes too long", setup: func(w *world) { w.load = time.Minute }, loads: 1, err: stampede.ErrLoadTimeout, took: 1000},
		{name: "unstorable", load: func(*world) func(context.Context) (loaded, error) {
			return func(context.Context) (loaded, error) { return loaded{Entry: 1, Unstorable: true}, nil }
		}, want: outcome{Entry: 1, Source: stampede.FromLoad}, lease: "-"},
		{name: "below the floor, then not", setup: func(w *world) {
			w.shelf.floor, w.shelf.hasFloor = 2, true
			time.AfterFunc(50*time.Millisecond, func() { w.db.Store(2) }) // the replica catches up
		}, want: outcome{Entry: 2, Source: stampede.FromLoad, Filled: true}, loads: 2, entry: 2, took: 200},
		{name: "below the floor twice", setup: func(w *world) { w.shelf.floor, w.shelf.hasFloor = 2, true },
			want: outcome{Entry: 1, Source: stampede.FromLoad, Stale: true}, loads: 2, took: 200},
		{name: "negative under a floor", setup: func(w *world) { w.shelf.hasFloor = true },
			load: func(w *world) func(context.Context) (loaded, error) {
				return func(context.Context) (loaded, error) { w.shelf.loads++; return loaded{Negative: true}, nil }
			}, want: outcome{Source: stampede.FromLoad, Stale: true}, loads: 2},
		{name: "second reading fails", setup: func(w *world) { w.shelf.floor, w.shelf.hasFloor = 2, true },
			load: func(w *world) func(context.Context) (loaded, error) {
				return func(context.Context) (loaded, error) {
					if w.shelf.loads++; w.shelf.loads > 1 {
						return loaded{}, errBoom
					}
					return loaded{Entry: 1, Version: 1}, nil
				}
			}, want: outcome{Entry: 1, Source: stampede.FromLoad, Stale: true}, loads: 2},
		{name: "invalidated meanwhile", setup: func(w *world) {
			time.AfterFunc(50*time.Millisecond, func() { _ = w.shelf.invalidate() })
		}, want: outcome{Entry: 1, Source: stampede.FromLoad, Refused: true}, loads: 1, took: 100},
		{name: "mark came with the lease kept", setup: func(w *world) {
			time.AfterFunc(50*time.Millisecond, func() {
				w.shelf.mu.Lock()
				defer w.shelf.mu.Unlock()
				w.shelf.floor, w.shelf.hasFloor = 9, true
			})
		}, want: outcome{Entry: 1, Source: stampede.FromLoad, Older: true}, loads: 1, took: 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if c.setup != nil {
					c.setup(w)
				}
				load := w.read
				if c.load != nil {
					load = c.load(w)
				}
				start := time.Now()
				got, err := stampede.Fetch(t.Context(), w.loop, w.shelf, c.mode, nil, load)
				if took := time.Since(start); took != c.took*time.Millisecond {
					t.Errorf("took %v, want %v", took, c.took*time.Millisecond)
				}
				if !errors.Is(err, c.err) || !errors.Is(got.ShelfErr, c.want.ShelfErr) {
					t.Errorf("error %v, shelf's %v; want %v, %v", err, got.ShelfErr, c.err, c.want.ShelfErr)
				}
				got.ShelfErr = c.want.ShelfErr
				if got != c.want {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
				mustClose(t, w.guard)
				w.idle(t)
				entry, loads, lease := w.shelf.stored(), w.shelf.loaded(), w.shelf.held()
				if strings.HasPrefix(lease, "t") {
					lease = "t"
				}
				if loads != c.loads || entry != c.entry || lease != c.lease {
					t.Errorf("%d loads, entry %d, lease %q; want %d, %d, %q", loads, entry, lease, c.loads, c.entry, c.lease)
				}
			})
		})
	}
}

// hold gives the lease to another process for d.
func hold(w *world, d time.Duration) { w.shelf.lease, w.shelf.leaseEnd = "x", time.Now().Add(d) }

// TestFetch_LateTake: the request for the lease times out and arrives after
// the load, and after the invalidation that came in between. A fill under it
// would store the old row.
func TestFetch_LateTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.shelf.hook = only("take", fault{err: true, late: 99 * time.Millisecond})
		time.AfterFunc(50*time.Millisecond, func() { w.db.Store(2); _ = w.shelf.invalidate() })
		out, err := w.fetch(t.Context(), stampede.Miss)
		if err != nil || out.Entry != 1 || out.Filled || len(w.shelf.filled) != 0 {
			t.Errorf("got %+v, %v and %d fills", out, err, len(w.shelf.filled))
		}
		mustClose(t, w.guard) // the release is its business: the caller does not wait for it
		if w.shelf.held() != "" {
			t.Error("the lease that arrived late was not released")
		}
	})
}

func TestFetch_Waits(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(w *world) // at time 0, somebody else has the lease
		want  outcome
		loads int
		min   time.Duration
		max   time.Duration
	}{
		{"the entry appears", func(w *world) {
			hold(w, 5*time.Second)
			time.AfterFunc(time.Second, func() { w.shelf.mu.Lock(); defer w.shelf.mu.Unlock(); w.shelf.entry, w.shelf.lease = 7, "" })
		}, outcome{Entry: 7, Source: stampede.FromShelf, Waited: true}, 0, time.Second, 1250 * time.Millisecond},
		{"the lease is released", func(w *world) {
			hold(w, 5*time.Second)
			time.AfterFunc(time.Second, func() { _ = w.shelf.Release(context.Background(), "x", false) })
		}, outcome{Entry: 1, Source: stampede.FromLoad, Filled: true, Waited: true}, 1, 1100 * time.Millisecond, 1350 * time.Millisecond},
		{"the lease expires", func(w *world) { hold(w, time.Second) },
			outcome{Entry: 1, Source: stampede.FromLoad, Filled: true, Waited: true}, 1, 1100 * time.Millisecond, 1350 * time.Millisecond},
		{"nothing will be stored", func(w *world) {
			hold(w, 5*time.Second)
			time.AfterFunc(time.Second, func() { _ = w.shelf.Release(context.Background(), "x", true) })
		}, outcome{Entry: 1, Source: stampede.FromLoad, Waited: true}, 1, 1100 * time.Millisecond, 1350 * time.Millisecond},
		{"for ever", func(w *world) { hold(w, time.Hour) },
			outcome{Entry: 1, Source: stampede.FromLoad, Waited: true}, 1, 3100 * time.Millisecond, 3100 * time.Millisecond},
		{"for ever, from one holder to the next", func(w *world) {
			w.shelf.hook = func(op string) fault { // whoever looks sees the lease free, whoever asks sees it held
				w.shelf.mu.Lock()
				defer w.shelf.mu.Unlock()
				switch op {
				case "before take":
					hold(w, time.Hour)
				case "before watch":
					w.shelf.lease = ""
				}
				return fault{}
			}
		}, outcome{Entry: 1, Source: stampede.FromLoad, Waited: true}, 1, 3100 * time.Millisecond, 3350 * time.Millisecond},
		{"the node dies", func(w *world) {
			hold(w, time.Hour)
			end := time.Now().Add(time.Second)
			w.shelf.hook = func(string) fault {
				dead := !time.Now().Before(end)
				return fault{err: dead, lost: dead}
			}
		}, outcome{Entry: 1, Source: stampede.FromLoad, Waited: true, ShelfErr: errNode}, 1, 1100 * time.Millisecond, 1350 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c.setup(w)
				// While it waits it must not occupy a place.
				time.AfterFunc(500*time.Millisecond, func() {
					if n := w.limiter.Stats().Running; n != 0 {
						t.Errorf("%d places taken while waiting", n)
					}
				})
				start := time.Now()
				got, err := w.fetch(t.Context(), stampede.Miss)
				took := time.Since(start)
				if err != nil || got != c.want || w.shelf.loaded() != c.loads {
					t.Errorf("got %+v, %v, %d loads; want %+v, %d", got, err, w.shelf.loaded(), c.want, c.loads)
				}
				if took < c.min || took > c.max {
					t.Errorf("took %v, want %v to %v", took, c.min, c.max)
				}
				time.Sleep(time.Second) // in the bubble: the check above has run
				w.idle(t)
			})
		})
	}
}

// TestFetch_Woken: a shelf that hears of changes ends the wait at once.
func TestFetch_Woken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hold(w, time.Hour)
		time.AfterFunc(1003*time.Millisecond, func() {
			w.shelf.mu.Lock()
			defer w.shelf.mu.Unlock()
			w.shelf.entry = 7
			w.shelf.touch()
		})
		start := time.Now()
		out, err := stampede.Fetch(t.Context(), w.loop, pushing{w.shelf}, stampede.Miss, nil, w.read)
		if err != nil || out.Entry != 7 || time.Since(start) != 1003*time.Millisecond {
			t.Errorf("got %+v, %v after %v, want 7 after 1.003s", out, err, time.Since(start))
		}
		if w.shelf.watches > 15 {
			t.Errorf("%d looks in a second, want the pauses to grow", w.shelf.watches)
		}
	})
}

// pushing is a shelf that hears of changes.
type pushing struct{ *memShelf }

func (p pushing) Watch(ctx context.Context) (state, error) {
	p.mu.Lock()
	changed := p.changed
	p.mu.Unlock()
	st, err := p.memShelf.Watch(ctx)
	st.Changed = changed
	return st, err
}

func TestFetch_CancelledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hold(w, time.Hour)
		var f stampede.Flight[outcome]
		ended := make(chan error, 1)
		f.Start(t.Context(), "k", func(ctx context.Context, r *stampede.Run) (outcome, error) {
			out, err := stampede.Fetch(ctx, w.loop, w.shelf, stampede.Miss, r, w.read)
			ended <- err
			return out, err
		})
		synctest.Wait()
		mustClose(t, &f)
		if err := <-ended; !errors.Is(err, stampede.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		w.idle(t)
	})
}

// TestFetch_HangingLoad: the caller goes at the limit and the lease with it, but
// the place stays taken until the load has really ended.
func TestFetch_HangingLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, err := stampede.Fetch(t.Context(), w.loop, w.shelf, stampede.Miss, nil, func(context.Context) (loaded, error) {
			time.Sleep(time.Minute)
			return loaded{Entry: 1}, nil
		})
		if !errors.Is(err, stampede.ErrLoadTimeout) {
			t.Errorf("got %v", err)
		}
		if w.shelf.held() != "" || w.limiter.Stats().Running != 1 {
			t.Errorf("lease %q, %d places taken; want none, 1", w.shelf.held(), w.limiter.Stats().Running)
		}
		mustClose(t, w.guard)
		w.idle(t)
	})
}

// TestFetch_OneLoadAcrossProcesses: twenty processes miss at once.
func TestFetch_OneLoadAcrossProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		done := make(chan outcome)
		for range 20 {
			p := w.peer(t)
			go func() {
				out, err := p.fetch(t.Context(), stampede.Miss)
				if err != nil {
					t.Error(err)
				}
				p.idle(t)
				done <- out
			}()
		}
		for range 20 {
			if out := <-done; out.Entry != 1 {
				t.Errorf("got %+v", out)
			}
		}
		if n := w.shelf.loaded(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
	})
}

// TestRB22_LateHolderReleasesNothing: A's load outlives its lease; B has the lease by
// then. A's fill is refused, A's release leaves B's lease alone, and both
// callers get their values.
func TestRB22_LateHolderReleasesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newWorld(t)
		a.shelf.ttl = 500 * time.Millisecond // shorter than validate would let a shelf have it
		a.load = 900 * time.Millisecond
		b := a.peer(t)
		got := make(chan outcome, 2)
		go func() { out, _ := a.fetch(t.Context(), stampede.Miss); got <- out }()
		time.Sleep(600 * time.Millisecond)
		a.shelf.mu.Lock()
		a.shelf.ttl = 5 * time.Second
		a.shelf.mu.Unlock()
		go func() { out, _ := b.fetch(t.Context(), stampede.Miss); got <- out }()
		synctest.Wait()
		lease := a.shelf.held()
		if out := <-got; !out.Refused || out.Entry != 1 {
			t.Errorf("A got %+v, want its value and a refused fill", out)
		}
		if now := a.shelf.held(); lease == "" || now != lease {
			t.Errorf("B's lease was %q and is %q", lease, now)
		}
		if out := <-got; !out.Filled {
			t.Errorf("B got %+v, want a fill", out)
		}
	})
}

// TestFetch_NestedLoad: a loader that reads another key through the same loop
// uses the place that it has, even when it is the only one.
func TestFetch_NestedLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one := acquire(t, w.limiter, t.Context()) // leaves a single place
		inner := newMemShelf(t)
		var f stampede.Flight[outcome]
		out, err := stampede.Fetch(t.Context(), w.loop, w.shelf, stampede.Miss, nil, func(ctx context.Context) (loaded, error) {
			r, err := f.Do(ctx, "inner", func(ctx context.Context, r *stampede.Run) (outcome, error) {
				return stampede.Fetch(ctx, w.loop, inner, stampede.Miss, r, w.read)
			})
			// A background run does not lean on a place that will be given back.
			f.Start(ctx, "behind", func(ctx context.Context, r *stampede.Run) (outcome, error) {
				p := acquire(t, w.limiter, ctx)
				defer p.Release()
				return outcome{}, nil
			})
			synctest.Wait()
			if s := w.limiter.Stats(); s.Running != 2 || s.Queued != 1 {
				t.Errorf("stats %+v, want the background run in the queue", s)
			}
			return loaded{Entry: r.Value.Entry + 10}, err
		})
		if err != nil || out.Entry != 11 || !out.Filled || inner.entry != 1 {
			t.Errorf("got %+v, %v", out, err)
		}
		one.Release()
		synctest.Wait() // the background run has had its turn
		mustClose(t, &f)
		w.idle(t)
	})
}

func TestFetch_Overloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := acquire(t, w.limiter, t.Context()), acquire(t, w.limiter, t.Context())
		if _, err := w.fetch(t.Context(), stampede.Miss); !errors.Is(err, stampede.ErrOverloaded) || w.shelf.takes != 0 {
			t.Errorf("got %v after %d takes; want ErrOverloaded, no lease asked for", err, w.shelf.takes)
		}
		a.Release()
		b.Release()
	})
}

// TestFetch_BeganAfterTheLease: callers are late only from the load on, not while
// the lease is asked for.
func TestFetch_BeganAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.shelf.hook = only("take", fault{latency: 50 * time.Millisecond})
		var f stampede.Flight[outcome]
		late := make(chan bool, 3)
		for range 3 { // at 0, 40 and 80 ms
			go func() {
				r, err := f.Do(t.Context(), "k", func(ctx context.Context, r *stampede.Run) (outcome, error) {
					return stampede.Fetch(ctx, w.loop, w.shelf, stampede.Miss, r, w.read)
				})
				if err != nil {
					t.Error(err)
				}
				late <- r.Late
			}()
			time.Sleep(40 * time.Millisecond)
		}
		count := 0
		for range 3 {
			if <-late {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%d callers are late, want only the third", count)
		}
	})
}

func TestNewLoop(t *testing.T) {
	good := stampede.LoopConfig{Limiter: newLimiter(t, stampede.LimiterConfig{}), Guard: &stampede.Guard{}}
	for _, c := range []struct {
		change func(*stampede.LoopConfig)
		want   string // in the error, or the lease's TTL
	}{
		{func(*stampede.LoopConfig) {}, "5s"},
		{func(c *stampede.LoopConfig) { c.LoadTimeout = 10 * time.Second }, "11s"},
		{func(c *stampede.LoopConfig) { c.LoadTimeout, c.LeaseTTL = time.Second, 2*time.Second }, "2s"},
		{func(c *stampede.LoopConfig) { c.LoadTimeout, c.LeaseTTL = time.Second, 2*time.Second-1 }, "LeaseTTL is 1.999999999s"},
		{func(c *stampede.LoopConfig) { c.LeaseTTL = 3 * time.Second }, "LeaseTTL is 3s: must be at least 1s longer than LoadTimeout (3s)"},
		{func(c *stampede.LoopConfig) { c.Limiter = nil }, "Limiter is nil"},
		{func(c *stampede.LoopConfig) { c.Guard = nil }, "Guard is nil"},
		{func(c *stampede.LoopConfig) { c.LoadTimeout = -1 }, "LoadTimeout is -1ns"},
		{func(c *stampede.LoopConfig) { c.MaxWait = -1 }, "MaxWait is -1ns"},
		{func(c *stampede.LoopConfig) { c.PollMin = time.Second; c.PollMax = time.Millisecond }, "PollMax is 1ms"},
	} {
		config := good
		c.change(&config)
		l, err := stampede.NewLoop(config)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = l.LeaseTTL().String()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestFetch_ExpiredDoesNotQueue: who has an entry to fall back on is sent away when no place is free, at once and without having asked the node; it stands in
// nobody's way.
func TestFetch_ExpiredDoesNotQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.limiter
		l.SetMost(1)
		p := acquire(t, l, t.Context())
		began := time.Now()
		out, err := w.fetch(t.Context(), stampede.Expired)
		if !errors.Is(err, stampede.ErrNoPlace) || !errors.Is(err, stampede.ErrOverloaded) || out != (outcome{}) || time.Since(began) != 0 {
			t.Errorf("%+v, %v after %v", out, err, time.Since(began))
		}
		if w.shelf.takes != 0 || l.Stats().Queued != 0 || l.Stats().Rejected != 0 {
			t.Errorf("%d requests to the node, %+v", w.shelf.takes, l.Stats())
		}
		p.Release()
	})
}
