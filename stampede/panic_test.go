// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

var errBoom = errors.New("boom")

// crashes are the ways in which a user's function can end without returning.
var crashes = []struct {
	name  string
	crash func()
	check func(t testing.TB, who string, err error)
}{
	{"panic", func() { panic("boom") }, wantPanic},
	{"panic with an error", func() { panic(errBoom) }, func(t testing.TB, who string, err error) {
		wantPanic(t, who, err)
		if !errors.Is(err, errBoom) {
			t.Errorf("%s: %v does not unwrap to the panic's value", who, err)
		}
	}},
	{"Goexit", runtime.Goexit, func(t testing.TB, who string, err error) {
		if !errors.Is(err, stampede.ErrGoexit) {
			t.Errorf("%s: %v, want ErrGoexit", who, err)
		}
	}},
}

func wantPanic(t testing.TB, who string, err error) {
	t.Helper()
	var p *stampede.PanicError
	if !errors.As(err, &p) || !strings.Contains(string(p.Stack), "panic_test.go") || !strings.Contains(err.Error(), "boom") {
		t.Errorf("%s: %v, want a *PanicError with boom and the stack", who, err)
	}
}

// eachCrash runs test in a bubble for each way to crash.
func eachCrash(t *testing.T, test func(t *testing.T, crash func(), check func(testing.TB, string, error))) {
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, c.crash, c.check) })
		})
	}
}

func TestCrash_Do(t *testing.T) {
	eachCrash(t, func(t *testing.T, crash func(), check func(testing.TB, string, error)) {
		var f flight
		run := func(context.Context, *stampede.Run) (string, error) {
			time.Sleep(time.Second)
			crash()
			return "v", nil
		}
		a, b := call(&f, t.Context(), "k", run), call(&f, t.Context(), "k", run)
		check(t, "one", (<-a).err)
		check(t, "the other", (<-b).err)
		mustClose(t, &f)
	})
}

func TestCrash_Start(t *testing.T) {
	eachCrash(t, func(t *testing.T, crash func(), check func(testing.TB, string, error)) {
		var f flight
		f.Start(t.Context(), "k", func(context.Context, *stampede.Run) (string, error) {
			time.Sleep(time.Second)
			crash()
			return "v", nil
		})
		check(t, "a caller that joined", (<-call(&f, t.Context(), "k", nil)).err)
		mustClose(t, &f)
	})
}

func TestCrash_Batch(t *testing.T) {
	eachCrash(t, func(t *testing.T, crash func(), check func(testing.TB, string, error)) {
		var f flight
		batch, _, err := f.Lead(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		b := call(&f, t.Context(), "b", nil)
		batch.Go(t.Context(), func(context.Context) {
			time.Sleep(time.Second)
			batch.Finish("a", "v", nil)
			crash()
		})
		if r, err := batch.Wait("a").Get(t.Context()); err != nil || r.Value != "v" {
			t.Errorf("a key that was finished: %+v, %v", r, err)
		}
		_, err = batch.Wait("b").Get(t.Context())
		check(t, "owner", err)
		check(t, "a caller that joined", (<-b).err)
		mustClose(t, &f)
	})
}

// TestCrash_BatchInOwnGoroutine: without Go, a deferred Close frees the waiters.
func TestCrash_BatchInOwnGoroutine(t *testing.T) {
	eachCrash(t, func(t *testing.T, crash func(), _ func(testing.TB, string, error)) {
		var f flight
		led := make(chan struct{})
		go func() {
			defer func() { _ = recover() }()
			batch, _, _ := f.Lead(t.Context(), []string{"a"})
			defer batch.Close()
			close(led)
			time.Sleep(time.Second)
			crash()
		}()
		<-led
		if a := <-call(&f, t.Context(), "a", nil); !errors.Is(a.err, stampede.ErrAbandoned) {
			t.Errorf("waiter: %v, want ErrAbandoned", a.err)
		}
		mustClose(t, &f)
	})
}

func TestCrash_Call(t *testing.T) {
	eachCrash(t, func(t *testing.T, crash func(), check func(testing.TB, string, error)) {
		var g stampede.Guard
		after := 0
		_, err := stampede.Call(t.Context(), &g, time.Second, func(context.Context) (string, error) {
			crash()
			return "v", nil
		}, func() { after++ })
		check(t, "caller", err)
		if after != 1 || g.Running() != 0 {
			t.Errorf("after ran %d times, %d running; want 1, 0", after, g.Running())
		}
		mustClose(t, &g)
	})
}

// TestCrash_Fetch crashes in each piece of foreign code that the lease loop
// calls: place and lease are given back all the same.
func TestCrash_Fetch(t *testing.T) {
	for _, where := range []string{"load", "take", "watch", "fill"} {
		t.Run(where, func(t *testing.T) {
			eachCrash(t, func(t *testing.T, crash func(), check func(testing.TB, string, error)) {
				w := newWorld(t)
				w.shelf.hook = func(op string) fault {
					if op == where {
						crash() // after the node has done its part
					}
					return fault{}
				}
				if where == "watch" {
					w.shelf.lease, w.shelf.leaseEnd = "somebody else's", time.Now().Add(time.Second)
				}
				var f stampede.Flight[outcome] // guards the shelf's own code
				_, err := f.Do(t.Context(), "k", func(ctx context.Context, r *stampede.Run) (outcome, error) {
					return stampede.Fetch(ctx, w.loop, w.shelf, stampede.Miss, r, func(context.Context) (loaded, error) {
						if where == "load" {
							crash()
						}
						return loaded{Entry: 1, Version: 1}, nil
					})
				})
				check(t, where, err)
				w.idle(t)
				if where != "watch" && w.shelf.lease != "" {
					t.Errorf("the lease %q was left behind", w.shelf.lease)
				}
				mustClose(t, &f)
			})
		})
	}
}
