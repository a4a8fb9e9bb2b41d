// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// TestJoin: a run can be joined from when it has the lease until it ends, by whoever it does not wait for; what joins is late once the source is being read.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		joins := func(ctx context.Context, key string) (stampede.Wait[string], bool) {
			t.Helper()
			return f.Join(ctx, key)
		}
		refused := func(when, key string) {
			t.Helper()
			if _, ok := joins(t.Context(), key); ok {
				t.Errorf("%s: joined", when)
			}
		}
		refused("nothing goes on", "k")
		step := make(chan struct{})
		boom := errors.New("boom")
		lead := call(&f, t.Context(), "k", func(ctx context.Context, r *stampede.Run) (string, error) {
			<-step
			r.Looked()
			r.Leased()
			if _, ok := joins(ctx, "k"); ok {
				t.Error("a run waits for itself")
			}
			<-step
			r.Began()
			<-step
			return "v", boom
		})
		synctest.Wait()
		refused("before the lease", "k")
		step <- struct{}{}
		synctest.Wait()
		refused("another key", "other")
		early, ok := joins(t.Context(), "k")
		if !ok {
			t.Fatal("not joined")
		}
		step <- struct{}{}
		synctest.Wait()
		late, _ := joins(t.Context(), "k")
		over, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := late.Get(over); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that left: %v", err)
		}
		close(step)
		if r, err := early.Get(t.Context()); r.Value != "v" || !errors.Is(err, boom) || r.Late || !r.AfterLast || !r.Shared {
			t.Errorf("early: %+v, %v", r, err)
		}
		if r, err := late.Get(t.Context()); r.Value != "v" || !errors.Is(err, boom) || !r.Late || !r.Shared {
			t.Errorf("late: %+v, %v", r, err)
		}
		if a := <-lead; !a.Shared {
			t.Errorf("the leader's value is shared: %+v", a)
		}
		refused("it has ended", "k")

		gone := make(chan struct{})
		forgotten := call(&f, t.Context(), "k", func(_ context.Context, r *stampede.Run) (string, error) {
			r.Leased()
			<-gone
			return "old", nil
		})
		synctest.Wait()
		f.Forget("k")
		refused("it was forgotten", "k")
		f.ForgetAll()
		refused("all were forgotten", "k")
		close(gone)
		<-forgotten
		mustClose(t, &f)
	})
}
