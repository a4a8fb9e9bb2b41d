// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

func lead(t testing.TB, f *flight, keys ...string) (*stampede.Batch[string], map[string]*stampede.Wait[string]) {
	t.Helper()
	batch, others, err := f.Lead(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	return batch, others
}

func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		var runs atomic.Int64
		busy := call(&f, t.Context(), "busy", slow(&runs, 50*time.Millisecond, "single"))
		f.Start(t.Context(), "refresh", slow(&runs, 50*time.Millisecond, "background"))
		synctest.Wait()

		batch, others := lead(t, &f, "a", "busy", "a", "b", "refresh", "busy")
		if !slices.Equal(batch.Keys(), []string{"a", "b"}) {
			t.Errorf("leads %q, want a and b", batch.Keys())
		}
		if got := slices.Sorted(maps.Keys(others)); !slices.Equal(got, []string{"busy", "refresh"}) {
			t.Errorf("others are %q, want busy and refresh", got)
		}
		if batch.Wait("busy") != nil {
			t.Error("Wait for a key that the batch does not lead")
		}

		early := call(&f, t.Context(), "a", slow(&runs, 0, "?"))
		synctest.Wait()
		batch.Began()
		late := call(&f, t.Context(), "a", slow(&runs, 0, "?"))
		synctest.Wait()
		if f.Start(t.Context(), "a", nil) {
			t.Error("Start was accepted for a key that a batch leads")
		}
		if !batch.Finish("a", "va", nil) {
			t.Error("Finish(a): not shared, but two callers waited")
		}
		if batch.Finish("b", "", errBoom) {
			t.Error("Finish(b): shared, but nobody waited")
		}
		batch.Finish("a", "second", nil)
		batch.Finish("unknown", "x", nil)
		batch.Close()
		batch.Close()

		if a := <-early; a.Value != "va" || a.Late || !a.Shared {
			t.Errorf("early caller: %+v", a)
		}
		if a := <-late; a.Value != "va" || !a.Late || !a.Shared {
			t.Errorf("late caller: %+v", a)
		}
		if _, err := batch.Wait("b").Get(t.Context()); !errors.Is(err, errBoom) {
			t.Errorf("b: %v, want the error it was finished with", err)
		}
		for key, want := range map[string]string{"busy": "single", "refresh": "background"} {
			if r, err := others[key].Get(t.Context()); err != nil || r.Value != want || !r.Late || !r.Shared {
				t.Errorf("%s: %+v, %v, want %s, late, shared", key, r, err, want)
			}
		}
		if a := <-busy; !a.Shared {
			t.Error("the caller of Do does not know that a batch shares its value")
		}
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
		mustClose(t, &f)
	})
}

func TestLead_NothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		first, _ := lead(t, &f, "a")
		second, others := lead(t, &f, "a")
		if len(second.Keys()) != 0 || len(others) != 1 {
			t.Errorf("leads %q, others %d; want nothing, 1", second.Keys(), len(others))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := others["a"].Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get with a deadline: %v", err)
		}
		first.Finish("a", "v", nil)
		if r, err := others["a"].Get(ctx); err != nil || r.Value != "v" {
			t.Errorf("a result that is there, context over: %+v, %v", r, err)
		}
		first.Close()
		mustClose(t, &f) // the second, which led nothing, needs no Close
		if _, _, err := f.Lead(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lead with a context that is over: %v", err)
		}
	})
}

func TestLead_Forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		old, _ := lead(t, &f, "a")
		before := call(&f, t.Context(), "a", nil)
		synctest.Wait()
		f.Forget("a")
		fresh, _ := lead(t, &f, "a")
		if len(fresh.Keys()) != 1 {
			t.Fatal("the key was not given up by Forget")
		}
		after := call(&f, t.Context(), "a", nil)
		old.Finish("a", "old", nil)
		old.Close()
		synctest.Wait()
		fresh.Finish("a", "new", nil)
		fresh.Close()
		if a, b := <-before, <-after; a.Value != "old" || b.Value != "new" {
			t.Errorf("before %+v, after %+v", a, b)
		}
	})
}

// TestLead_Crosswise: two batches that each lead what the other waits for both
// end, since each loads before it waits. Many rounds, real goroutines.
func TestLead_Crosswise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		var done atomic.Int64
		many := func(keys ...string) {
			defer done.Add(1)
			batch, others := lead(t, &f, keys...)
			batch.Go(t.Context(), func(context.Context) {
				batch.Began()
				time.Sleep(time.Millisecond)
				for _, key := range batch.Keys() {
					batch.Finish(key, "v"+key, nil)
				}
			})
			for _, key := range batch.Keys() {
				others[key] = batch.Wait(key)
			}
			for key, w := range others {
				if r, err := w.Get(t.Context()); err != nil || r.Value != "v"+key {
					t.Errorf("%s: %+v, %v", key, r, err)
				}
			}
		}
		for i := range 50 {
			a, b, c := strconv.Itoa(i), strconv.Itoa(i+1), strconv.Itoa(i+2)
			go many(a, b)
			go many(b, a)
			go many(c, a, b)
			go func() {
				defer done.Add(1)
				var runs atomic.Int64
				if r, err := f.Do(t.Context(), b, slow(&runs, time.Millisecond, "v"+b)); err != nil || r.Value != "v"+b {
					t.Errorf("Do %s: %+v, %v", b, r, err)
				}
			}()
		}
		time.Sleep(time.Minute) // in the bubble: until nothing moves any more
		if done.Load() != 200 {
			t.Errorf("%d of 200 ended", done.Load())
		}
		mustClose(t, &f)
	})
}

// TestLead_OwnerLeaves: with Go the load goes on when its caller is gone.
func TestLead_OwnerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flight
		ctx, cancel := context.WithCancel(t.Context())
		batch, _ := lead(t, &f, "a")
		batch.Go(ctx, func(ctx context.Context) {
			time.Sleep(time.Second)
			batch.Finish("a", "v", ctx.Err())
		})
		cancel()
		if _, err := batch.Wait("a").Get(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("owner: %v", err)
		}
		if a := <-call(&f, t.Context(), "a", nil); a.err != nil || a.Value != "v" {
			t.Errorf("a caller that joined: %+v", a)
		}
		mustClose(t, &f)
	})
}

// TestBatchDrop: keys that only the batch's owner wanted end, and are free for the next; what somebody else has joined, or what has its result, stays.
func TestBatchDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f stampede.Flight[int]
		led, _, err := f.Lead(t.Context(), []string{"done", "joined", "nobody's"})
		if err != nil {
			t.Fatal(err)
		}
		led.Finish("done", 1, nil)
		_, others, err := f.Lead(t.Context(), []string{"joined"})
		if err != nil {
			t.Fatal(err)
		}
		if kept := led.Drop([]string{"done", "joined", "nobody's", "never led"}); len(kept) != 1 || kept[0] != "joined" {
			t.Errorf("kept %q, want what was joined", kept)
		}
		for key, done := range map[string]bool{"done": true, "joined": false, "nobody's": true} {
			if led.Wait(key).Done() != done {
				t.Errorf("%s: Done is %v", key, !done)
			}
		}
		if r, err := led.Wait("done").Get(t.Context()); err != nil || r.Value != 1 {
			t.Errorf("what has its result: %v, %v", r.Value, err)
		}
		if _, err := led.Wait("nobody's").Get(t.Context()); !errors.Is(err, stampede.ErrAbandoned) {
			t.Errorf("what was dropped: %v", err)
		}
		next, _, err := f.Lead(t.Context(), []string{"nobody's"})
		if err != nil || len(next.Keys()) != 1 {
			t.Errorf("what was dropped cannot be led again: %v", err)
		}
		next.Close()
		led.Finish("joined", 2, nil)
		if r, err := others["joined"].Get(t.Context()); err != nil || r.Value != 2 {
			t.Errorf("what was joined: %v, %v", r.Value, err)
		}
		led.Close()
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestBatchBegan: the first call counts, for every key of the batch, also for those that join in between.
func TestBatchBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f stampede.Flight[int]
		keys := make([]string, 1500) // more than are claimed in one step
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}
		led, _, err := f.Lead(t.Context(), keys)
		if err != nil || !slices.Equal(led.Keys(), keys) {
			t.Fatalf("%d of %d keys are led, %v", len(led.Keys()), len(keys), err)
		}
		join := func() map[string]*stampede.Wait[int] {
			_, others, err := f.Lead(t.Context(), keys)
			if err != nil || len(others) != len(keys) {
				t.Fatalf("%d of %d keys are led by somebody, %v", len(others), len(keys), err)
			}
			return others
		}
		early := join()
		led.Began()
		late := join()
		led.Began()
		for _, k := range keys {
			led.Finish(k, 1, nil)
			a, _ := early[k].Get(t.Context())
			b, _ := late[k].Get(t.Context())
			if a.Late || !b.Late {
				t.Fatalf("key %s: joined before the load and late %v, after it began and late %v", k, a.Late, b.Late)
			}
		}
		led.Close()
	})
}
