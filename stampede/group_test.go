// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

type flight = stampede.Flight[string]
type result = stampede.Result[string]
type runFunc = func(context.Context, *stampede.Run) (string, error)

// slow returns a run that reads its source for d and counts itself.
func slow(runs *atomic.Int64, d time.Duration, value string) runFunc {
	return func(ctx context.Context, r *stampede.Run) (string, error) {
		runs.Add(1)
		r.Began()
		select {
		case <-time.After(d):
			return value, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// answer is what one caller got and when.
type answer struct {
	result
	err error
	at  time.Duration
}

// call starts a caller of Do and returns where its answer comes.
func call(f *flight, ctx context.Context, key string, run runFunc) <-chan answer {
	ch, start := make(chan answer, 1), time.Now()
	go func() {
		r, err := f.Do(ctx, key, run)
		ch <- answer{r, err, time.Since(start)}
	}()
	return ch
}

func mustClose(t testing.TB, f interface{ Close(context.Context) error }) {
	t.Helper()
	if err := f.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestRB01_LeaderLeavesOthersStay: the caller that started the load gives up,
// by cancel or by deadline, and so does one of the waiters. Each gets its own
// context's error at once; everybody else gets the value; the load runs once.
func TestRB01_LeaderLeavesOthersStay(t *testing.T) {
	for _, c := range []struct {
		name  string
		leave func(context.Context) (context.Context, context.CancelFunc)
		want  error
	}{
		{"cancel", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
		{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		}, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f flight
				var runs atomic.Int64
				run := slow(&runs, 300*time.Millisecond, "v")

				first, cancel := c.leave(t.Context())
				defer cancel()
				leader := call(&f, first, "k", run)
				time.Sleep(20 * time.Millisecond)
				seventh, leave := context.WithCancel(t.Context())
				time.AfterFunc(40*time.Millisecond, leave)
				var waiters []<-chan answer
				for i := range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					if i == 7 {
						ctx = seventh
					}
					waiters = append(waiters, call(&f, ctx, "k", run))
				}

				if a := <-leader; !errors.Is(a.err, c.want) || a.at != 50*time.Millisecond {
					t.Errorf("leader: %v after %v, want %v after 50ms", a.err, a.at, c.want)
				}
				for i, w := range waiters {
					a := <-w
					if i == 7 {
						if !errors.Is(a.err, context.Canceled) || a.at != 40*time.Millisecond {
							t.Errorf("waiter 7: %v after %v, want its own cancellation after 40ms", a.err, a.at)
						}
					} else if a.err != nil || a.Value != "v" || !a.Shared {
						t.Errorf("waiter %d: %+v, want v, shared", i, a)
					}
				}
				if runs.Load() != 1 {
					t.Errorf("%d runs, want 1", runs.Load())
				}
				mustClose(t, &f)
			})
		})
	}
}

func TestDo_TenThousandCallersOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		var runs atomic.Int64
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for range crowd {
			wg.Go(func() {
				r, err := f.Do(t.Context(), "k", func(context.Context, *stampede.Run) (string, error) {
					runs.Add(1)
					<-gate
					return "v", nil
				})
				if err != nil || r.Value != "v" || !r.Shared || r.Late {
					t.Errorf("got %+v, %v", r, err)
				}
			})
		}
		synctest.Wait() // all of them wait now
		close(gate)
		wg.Wait()
		if runs.Load() != 1 {
			t.Errorf("%d runs, want 1", runs.Load())
		}
	})
}

// TestDo_NeverOlderThanTheCall hammers one key without any gate: whatever a
// caller gets must come from a run that had not ended when the caller came.
func TestDo_NeverOlderThanTheCall(t *testing.T) {
	var f stampede.Flight[int64]
	var ended atomic.Int64 // number of the last run that ended
	var runs atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 3000 {
				before := ended.Load()
				r, err := f.Do(t.Context(), "k", func(context.Context, *stampede.Run) (int64, error) {
					n := runs.Add(1)
					runtime.Gosched()
					ended.Store(n)
					return n, nil
				})
				// The run's last act is the Store, a moment before it ends for the
				// flight; a caller in that moment may still join, hence no <= here.
				if err != nil || r.Value < before {
					t.Errorf("got run %d, %v; run %d had ended before the call", r.Value, err, before)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestDo_ValuesAndDetachment(t *testing.T) {
	type tag struct{}
	synctest.Test(t, func(t *testing.T) {
		var f flight
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), tag{}, "first"), time.Second)
		defer cancel()
		_, err := f.Do(ctx, "k", func(ctx context.Context, _ *stampede.Run) (string, error) {
			if ctx.Value(tag{}) != "first" {
				t.Error("the run lost the caller's values")
			}
			if _, has := ctx.Deadline(); has || ctx.Done() != nil {
				t.Error("the run has the caller's deadline or cancellation")
			}
			return "", nil
		})
		if err != nil {
			t.Error(err)
		}
		cancel()
		if _, err := f.Do(ctx, "k", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Do with a context that is over: %v", err)
		}
	})
}

func TestDo_Late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		run := func(_ context.Context, r *stampede.Run) (string, error) {
			time.Sleep(10 * time.Millisecond) // place, lease
			r.Began()
			time.Sleep(10 * time.Millisecond) // the load
			r.Began()                         // a second reading does not move the moment
			time.Sleep(10 * time.Millisecond)
			return "v", nil
		}
		first := call(&f, t.Context(), "k", run)
		time.Sleep(5 * time.Millisecond)
		early := call(&f, t.Context(), "k", run)
		time.Sleep(10 * time.Millisecond)
		late := call(&f, t.Context(), "k", run)
		time.Sleep(10 * time.Millisecond)
		later := call(&f, t.Context(), "k", run)
		for i, w := range []struct {
			ch   <-chan answer
			late bool
		}{{first, false}, {early, false}, {late, true}, {later, true}} {
			if a := <-w.ch; a.err != nil || a.Late != w.late || !a.Shared {
				t.Errorf("caller %d: %+v, want late %v, shared", i, a, w.late)
			}
		}
		if a := <-call(&f, t.Context(), "k", run); a.Shared || a.Late {
			t.Errorf("a caller alone: %+v, want neither shared nor late", a)
		}
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		var runs atomic.Int64
		old1 := call(&f, t.Context(), "k", slow(&runs, 30*time.Millisecond, "old"))
		old2 := call(&f, t.Context(), "k", slow(&runs, 30*time.Millisecond, "?"))
		time.Sleep(10 * time.Millisecond)
		f.Forget("k")
		f.Forget("unknown")
		// The new run is longer: when the old one ends it must not take the new
		// one's entries with it.
		new1 := call(&f, t.Context(), "k", slow(&runs, 100*time.Millisecond, "new"))
		time.Sleep(50 * time.Millisecond)
		new2 := call(&f, t.Context(), "k", slow(&runs, 0, "?"))
		got := []string{(<-old1).Value, (<-old2).Value, (<-new1).Value, (<-new2).Value}
		// Which of the first two started the run is the scheduler's choice.
		if got[0] != got[1] || got[2] != "new" || got[3] != "new" || runs.Load() != 2 {
			t.Errorf("got %q in %d runs", got, runs.Load())
		}
	})
}

// TestJoin: who joins gets what the run brings, as a caller of Do does, and starts nothing where there is none. A result that is there is given to a caller whose context is over, too.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		var runs atomic.Int64
		if _, found, err := f.Join(t.Context(), "k"); found || err != nil || f.Running() != 0 {
			t.Fatalf("nobody loads the key: found=%v, %v, %d runs", found, err, f.Running())
		}
		leader := call(&f, t.Context(), "k", slow(&runs, 100*time.Millisecond, "v"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		w, found, err := f.Join(ctx, "k")
		if !found || err != nil {
			t.Fatalf("the key is being loaded: found=%v, %v", found, err)
		}
		r := result{Value: "as it was"}
		if err := w.GetInto(ctx, &r); !errors.Is(err, context.DeadlineExceeded) || r.Value != "as it was" {
			t.Errorf("who leaves before the end: %+v, %v", r, err)
		}
		if err := w.GetInto(t.Context(), &r); err != nil || r != (result{Value: "v", Shared: true, Late: true}) {
			t.Errorf("who stays: %+v, %v", r, err)
		}
		for range 50 { // select would take either
			if r, err := w.Get(ctx); err != nil || r.Value != "v" {
				t.Fatalf("the result is there: %+v, %v", r, err)
			}
		}
		if got := <-leader; got.err != nil || !got.Shared || got.Late {
			t.Errorf("the leader: %+v", got)
		}
		mustClose(t, &f)
		if _, _, err := f.Join(t.Context(), "k"); !errors.Is(err, stampede.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestDo_OneGoroutine: a crowd costs one goroutine beside its own, and who joins no memory.
func TestDo_OneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		more := 0
		for i := 0; i < 10 && more != 1; i++ { // what ends of earlier tests meanwhile counts too
			more = gathered(t, &f, 100)
		}
		if more != 1 {
			t.Errorf("%d goroutines beside those of the callers, want the run's", more)
		}
	})
}

// gathered has so many callers wait for a run, and says how many goroutines there are beside theirs.
func gathered(t *testing.T, f *flight, callers int) (more int) {
	before := runtime.NumGoroutine()
	var got []<-chan answer
	var runs atomic.Int64
	for range callers {
		got = append(got, call(f, t.Context(), "k", slow(&runs, time.Second, "v")))
	}
	synctest.Wait()
	more = runtime.NumGoroutine() - before - callers
	var w stampede.Wait[string]
	if n := testing.AllocsPerRun(100, func() { w, _, _ = f.Join(t.Context(), "k") }); n != 0 {
		t.Errorf("to join takes %v allocations", n)
	}
	for _, ch := range got {
		if a := <-ch; a.Value != "v" || a.err != nil {
			t.Errorf("got %q, %v", a.Value, a.err)
		}
	}
	var r result
	if n := testing.AllocsPerRun(100, func() { _ = w.GetInto(t.Context(), &r) }); n != 0 || r.Value != "v" {
		t.Errorf("to take %q takes %v allocations", r.Value, n)
	}
	return more
}

// TestForget_Start: Forget detaches a background run too, from callers who wait
// for it through Do and from those who come.
func TestForget_Start(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		var runs atomic.Int64
		f.Start(t.Context(), "k", slow(&runs, 30*time.Millisecond, "old"))
		before := call(&f, t.Context(), "k", slow(&runs, 0, "?"))
		synctest.Wait()
		f.Forget("k")
		after := call(&f, t.Context(), "k", slow(&runs, 0, "new"))
		if a, b := <-before, <-after; a.Value != "old" || b.Value != "new" || b.at != 0 {
			t.Errorf("before %+v, after %+v", a, b)
		}
	})
}

func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		var runs atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		if !f.Start(ctx, "k", slow(&runs, 20*time.Millisecond, "background")) {
			t.Fatal("Start refused")
		}
		cancel() // must not reach the run
		if f.Start(t.Context(), "k", slow(&runs, 0, "second")) {
			t.Error("a second Start for the key was accepted")
		}
		synctest.Wait() // its load has begun
		if a := <-call(&f, t.Context(), "k", slow(&runs, 0, "own")); a.Value != "background" || !a.Shared || !a.Late {
			t.Errorf("a caller during a background run: %+v, want its value, shared, late", a)
		}
		if runs.Load() != 1 {
			t.Errorf("%d runs, want 1", runs.Load())
		}
		busy := call(&f, t.Context(), "k", slow(&runs, 20*time.Millisecond, "own"))
		synctest.Wait()
		if f.Start(t.Context(), "k", slow(&runs, 0, "third")) {
			t.Error("Start was accepted while Do is running")
		}
		<-busy
		mustClose(t, &f)
		if f.Start(t.Context(), "k", slow(&runs, 0, "x")) {
			t.Error("Start was accepted after Close")
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		var runs atomic.Int64
		cause := make(chan error, 1)
		f.Start(t.Context(), "background", func(ctx context.Context, _ *stampede.Run) (string, error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return "", ctx.Err()
		})
		pending := call(&f, t.Context(), "k", slow(&runs, time.Second, "v"))
		synctest.Wait()

		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := f.Close(short)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 still running") {
			t.Errorf("Close with a run going on: %v, want a deadline error that counts 1", err)
		}
		if got := <-cause; !errors.Is(got, stampede.ErrClosed) {
			t.Errorf("background run was cancelled with %v, want ErrClosed", got)
		}
		if _, err := f.Do(t.Context(), "k", slow(&runs, 0, "")); !errors.Is(err, stampede.ErrClosed) {
			t.Errorf("Do after Close: %v", err)
		}
		if _, _, err := f.Lead(t.Context(), []string{"a"}); !errors.Is(err, stampede.ErrClosed) {
			t.Errorf("Lead after Close: %v", err)
		}
		mustClose(t, &f) // waits for the rest
		if a := <-pending; a.Value != "v" || a.err != nil {
			t.Errorf("a caller that was there before Close: %+v, want its value", a)
		}
		mustClose(t, &f)
		if f.Running() != 0 {
			t.Errorf("%d running after Close", f.Running())
		}
	})
}

func TestRecursion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f, other flight
		// a loads b loads a.
		_, err := f.Do(t.Context(), "a", func(ctx context.Context, _ *stampede.Run) (string, error) {
			_, err := f.Do(ctx, "b", func(ctx context.Context, _ *stampede.Run) (string, error) {
				_, err := f.Do(ctx, "a", nil)
				return "", err
			})
			return "", fmt.Errorf("loading b: %w", err)
		})
		if !errors.Is(err, stampede.ErrRecursiveLoad) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("got %v, want ErrRecursiveLoad that names a", err)
		}

		var outlived context.Context
		r, err := f.Do(t.Context(), "a", func(ctx context.Context, _ *stampede.Run) (string, error) {
			outlived = ctx
			// The same key of another flight is another load.
			r, err := other.Do(ctx, "a", func(context.Context, *stampede.Run) (string, error) { return "other", nil })
			// A background run is waited for by nobody, so it may wait for a.
			f.Start(ctx, "b", func(ctx context.Context, _ *stampede.Run) (string, error) {
				r, err := f.Do(ctx, "a", nil)
				if err != nil || r.Value != "other" {
					t.Errorf("a background run that waits for its starter: %+v, %v", r, err)
				}
				return "", nil
			})
			synctest.Wait()
			return r.Value, err
		})
		if err != nil || r.Value != "other" {
			t.Errorf("got %+v, %v", r, err)
		}
		// A goroutine that outlives the load is not inside it any more.
		var runs atomic.Int64
		if _, err := f.Do(outlived, "a", slow(&runs, 0, "v")); err != nil {
			t.Errorf("after the load: %v", err)
		}
		mustClose(t, &f)
	})
}

func TestRecursion_Batch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		batch, _, err := f.Lead(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		batch.Go(t.Context(), func(ctx context.Context) {
			if _, err := f.Do(ctx, "b", nil); !errors.Is(err, stampede.ErrRecursiveLoad) {
				t.Errorf("Do inside the batch: %v", err)
			}
			inner, others, err := f.Lead(ctx, []string{"a", "c"})
			if err != nil {
				t.Error(err)
				return
			}
			defer inner.Close()
			if _, err := others["a"].Get(ctx); !errors.Is(err, stampede.ErrRecursiveLoad) {
				t.Errorf("batch inside the batch: %v", err)
			}
			if keys := inner.Keys(); len(keys) != 1 || keys[0] != "c" {
				t.Errorf("inner batch leads %q, want c", keys)
			}
			batch.Finish("b", "v", nil)
			var runs atomic.Int64
			if r, err := f.Do(ctx, "b", slow(&runs, 0, "again")); err != nil || r.Value != "again" {
				t.Errorf("a key that the batch has finished: %+v, %v", r, err)
			}
		})
		if _, err := batch.Wait("a").Get(t.Context()); !errors.Is(err, stampede.ErrAbandoned) {
			t.Errorf("a key without a result: %v", err)
		}
		mustClose(t, &f)
	})
}
