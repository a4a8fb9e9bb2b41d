// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// TestDo_ComesAfterTheEnd: a caller that finds in singleflight the remains of a
// run that has ended must not be given its value: the key may have been
// invalidated since.
func TestDo_ComesAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flight[string]
		old, _, err := f.claim("k")
		if err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		f.single.DoChan("k", func() (any, error) { <-gate; return old, nil }) // waits for old's lead
		f.finish("k", old, "old", nil)
		f.crew.leave()

		got := make(chan Result[string])
		go func() {
			r, err := f.Do(t.Context(), "k", func(context.Context, *Run) (string, error) { return "new", nil })
			if err != nil {
				t.Error(err)
			}
			got <- r
		}()
		synctest.Wait() // it has joined the remains
		close(gate)
		if r := <-got; r.Value != "new" || r.Late {
			t.Errorf("got %+v, want the new run's value", r)
		}
	})
}

// TestDo_ClosedBeforeTheClaim: Close came between Do's look at the flight and
// the start of the run; nothing is started.
func TestDo_ClosedBeforeTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flight[string]
		gate := make(chan struct{})
		f.single.DoChan("k", func() (any, error) {
			<-gate
			c, _, err := f.claim("k")
			return c, err
		})
		got := make(chan error)
		go func() {
			_, err := f.Do(t.Context(), "k", nil)
			got <- err
		}()
		synctest.Wait()
		if err := f.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(gate)
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	})
}

// TestLoop_Pause: the pauses double up to PollMax, and a draw takes off at most half.
func TestLoop_Pause(t *testing.T) {
	for _, draw := range []float64{0, 0.5, 1} {
		config := LoopConfig{Draw: func() float64 { return draw }}.withDefaults()
		l := &Loop{config}
		want := config.PollMin
		for n := range 200 {
			if got := l.pause(n); got != want-want/2 && draw == 1 || got != want && draw == 0 || got < want/2 || got > want {
				t.Fatalf("draw %v: pause %d is %v, want %v less at most half", draw, n, got, want)
			}
			want = min(2*want, config.PollMax)
		}
		huge := &Loop{LoopConfig{Draw: config.Draw, PollMin: 1, PollMax: 1<<63 - 1}}
		if got := huge.pause(1000); got < 1<<61 {
			t.Errorf("draw %v: pause without a bound is %v", draw, got)
		}
	}
}

// TestReason: a load that gives up because its context is over is reported as
// what ended the context; any other error, and a nil one, stay.
func TestReason(t *testing.T) {
	own := errors.New("own")
	over, cancel := context.WithCancelCause(context.Background())
	cancel(ErrLoadTimeout)
	for _, c := range []struct {
		name      string
		ctx       context.Context
		err, want error
	}{
		{"heeds its context", over, fmt.Errorf("query: %w", context.Canceled), ErrLoadTimeout},
		{"fails by itself at the same time", over, own, own},
		{"ready at the last moment", over, nil, nil},
		{"a context of its own", context.Background(), context.Canceled, context.Canceled},
	} {
		if got := reason(c.ctx, c.err); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
