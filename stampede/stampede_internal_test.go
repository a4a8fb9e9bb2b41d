// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestDo_ComesAfterTheEnd: a caller that comes when a run has its result, but those who wait for it have not been woken yet, must not be given that: the key may
// have been invalidated since.
func TestDo_ComesAfterTheEnd(t *testing.T) {
	var f Flight[string]
	old, _, err := f.claim(t.Context(), "k", true)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	first := f.settle("k", old.call, "old", nil)
	f.mu.Unlock()
	if !first {
		t.Fatal("the first result is not the first")
	}
	r, err := f.Do(t.Context(), "k", func(context.Context, *Run) (string, error) { return "new", nil })
	if err != nil || r.Value != "new" || r.Late || r.Shared {
		t.Errorf("got %+v, %v, want the new run's value", r, err)
	}
	if f.finish("k", old.call, "another", nil) || old.call.over() {
		t.Error("a second result has ended the call, or was given to somebody")
	}
	close(old.call.done)
	f.crew.leave()
	if r, err := old.Get(t.Context()); err != nil || r.Value != "old" {
		t.Errorf("who waited got %q, %v, want the first result", r.Value, err)
	}
}

// TestDo_ClosedBeforeTheClaim: Close comes between Do's look at the flight and its claim; nothing is started.
func TestDo_ClosedBeforeTheClaim(t *testing.T) {
	var f Flight[string]
	ctx := asked{t.Context(), func() { f.crew.shut() }} // Do looks into its context last
	if _, err := f.Do(ctx, "k", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if n := f.Running(); n != 0 || f.leads["k"] != nil {
		t.Errorf("%d runs, and the key is led: %v", n, f.leads["k"] != nil)
	}
}

// asked is a context that tells when it is asked for a value.
type asked struct {
	context.Context
	tell func()
}

func (a asked) Value(key any) any {
	a.tell()
	return a.Context.Value(key)
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
